package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/structs"
)

// A group has a home: the node that coordinates its members, wherever they connect. It is
// where the group was first used, and is state, so that every node comes to the same one
// (group.JoinHomes). Other nodes have it do what their clients ask (Elsewhere.Ask).
//
// # What a crash leaves
//
// A first use is written and not waited for: no other node hears of it before it is
// durable, and if a crash takes it the next request makes another. A move is
//
//  1. Members are evicted, and commits that were taken become durable. A crash: the
//     group is here, and its members join again, as after any restart.
//  2. The new home is state, durably. It stands in this node's log behind all commits of
//     the group that this node took, so whoever knows of it has those.

// groupsMap has each group's home: the group's name -> group.Home.
const groupsMap = "$groups"

var (
	// ErrHomeAway (15): another node coordinates the group, and cannot be reached now.
	ErrHomeAway = lattice.E(lattice.Unavailable, errors.New("the node that coordinates the group cannot be reached now"))
	// ErrNotHome (16): who asked takes this node for the group's home, and it is not, or is
	// not yet.
	ErrNotHome = lattice.E(lattice.NotLeader, errors.New("this node does not coordinate the group"))
	// ErrShareHome: share groups stay where they are. Kind Unsupported.
	ErrShareHome = lattice.E(lattice.Unsupported, errors.New("share groups do not move: each node has its own, over the partitions that it leads"))
)

// homes is what this node knows of who coordinates groups.
type homes struct {
	changing sync.Mutex // held by whoever reads the state to change what is known

	mu     sync.RWMutex
	all    map[string]group.Home
	others int             // of all, not this node
	moving map[string]bool // are being handed over by this node
	strays map[string]bool // are coordinated here while their home is away
}

// readHome joins what the state has of a group's home.
func readHome(tx *keyval.Tx, name []byte) (h group.Home, ok bool, err error) {
	row, err := tx.Row(state.Address{Map: groupsMap, Key: name, Kind: state.Register})
	for _, head := range row {
		x, perr := group.ParseHome(slices.Clone(head.Payload.Bytes))
		switch {
		case perr != nil: // any member may have written it
		case ok:
			h = group.JoinHomes(h, x)
		default:
			h, ok = x, true
		}
	}
	if err != nil {
		err = fmt.Errorf("home of group %q: %w", name, err)
	}
	return h, ok, err
}

// loadHomes reads all homes from the state, and returns the groups that had one before
// or have one now. s.homes.changing is held, or the store is being opened.
func (s *Store) loadHomes() (names map[string]bool, err error) {
	all := map[string]group.Home{}
	t, err := s.state.View(func(tx *keyval.Tx) error {
		var keys [][]byte
		err := structs.In(tx, groupsMap).Keys(nil, func(key []byte, _ structs.Type) bool {
			keys = append(keys, slices.Clone(key))
			return true
		})
		for _, key := range keys {
			if err != nil {
				break
			}
			var h group.Home
			var ok bool
			if h, ok, err = readHome(tx, key); ok {
				all[string(key)] = h
			}
		}
		return err
	})
	if err == nil {
		err = t.Wait(context.Background())
	}
	if err != nil {
		return nil, err
	}
	s.homes.mu.Lock()
	defer s.homes.mu.Unlock()
	names = map[string]bool{}
	for name := range all {
		names[name] = true
	}
	for name := range s.homes.all {
		names[name] = true
	}
	s.homes.all, s.homes.others = all, 0
	for _, h := range all {
		s.homes.count(h, s.info.Node, 1)
	}
	return names, nil
}

// followHomes takes over where others say that groups are at home.
func (s *Store) followHomes(got *news) error {
	if !got.all && len(got.homes) == 0 {
		return nil
	}
	s.homes.changing.Lock()
	defer s.homes.changing.Unlock()
	names := got.homes
	if got.all {
		var err error
		if names, err = s.loadHomes(); err != nil {
			return err
		}
	} else {
		t, err := s.state.View(func(tx *keyval.Tx) error {
			for name := range names {
				h, ok, err := readHome(tx, []byte(name))
				if err != nil {
					return err
				}
				s.setHome(name, h, ok)
			}
			return nil
		})
		if err == nil {
			err = t.Wait(context.Background())
		}
		if err != nil {
			return err
		}
	}
	for name := range names {
		if here, known := s.homeHere(name); known && !here && !s.homes.stray(name) {
			s.groups.Evict(name)
		}
	}
	return nil
}

// count counts a home that has come (1) or gone (-1). h.mu is held.
func (h *homes) count(home group.Home, me lattice.NodeID, n int) {
	if home.Node != me {
		h.others += n
	}
}

func (s *Store) setHome(name string, home group.Home, ok bool) {
	h := &s.homes
	h.mu.Lock()
	defer h.mu.Unlock()
	if old, was := h.all[name]; was {
		h.count(old, s.info.Node, -1)
	}
	if ok {
		h.count(home, s.info.Node, 1)
		h.all[name] = home
	} else {
		delete(h.all, name)
	}
}

func (h *homes) stray(name string) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.strays[name]
}

// mark sets, or takes back, that a group has a mark. It reports whether that changed.
func (h *homes) mark(of *map[string]bool, name string, on bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if (*of)[name] == on {
		return false
	}
	if *of == nil {
		*of = map[string]bool{}
	}
	if on {
		(*of)[name] = true
	} else {
		delete(*of, name)
	}
	return true
}

// GroupHome returns the node that coordinates a group, false if there is none: the group
// was not used yet, or its home is no member any more that may write. It never waits.
func (s *Store) GroupHome(name string) (group.Home, bool) {
	s.homes.mu.RLock()
	h, ok := s.homes.all[name]
	s.homes.mu.RUnlock()
	if !ok {
		return h, false
	}
	m, ok := s.state.Member(h.Node)
	return h, ok && m.Role >= roster.Writer
}

