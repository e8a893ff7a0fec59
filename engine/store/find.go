package store

import (
	"errors"
	"fmt"
	"strings"

	lattice "github.com/lattice-log/lattice"
)

// ErrAmbiguous: several stores have the name. Kind Conflict.
var ErrAmbiguous = lattice.E(lattice.Conflict, errors.New("several stores on this node have that name"))

// shortID is how much of an id names a store, at least, in hex digits.
const shortID = 8

// Find returns one of several stores by its id, the beginning of that, or its name.
// Kinds NotFound, Conflict (ErrAmbiguous).
func Find(all []*Store, name string) (*Store, error) {
	var named, begun []*Store
	for _, s := range all {
		id := s.info.ID.String()
		switch {
		case id == name:
			return s, nil
		case s.info.Name == name:
			named = append(named, s)
		case len(name) >= shortID && strings.HasPrefix(id, name):
			begun = append(begun, s)
		}
	}
	if len(named) == 0 {
		named = begun
	}
	switch len(named) {
	case 0:
		return nil, lattice.E(lattice.NotFound, fmt.Errorf("no store %q on this node", name))
	case 1:
		return named[0], nil
	}
	var ids []string
	for _, s := range named {
		ids = append(ids, s.info.ID.Short())
	}
	return nil, fmt.Errorf("store %q: %w: %s", name, ErrAmbiguous, strings.Join(ids, ", "))
}
