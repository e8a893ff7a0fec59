package fsck

import (
	"strings"

	"github.com/lattice-log/lattice/storage/disk"
)

// TB is what a test gives to MustBeClean and MustBeValid.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// MustBeClean fails a test unless the directory, of a node or of one store, has
// neither damage nor anything that has to be made again: what a clean stop leaves.
func MustBeClean(t TB, fs disk.FS, dir string) Report {
	t.Helper()
	return must(t, fs, dir, Warning)
}

// MustBeValid fails a test unless the directory has no damage: what any crash may
// leave.
func MustBeValid(t TB, fs disk.FS, dir string) Report {
	t.Helper()
	return must(t, fs, dir, Damage)
}

func must(t TB, fs disk.FS, dir string, worst Severity) Report {
	t.Helper()
	check := Check
	if _, err := fs.Stat(fs.PathJoin(dir, "kv")); err == nil {
		check = CheckStore
	}
	r, err := check(fs, dir, Options{})
	if err != nil {
		t.Fatalf("fsck: %v", err)
	}
	var bad []string
	for _, f := range r.Findings {
		if f.Severity >= worst {
			bad = append(bad, f.String())
		}
	}
	if len(bad) > 0 {
		t.Fatalf("fsck: %v\n%s", r, strings.Join(bad, "\n"))
	}
	return r
}
