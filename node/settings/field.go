package settings

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/lattice-log/lattice/node"
)

// fields is the table of everything that can be set, read from node.Config.
type fields struct {
	keys  []string // in the order of the struct
	byKey map[string]field
}

// field is one value that can be set.
type field struct {
	key, doc string
	v        reflect.Value
}

func fieldsOf(cfg *node.Config) fields {
	f := fields{byKey: map[string]field{}}
	f.walk("", reflect.ValueOf(cfg).Elem())
	return f
}

func (f *fields) walk(prefix string, v reflect.Value) {
	t := v.Type()
	for i := range t.NumField() {
		key, ok := t.Field(i).Tag.Lookup("key")
		if !ok {
			continue
		}
		key = prefix + key
		if v.Field(i).Kind() == reflect.Struct {
			f.walk(key+".", v.Field(i))
			continue
		}
		f.keys = append(f.keys, key)
		f.byKey[key] = field{key, t.Field(i).Tag.Get("doc"), v.Field(i)}
	}
}

// String returns the value as it can be written in a file.
func (f field) String() string { return fmt.Sprint(f.v.Interface()) }

// Set stores a value that came from YAML (typed) or as text.
func (f field) Set(value any) error {
	if value == nil {
		return fmt.Errorf("has no value; write \"\" for none")
	}
	switch f.v.Kind() {
	case reflect.String:
		switch value.(type) {
		case string, bool, int, int64, uint64, float64:
			f.v.SetString(fmt.Sprint(value))
			return nil
		}
	case reflect.Bool:
		b, err := strconv.ParseBool(fmt.Sprint(value))
		if err != nil {
			return fmt.Errorf("%v is neither true nor false", value)
		}
		f.v.SetBool(b)
		return nil
	case reflect.Int, reflect.Int64:
		n, err := f.number(value)
		if err != nil {
			return err
		}
		f.v.SetInt(n)
		return nil
	}
	return fmt.Errorf("%v (%T) is no %s", value, value, f.v.Kind())
}

// number reads an integer, a size ("64MiB") for keys that end with bytes, or a
// duration ("36h") for keys that end with ms.
func (f field) number(value any) (int64, error) {
	text := strings.TrimSpace(fmt.Sprint(value))
	if n, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64); err == nil {
		return n, nil
	}
	switch {
	case strings.HasSuffix(f.key, "_ms"):
		d, err := time.ParseDuration(text)
		if err != nil || d%time.Millisecond != 0 {
			return 0, fmt.Errorf("%q is neither a number of milliseconds nor a duration such as 36h", text)
		}
		return d.Milliseconds(), nil
	case strings.HasSuffix(f.key, "_bytes"):
		return parseSize(text)
	}
	return 0, fmt.Errorf("%q is no whole number", text)
}

// parseSize reads "64MiB" and the like: KiB, MiB, GiB, TiB, or KB, MB, GB, TB.
func parseSize(text string) (int64, error) {
	units := []struct {
		name string
		size float64
	}{
		{"KiB", 1 << 10},
		{"MiB", 1 << 20},
		{"GiB", 1 << 30},
		{"TiB", 1 << 40},
		{"KB", 1e3},
		{"MB", 1e6},
		{"GB", 1e9},
		{"TB", 1e12},
		{"B", 1},
	}
	for _, u := range units {
		head, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(head), 64)
		if size := n * u.size; err == nil && size == math.Trunc(size) && math.Abs(size) < 1<<62 {
			return int64(size), nil
		}
		break
	}
	return 0, fmt.Errorf("%q is neither a number of bytes nor a size such as 64MiB", text)
}

// linesOf returns the line of each key of a YAML mapping, keys joined with dots.
func linesOf(raw []byte) map[string]int {
	lines := map[string]int{}
	var doc yamlv3.Node
	if yamlv3.Unmarshal(raw, &doc) != nil || len(doc.Content) == 0 {
		return lines
	}
	var walk func(prefix string, n *yamlv3.Node)
	walk = func(prefix string, n *yamlv3.Node) {
		if n.Kind != yamlv3.MappingNode {
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := prefix + n.Content[i].Value
			lines[key] = n.Content[i].Line
			walk(key+".", n.Content[i+1])
		}
	}
	walk("", doc.Content[0])
	return lines
}

// sortedByLine returns the keys of values in the order of the file.
func sortedByLine(values map[string]any, lines map[string]int) []string {
	keys := make([]string, 0, len(values))
	for k := range values {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if d := lines[a] - lines[b]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return keys
}
