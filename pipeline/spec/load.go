package spec

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/spec/expr"
)

// rootNames are the file that says what an application is, in order of preference.
func rootNames() []string { return []string{"app.causet", "app.yaml", "app.yml"} }

// Load reads the application in a directory. The error, of kind lattice.Invalid, lists
// every mistake; warnings are dropped.
func Load(dir fs.FS) (*App, error) {
	app, problems := Check(dir)
	if app == nil {
		return nil, lattice.E(lattice.Invalid, problems.Mistakes())
	}
	return app, nil
}

// Check reads the application in a directory. It returns everything that it found, and
// an App only when no mistake is among it.
func Check(dir fs.FS) (*App, Problems) {
	comp, err := expr.NewCompiler()
	if err != nil {
		return nil, Problems{{Text: err.Error()}}
	}
	c := &checker{dir: dir, comp: comp, left: MaxNodes, defs: map[string][]def{}, byName: map[string]map[string]Pos{}}
	c.app = &App{
		States: map[string]*State{}, Events: map[string]*Event{}, Intents: map[string]*Intent{},
		Queries: map[string]*Query{},
	}
	c.read()
	c.states()
	c.events()
	c.intents()
	c.listeners()
	c.sagas()
	c.projections()
	c.queries()
	c.unexecutedSections()
	c.problems.sort()
	if c.dropped > 0 {
		c.problems = append(c.problems, Problem{Pos: Pos{File: "."}, Text: fmt.Sprintf("%d more problems are not shown", c.dropped)})
	}
	if len(c.problems.Mistakes()) > 0 {
		return nil, c.problems
	}
	return c.app, c.problems
}

// checker is one run of Check.
type checker struct {
	dir      fs.FS
	comp     *expr.Compiler
	app      *App
	problems Problems
	dropped  int
	left     int // YAML nodes that may still come

	defs   map[string][]def          // section => what it declares
	byName map[string]map[string]Pos // section => name => where
}

// def is one declaration: a name and what it is.
type def struct {
	name string
	at   Pos
	body *node
}

func (c *checker) report(p Problem) {
	if len(c.problems) >= MaxProblems {
		c.dropped++
		return
	}
	c.problems = append(c.problems, p)
}

func (c *checker) fail(pos Pos, format string, args ...any) {
	c.report(Problem{Pos: pos, Text: fmt.Sprintf(format, args...)})
}

func (c *checker) warn(name string, pos Pos, format string, args ...any) {
	c.report(Problem{Pos: pos, Warning: name, Text: fmt.Sprintf(format, args...)})
}

// sections maps what a file may hold to the name under which it is kept.
func sections() map[string]string {
	return map[string]string{
		"state": "state", "states": "state", "events": "event", "actions": "intent", "intents": "intent",
		"projections": "projection", "queries": "query", "listeners": "listener", "sagas": "saga",
		"commit_envelopes": "commit_envelope", "decisions": "decision", "prompts": "prompt", "providers": "provider",
		"memories": "memory", "relationships": "relationship", "resources": "resource",
	}
}

// read reads the root file, and the files that it names.
func (c *checker) read() {
	root := ""
	for _, name := range rootNames() {
		if info, err := fs.Stat(c.dir, name); err == nil && info.Mode().IsRegular() {
			root = name
			break
		}
	}
	if root == "" {
		c.fail(Pos{File: "."}, "no application here: expected a file %s", strings.Join(rootNames(), " or "))
		return
	}
	files, ok := c.list()
	if !ok {
		return
	}
	h := sha256.New()
	tree := c.open(root, h)
	if tree == nil {
		return
	}
	for _, name := range c.root(root, tree, files) {
		if name == root {
			continue
		}
		if tree := c.open(name, h); tree != nil {
			c.sections(tree, name)
		}
	}
	c.app.Digest = "sha256:" + hex.EncodeToString(h.Sum(nil)[:8])
	if c.app.Version == "" {
		c.app.Version = c.app.Digest
	}
}

// list returns every file of the directory, in order; links to files, too, but not what
// is behind links to folders.
func (c *checker) list() ([]string, bool) {
	var files []string
	err := fs.WalkDir(c.dir, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.Type().IsRegular() || d.Type()&fs.ModeSymlink != 0 && !c.isFolder(name):
			if files = append(files, name); len(files) > 20*MaxFiles {
				return fmt.Errorf("more than %d files: not the directory of an application", 20*MaxFiles)
			}
		}
		return nil
	})
	if err != nil {
		c.fail(Pos{File: "."}, "cannot be read: %v", err)
		return nil, false
	}
	return files, true
}

