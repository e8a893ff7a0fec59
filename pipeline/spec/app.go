package spec

import (
	"slices"
	"strings"

	"github.com/lattice-log/lattice/pipeline/spec/expr"
)

// App is a checked application. It never changes; many goroutines can use it.
type App struct {
	// Name, Platform and Fork are what the tenant schema is made of.
	Name, Platform, Fork string
	// Version names this text of the application in the events that it writes
	// (irVersion): the file's own ir_version, or "sha256:" and 16 digits of its files' hash.
	Version string
	// Digest is "sha256:" and 16 digits of the files' hash, whatever Version says.
	Digest string

	States      map[string]*State
	Events      map[string]*Event
	Intents     map[string]*Intent
	Projections []*Projection // in order of their names
	Tables      []*Table      // in order of their names
	Queries     map[string]*Query
}

// TenantSchema returns the name of the schema that holds a fork's tables:
// platform_app_fork, in lower case, with one underscore for what is no letter or digit,
// however much of it there is. An empty fork is the application's own.
func (a *App) TenantSchema(fork string) string {
	if fork == "" {
		fork = a.Fork
	}
	var parts []string
	for _, p := range []string{a.Platform, a.Name, fork} {
		if p = identifier(p); p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, "_")
}

// identifier leaves letters and digits. It never has two underscores side by side: those
// stand between schema and table where a database has no schemas.
func identifier(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(s), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}), "_")
}

// ProjectionsOf returns the projections that an event changes, in order of their names.
func (a *App) ProjectionsOf(event string) []*Projection {
	var all []*Projection
	for _, p := range a.Projections {
		if slices.Contains(p.Sources, event) {
			all = append(all, p)
		}
	}
	return all
}

// Projection returns a projection by its name, or nil.
func (a *App) Projection(name string) *Projection {
	i := slices.IndexFunc(a.Projections, func(p *Projection) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return a.Projections[i]
}

// Lookup reads the state of another entity for an expression; see expr.Lookup.
type Lookup = expr.Lookup

// State is a kind of entity.
type State struct {
	Name string
	// Stream is the runtime's name for it: the state's, and _stream.
	Stream string
	// Key is the member that holds the entity's id.
	Key    string
	Fields []StateField

	shape *expr.Shape
	at    Pos
}

// StateField is one field of an entity's state, by its path.
type StateField struct {
	Path    []string
	Type    Type
	Default any
}

// streamOf returns the stream of a state.
func streamOf(state string) string { return state + "_stream" }

// New returns the state of an entity that nobody wrote yet: its defaults, and its id.
func (s *State) New(id string) map[string]any {
	m := map[string]any{}
	s.complete(m, id)
	return m
}

// complete adds what is missing to a state, fields that a newer version declares, and
// makes of numbers what their fields say: JSON does not tell 5.0 from 5.
func (s *State) complete(m map[string]any, id string) {
	if s.Key != "" {
		if v, ok := m[s.Key]; !ok || v == "" {
			m[s.Key] = id
		}
	}
	for _, f := range s.Fields {
		if f.Path[0] == s.Key {
			continue
		}
		v, there := at(m, f.Path)
		switch {
		case !there && f.Default != nil:
			_ = put(m, f.Path, cloned(f.Default)) // below what is no object now, there is nothing
		case there:
			if converted, err := f.Type.Convert(v); err == nil {
				_ = put(m, f.Path, converted)
			}
		}
	}
}
