package lattice_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// layers is the architecture. The key is the first element of a package path
// ("." is the root package); the value is what it may import from this module,
// besides its own siblings: a layer, or one path inside it. Changing a row is
// an architecture decision: link the ADR in the commit that does it.
var layers = map[string][]string{
	".":        {},
	"internal": {"."},
	"proto":    {},
	"core":     {".", "internal"},
	"storage":  {".", "internal", "core"},
	"engine":   {".", "internal", "core", "storage"},
	"mesh":     {".", "internal", "core"},
	"front":    {".", "internal", "core", "engine", "proto"},
	"node":     {".", "internal", "core", "storage", "engine", "mesh", "front"},
	"pipeline": {".", "internal", "proto"},
	"client":   {".", "core", "proto"},
	"app":      {".", "client", "core", "proto"},
	"sim":      {".", "internal", "core", "storage", "engine", "mesh", "front", "node"},
	"cmd":      {".", "internal", "core", "engine/fsck", "node", "pipeline", "client", "app"},
}

// apart lists layers whose packages may not import each other.
var apart = []string{"front", "app"}

// owners maps a third-party import prefix to the only places that may use it.
var owners = map[string][]string{
	"github.com/cockroachdb/pebble":      {"storage", "sim", "internal/testkit"},
	"github.com/libp2p/":                 {"mesh/p2p"},
	"github.com/multiformats/":           {"mesh/p2p"}, // libp2p's addresses: ADR 22
	"github.com/twmb/franz-go/pkg/kgo":   {"pipeline", "app/bench", "internal/testkit"},
	"github.com/twmb/franz-go/pkg/kadm":  {"pipeline", "app/bench", "internal/testkit"},
	"github.com/twmb/franz-go/pkg/kfake": {"internal/testkit"},
	"connectrpc.com/":                    {"front/api", "client", "proto", "pipeline"},
	"google.golang.org/grpc":             {},
	"github.com/jackc/pgx":               {"pipeline/sqldb"},
	"modernc.org/sqlite":                 {"pipeline/sqldb"},
	"cel.dev/":                           {"pipeline"},
	"github.com/a-h/templ":               {"app/console"},
	"github.com/spf13/cobra":             {"cmd"},
}

// pure packages decide; they never do. Time, randomness and I/O are arguments.
var (
	pure          = []string{"core", "mesh/ballot", "mesh/batches", "mesh/forward", "mesh/lag", "mesh/reconcile", "mesh/wire", "pipeline/gateway/flow", "pipeline/gateway/grant"} // batches: ADR 29, forward: ADR 30
	impureImports = []string{
		"context", "crypto/rand", "log", "math/rand", "net", "os", "path/filepath", "sync", "syscall",
		"golang.org/x/sys", "golang.org/x/sync",
	}
	// clockless packages take the clock from their caller, so that sim can drive them.
	clockless = []string{"core", "storage", "engine", "mesh/ballot", "mesh/batches", "mesh/forward", "mesh/lag", "mesh/reconcile", "mesh/wire"}
	wallClock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}
	vague     = []string{"util", "utils", "common", "helpers", "types", "models", "misc"}
)

// TestArchitecture reads the files itself, instead of asking "go list", so that
// the test cache knows what the result depends on.
func TestArchitecture(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(mod), "\n")
	module, ok := strings.CutPrefix(strings.TrimSpace(line), "module ")
	if !ok {
		t.Fatalf("go.mod starts with %q, want the module line", line)
	}
	docs := map[string]int{} // package dir => files with a package comment
	err = filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != "." && notOurs(file, d.Name()):
			return filepath.SkipDir
		case d.IsDir() && slices.Contains(vague, d.Name()):
			t.Errorf("%s: the name says nothing", file)
		case filepath.Ext(file) == ".go" && !strings.HasSuffix(file, "_test.go"):
			checkFile(t, module, file, docs)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, n := range docs {
		if n != 1 {
			t.Errorf("%s: %d files have a package comment, want 1", dir, n)
		}
	}
}

func checkFile(t *testing.T, module, file string, docs map[string]int) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.ToSlash(filepath.Dir(file))
	layer, _, _ := strings.Cut(dir, "/")
	allowed, known := layers[layer]
	if !known {
		t.Errorf("%s: %q is not in the layer table", file, layer)
	}
	docs[dir] += 0
	if f.Doc != nil && !ast.IsGenerated(f) {
		docs[dir]++
	}
	timeName := "time"
	for _, spec := range f.Imports {
		imp, _ := strconv.Unquote(spec.Path.Value)
		if imp == "time" && spec.Name != nil {
			timeName = spec.Name.Name
		}
		if dep, ours := strings.CutPrefix(imp+"/", module+"/"); ours {
			dep = path.Clean(dep)
			switch {
			case !within(dep, []string{layer}):
				if !within(dep, allowed) {
					t.Errorf("%s: %q must not import %s; it may import %q", file, layer, imp, allowed)
				}
			case slices.Contains(apart, layer) && second(dep) != second(dir):
				t.Errorf("%s: packages of %q do not import each other", file, layer)
			}
		}
		for prefix, own := range owners {
			if strings.HasPrefix(imp, prefix) && !within(dir, own) {
				t.Errorf("%s: %s belongs to %q", file, imp, own)
			}
		}
		if within(dir, pure) && within(imp, impureImports) {
			t.Errorf("%s: a pure package imports %q", file, imp)
		}
	}
	if !within(dir, clockless) {
		return
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.ChanType:
			if !within(dir, pure) {
				return true
			}
			t.Errorf("%s: concurrency in a pure package", fset.Position(n.Pos()))
		case *ast.SelectorExpr:
			if id, ok := n.X.(*ast.Ident); ok && id.Name == timeName && slices.Contains(wallClock, n.Sel.Name) {
				t.Errorf("%s: wall clock; take it from the caller", fset.Position(n.Pos()))
			}
		}
		return true
	})
}

// notOurs reports folders that hold no code of this module.
func notOurs(dir, name string) bool {
	if name == "testdata" || name == "node_modules" || strings.HasPrefix(name, ".") || dir == "bin" { // bin is made
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod")) // a module of its own, such as a client's test driver
	return err == nil
}

// second returns the second element of a package path.
func second(dir string) string {
	_, rest, _ := strings.Cut(dir, "/")
	rest, _, _ = strings.Cut(rest, "/")
	return rest
}

func within(dir string, roots []string) bool {
	return slices.ContainsFunc(roots, func(r string) bool {
		return dir == r || strings.HasPrefix(dir, r+"/")
	})
}
