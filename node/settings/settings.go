// Package settings reads a node's configuration from a YAML file, the
// environment and flags, each overriding the one before, and remembers where
// every value came from.
//
// The keys are the key tags of node.Config joined with dots. In the environment
// kafka.listen is LATTICE_KAFKA_LISTEN. A name that is no key is an error that
// suggests the nearest one, in every source: a setting that is silently not
// used is worse than a node that does not start.
//
// Sizes may be written as 64MiB and times as 36h wherever the key's unit, which
// its name ends with, is bytes or ms.
package settings

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/v2"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/internal/nearest"
	"github.com/lattice-log/lattice/node"
)

// Flag is one value given on the command line.
type Flag struct {
	Name  string // as the user typed it, such as "--kafka"
	Key   string // what it sets, such as "kafka.listen"
	Value string
}

// Sources are what Load reads, the weakest first.
type Sources struct {
	File  string   // YAML; empty: none
	Env   []string // as os.Environ gives it
	Flags []Flag   // a later one overrides an earlier one
}

// Loaded is a configuration with its provenance.
type Loaded struct {
	Config   node.Config
	Settings []node.Setting // every key, in the order of node.Config
}

// Load reads all sources over node.Default and validates the result. It reports
// everything that is wrong at once, each line naming the source, and returns
// what it could read beside the error, so that it can be shown.
func Load(src Sources) (Loaded, error) {
	cfg := node.Default()
	fields := fieldsOf(&cfg)
	l := loader{merged: koanf.New("."), fields: fields, known: slices.Sorted(maps.Keys(fields.byKey)), from: map[string]string{}, defaults: map[string]string{}}
	for key, f := range fields.byKey {
		l.defaults[key] = f.String()
	}
	l.file(src.File)
	l.env(src.Env)
	l.flags(src.Flags)
	l.apply()
	if err := cfg.Validate(); err != nil {
		l.invalid(err)
	}
	out := Loaded{Config: cfg}
	for _, key := range fields.keys {
		f := fields.byKey[key]
		out.Settings = append(out.Settings, node.Setting{Key: key, Value: f.String(), Default: l.defaults[key], Source: l.source(key), Doc: f.doc})
	}
	return out, lattice.E(lattice.Invalid, errors.Join(l.errs...))
}

// loader merges the sources. from remembers the last source of each key.
type loader struct {
	merged   *koanf.Koanf
	fields   fields
	known    []string
	from     map[string]string
	defaults map[string]string
	errs     []error
}

func (l *loader) source(key string) string {
	if s, ok := l.from[key]; ok {
		return s
	}
	return "default"
}

func (l *loader) errorf(format string, args ...any) {
	l.errs = append(l.errs, fmt.Errorf(format, args...))
}

func (l *loader) file(path string) {
	if path == "" {
		return
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		l.errorf("configuration file: %w", err)
		return
	}
	k := koanf.New(".")
	if err := k.Load(source{raw: raw}, yaml.Parser()); err != nil {
		l.errorf("%s: %w", path, err)
		return
	}
	lines := linesOf(raw)
	for _, key := range sortedByLine(k.All(), lines) {
		value := k.Get(key)
		if value == nil && l.isSection(key) {
			continue // "kafka:" with nothing below it
		}
		at := fmt.Sprintf("file %s", path)
		if n := lines[key]; n > 0 {
			at = fmt.Sprintf("file %s:%d", path, n)
		}
		l.set(key, value, at, key)
	}
}

func (l *loader) env(environ []string) {
	byName := make(map[string]string, len(l.known))
	names := make([]string, 0, len(l.known))
	for _, key := range l.known {
		name := envName(key)
		byName[name] = key
		names = append(names, name)
	}
	for _, kv := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "LATTICE_") || notASetting(name) {
			continue
		}
		key, ok := byName[name]
		if !ok {
			l.unknown("env "+name, name, names)
			continue
		}
		l.set(key, value, "env "+name, key)
	}
}

// envName returns the environment's spelling of a key.
func envName(key string) string {
	return "LATTICE_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// notASetting tells names that belong to the client commands, and those that
// Kubernetes and Docker put into the environment of a container that runs
// beside a service called "lattice".
func notASetting(name string) bool {
	switch name {
	case "LATTICE_NODE", "LATTICE_CONFIG", "LATTICE_TOKEN", "LATTICE_STORE", "LATTICE_PORT":
		return true
	}
	return strings.HasPrefix(name, "LATTICE_SERVICE_") || strings.HasPrefix(name, "LATTICE_PORT_")
}

func (l *loader) flags(flags []Flag) {
	for _, f := range flags {
		l.set(f.Key, f.Value, "flag "+f.Name, f.Key)
	}
}

// set records a value of a known key, or that the key is unknown.
func (l *loader) set(key string, value any, at, shown string) {
	if _, ok := l.fields.byKey[key]; !ok {
		l.unknown(at, shown, l.known)
		return
	}
	if err := l.merged.Set(key, value); err != nil {
		l.errorf("%s: %s: %w", at, key, err)
		return
	}
	l.from[key] = at
}

func (l *loader) unknown(at, name string, known []string) {
	if best, ok := nearest.Name(name, known); ok {
		l.errorf("%s: unknown key %q; did you mean %q?", at, name, best)
		return
	}
	l.errorf("%s: unknown key %q; lattice config print lists the keys", at, name)
}

func (l *loader) isSection(key string) bool {
	return slices.ContainsFunc(l.known, func(k string) bool { return strings.HasPrefix(k, key+".") })
}

// apply writes the merged values into the configuration.
func (l *loader) apply() {
	for _, key := range l.fields.keys {
		if !l.merged.Exists(key) {
			continue
		}
		if err := l.fields.byKey[key].Set(l.merged.Get(key)); err != nil {
			l.errorf("%s: %s: %w", l.source(key), key, err)
		}
	}
}

// invalid adds what validation found, each with its source.
func (l *loader) invalid(err error) {
	for _, e := range flatten(err) {
		var f *node.FieldError
		if errors.As(e, &f) {
			l.errorf("%s: %w", l.source(f.Key), f)
			continue
		}
		l.errs = append(l.errs, e)
	}
}

// flatten returns the leaves of a joined error.
func flatten(err error) []error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if j, ok := e.(interface{ Unwrap() []error }); ok { //nolint:errorlint // looks at each level itself
			return j.Unwrap()
		}
	}
	return []error{err}
}

// source is a koanf provider of bytes in memory.
type source struct{ raw []byte }

// ReadBytes returns the bytes.
func (s source) ReadBytes() ([]byte, error) { return s.raw, nil }

// Read is not used: the bytes need a parser.
func (s source) Read() (map[string]any, error) { return nil, errors.ErrUnsupported }