// GroupHomes returns the homes of all groups that have one.
func (s *Store) GroupHomes() map[string]lattice.NodeID {
	s.homes.mu.RLock()
	names := slices.Collect(maps.Keys(s.homes.all))
	s.homes.mu.RUnlock()
	out := map[string]lattice.NodeID{}
	for _, name := range names {
		if h, ok := s.GroupHome(name); ok {
			out[name] = h.Node
		}
	}
	return out
}

// AnyHomeElsewhere reports whether another node is, or was, the home of a group.
func (s *Store) AnyHomeElsewhere() bool {
	s.homes.mu.RLock()
	defer s.homes.mu.RUnlock()
	return s.homes.others > 0
}

// Stray reports whether a group is coordinated here because its home is away.
func (s *Store) Stray(name string) bool { return s.homes.stray(name) }

// homesOf is group.Homes over a store.
type homesOf struct{ s *Store }

var _ group.Homes = homesOf{}

// Home implements group.Homes.
func (v homesOf) Home(name string) (here, known bool) { return v.s.homeHere(name) }

// homeHere says whether a group has a home, and whether that is here.
func (s *Store) homeHere(name string) (here, known bool) {
	h, ok := s.GroupHome(name)
	return ok && h.Node == s.info.Node, ok
}

// Coordinator returns the node that coordinates a group now. use: the group is about to be
// used, so it gets a home, this node, if it has none. Errors: ErrHomeAway; group.ErrMoving
// while this node hands it over.
func (s *Store) Coordinator(name string, use bool) (lattice.NodeID, error) {
	me := s.info.Node
	if name == "" {
		return me, nil // no group, as the coordinator will say
	}
	h, ok := s.GroupHome(name)
	if (!ok || h.Node != me) && s.isShare(name) {
		return me, nil // of this node alone
	}
	if !ok {
		if !use {
			return me, nil
		}
		if h, ok = s.settle(name); !ok {
			return me, nil // it may not write: it refuses commits, and nothing else
		}
	}
	if h.Node == me {
		s.homes.mu.RLock()
		moving := s.homes.moving[name]
		s.homes.mu.RUnlock()
		if moving {
			return me, group.ErrMoving
		}
		s.homes.mark(&s.homes.strays, name, false)
		return me, nil
	}
	switch {
	case s.Reaches(h.Node):
		if s.homes.mark(&s.homes.strays, name, false) {
			s.groups.Evict(name) // its home is back
		}
		return h.Node, nil
	case s.cfg.LocalGroups:
		s.homes.mark(&s.homes.strays, name, true)
		return me, nil
	}
	return h.Node, fmt.Errorf("group %q is at home on %s: %w", name, h.Node.Short(), ErrHomeAway)
}

// AtHome says whether this node coordinates a group for another member's clients: nil,
// ErrNotHome, group.ErrMoving, or group.ErrDenied, if who asks wants to change something
// and may not.
func (s *Store) AtHome(name string, from lattice.NodeID, change bool) error {
	if m, ok := s.state.Member(from); !ok || change && m.Role < roster.Writer {
		return fmt.Errorf("%s is no writer: %w", from.Short(), group.ErrDenied)
	}
	s.homes.mu.RLock()
	moving := s.homes.moving[name]
	s.homes.mu.RUnlock()
	switch here, _ := s.homeHere(name); {
	case moving:
		return group.ErrMoving
	case !here:
		return fmt.Errorf("group %q: %w", name, ErrNotHome)
	}
	return nil
}

func (s *Store) isShare(name string) bool {
	_, err := s.shares.Describe(name)
	return err == nil
}

// settle makes this node the home of a group that has none; false: it may not write.
func (s *Store) settle(name string) (group.Home, bool) {
	s.homes.changing.Lock()
	defer s.homes.changing.Unlock()
	var h group.Home
	_, err := s.state.UpdateQuietly(func(tx *keyval.Tx) error {
		there, ok, err := readHome(tx, []byte(name))
		if err != nil {
			return err
		}
		if ok {
			if m, member := s.state.Member(there.Node); member && m.Role >= roster.Writer {
				h = there
				return nil
			}
			h = there.Moved(s.info.Node, s.cfg.Clock.Now())
		} else {
			h = group.Home{Since: s.cfg.Clock.Now().UTC().Truncate(time.Millisecond), Node: s.info.Node}
		}
		return structs.In(tx, groupsMap).Set([]byte(name), h.AppendTo(nil), false)
	})
	if err != nil {
		if lattice.KindOf(err) != lattice.Denied {
			s.cfg.Logger.Warn("the home of a group is not stored", "group", name, "err", err)
		}
		return h, false
	}
	s.setHome(name, h, true)
	return h, true
}

// Reaches reports whether another node can be asked now.
func (s *Store) Reaches(n lattice.NodeID) bool {
	e := s.elsewhere.Load()
	return e != nil && (*e).Reaches(n)
}

// Ask has the home of a group do what a client asks of it; ask and answer are the front
// ends' own bytes. done is called once, possibly before Ask returns, after wait at the
// latest; the function returned ends the wait early. Errors: those of Elsewhere.
func (s *Store) Ask(home lattice.NodeID, ask []byte, wait time.Duration, done func([]byte, error)) (cancel func()) {
	e := s.elsewhere.Load()
	if e == nil {
		done(nil, ErrHomeAway)
		return func() {}
	}
	return (*e).Ask(home, ask, wait, done)
}
