package keyfile

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/storage/disk"
)

func TestCreateAndLoad(t *testing.T) {
	name := filepath.Join(t.TempDir(), "identity.key")
	if _, err := Load(disk.OS(), name); lattice.KindOf(err) != lattice.NotFound {
		t.Fatalf("no file: %v", err)
	}
	key := identity.FromSeed([32]byte{1})
	if err := Create(disk.OS(), name, key); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	if got, err := Load(disk.OS(), name); err != nil || got.Author() != key.Author() {
		t.Fatalf("load: %v, %v", got, err)
	}
	if err := Create(disk.OS(), name, identity.FromSeed([32]byte{2})); lattice.KindOf(err) != lattice.Exists {
		t.Fatalf("create again: %v", err)
	}
	if got, err := Load(disk.OS(), name); err != nil || got.Author() != key.Author() {
		t.Fatalf("the key was replaced: %v, %v", got, err)
	}
	if names, _ := os.ReadDir(filepath.Dir(name)); len(names) != 1 {
		t.Errorf("left over: %v", names)
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	text := identity.FromSeed([32]byte{1}).KeyFile()
	for _, c := range []struct {
		name string
		mode os.FileMode
		text []byte
		want lattice.Kind
	}{
		{"group-reads", 0o640, text, lattice.Denied},
		{"others-read", 0o604, text, lattice.Denied},
		{"others-write", 0o602, text, lattice.Denied},
		{"empty", 0o600, nil, lattice.Corrupt},
		{"cut", 0o600, text[:len(text)-3], lattice.Corrupt},
	} {
		name := filepath.Join(dir, c.name)
		if err := os.WriteFile(name, c.text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, c.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(disk.OS(), name); lattice.KindOf(err) != c.want {
			t.Errorf("%s: %v, want kind %v", c.name, err, c.want)
		}
	}
	if err := os.Symlink("empty", filepath.Join(dir, "dir")); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(disk.OS(), dir); lattice.KindOf(err) != lattice.Denied {
		t.Errorf("a directory: %v", err)
	}
}

// TestFaults: whatever step of Create fails, applied or not, and whatever a crash
// then takes, the file is the whole key or is not there; and it is there if Create
// reported success.
func TestFaults(t *testing.T) {
	key := identity.FromSeed([32]byte{7})
	for step := range 20 {
		for _, kept := range []bool{false, true} {
			for _, percent := range []int{0, 50, 100} {
				fs := disk.NewMem()
				n := 0
				fs.SetFault(func(op disk.Op) *disk.Fault {
					if !op.Kind.Changes() {
						return nil
					}
					if n++; n == step+1 {
						return &disk.Fault{Kept: kept}
					}
					return nil
				})
				created := Create(fs, "/identity.key", key)
				if created == nil && n > step {
					t.Fatalf("step %d failed and Create did not", step)
				}
				fs.SetFault(nil)
				after := fs.CrashClone(percent, rand.New(rand.NewPCG(uint64(step), 0)))
				got, err := Load(after, "/identity.key")
				switch {
				case err == nil && got.Author() != key.Author():
					t.Fatalf("step %d: another key", step)
				case err != nil && lattice.KindOf(err) != lattice.NotFound, err != nil && created == nil:
					t.Fatalf("step %d, kept %v, %d%%: create: %v, load: %v", step, kept, percent, created, err)
				}
				if err != nil {
					if err := Create(after, "/identity.key", key); err != nil {
						t.Fatalf("step %d: create after the crash: %v", step, err)
					}
				}
			}
		}
	}
}

func TestCreateClearsNothingOfTheKey(t *testing.T) {
	key := identity.FromSeed([32]byte{3})
	before := key.KeyFile()
	if err := Create(disk.NewMem(), "/k", key); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, key.KeyFile()) {
		t.Fatal("the key changed")
	}
}