// isFolder reports a link to a folder. Of one that leads nowhere, open says so.
func (c *checker) isFolder(name string) bool {
	info, err := fs.Stat(c.dir, name)
	return err == nil && info.IsDir()
}

// open reads and parses one file, and adds it to the hash: name and text, each behind
// its length.
func (c *checker) open(name string, h io.Writer) *node {
	f, err := c.dir.Open(name)
	if err != nil {
		c.fail(Pos{File: name}, "cannot be opened: %v", errors.Unwrap(err))
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	switch {
	case err != nil:
		c.fail(Pos{File: name}, "cannot be read: %v", err)
		return nil
	case len(text) > MaxFileBytes:
		c.fail(Pos{File: name}, "more than %d bytes", MaxFileBytes)
		return nil
	}
	for _, part := range [][]byte{[]byte(name), text} {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		_, _ = h.Write(part)
	}
	p := &parser{file: name, left: &c.left, fail: c.fail}
	return p.parse(text)
}

// root reads the file that says what the application is, and returns the files that it
// includes, in order.
func (c *checker) root(name string, tree *node, files []string) []string {
	keys := append([]string{"dsl_version", "app", "platform", "fork", "ir_version", "description", "includes"}, sortedKeys(sections())...)
	b, ok := c.block(tree, "application", keys...)
	if !ok {
		return nil
	}
	if v := b.has("dsl_version"); v != nil && v.value != int64(1) {
		c.fail(v.Pos, "dsl_version: expected 1, and this is %s", v.describe())
	}
	c.app.Name, c.app.Platform, c.app.Fork = b.text("app"), b.text("platform"), b.text("fork")
	c.app.Version = b.text("ir_version")
	if n := b.need("app", "the application's name"); n != nil {
		if strings.Contains(c.app.Name, "{{") {
			c.warn(WarnPlaceholder, n.Pos, "app: %s was not filled in", n.describe())
		}
		if c.app.TenantSchema("x") == "x" {
			c.fail(n.Pos, "app: expected a name with letters or digits, and this is %s", n.describe())
		}
	}
	if c.app.Fork == "" {
		c.app.Fork = "main"
	}
	if schema := c.app.TenantSchema(""); len(schema) > 63 {
		c.fail(b.n.Pos, "the tenant schema %s has %d bytes, more than 63: shorten platform, app or fork", schema, len(schema))
	}
	if len(c.app.Version) > 100 {
		c.fail(b.has("ir_version").Pos, "ir_version: more than 100 bytes")
	}
	c.sections(tree, name)
	return c.includes(b, files)
}

// includes returns the files of the patterns, each once. Without patterns it is all
// YAML files.
func (c *checker) includes(b block, files []string) []string {
	var found []string
	var patterns []*node
	switch n := b.has("includes"); {
	case n == nil:
		for _, f := range files {
			if slices.Contains([]string{".causet", ".yaml", ".yml"}, path.Ext(f)) {
				found = append(found, f)
			}
		}
	case n.kind == mapping:
		known := sortedKeys(sections())
		for i, k := range n.keys {
			if !slices.Contains(known, k.text) {
				c.unknown(k.Pos, "includes: unknown section", k.text, known)
			}
			patterns = append(patterns, flat(n.items[i])...)
		}
	default:
		patterns = flat(n)
	}
	for _, p := range patterns {
		s, ok := p.value.(string)
		pattern := path.Clean(s)
		switch {
		case !ok || s == "":
			c.fail(p.Pos, "includes: expected a pattern such as ./events/**/*.yaml, and this is %s", p.describe())
			continue
		case path.IsAbs(s) || pattern == ".." || strings.HasPrefix(pattern, "../"):
			c.fail(p.Pos, "includes: %q leaves the application's directory", s)
			continue
		}
		if _, err := path.Match(strings.ReplaceAll(pattern, "**", "*"), ""); err != nil {
			c.fail(p.Pos, "includes: %q is no pattern", s)
			continue
		}
		n := len(found)
		for _, f := range files {
			if matches(pattern, f) {
				found = append(found, f)
			}
		}
		if len(found) == n {
			c.warn(WarnNoSuchFiles, p.Pos, "includes: no file fits %q", s)
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	if len(found) > MaxFiles {
		c.fail(b.n.Pos, "includes: %d files, more than %d", len(found), MaxFiles)
		found = nil
	}
	return found
}

// flat returns the elements of a list, or a single value.
func flat(n *node) []*node {
	if n.kind == sequence {
		return n.items
	}
	return []*node{n}
}
