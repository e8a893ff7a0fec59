package enginetest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lattice-log/lattice/storage/disk"
)

// Load copies a directory of this machine to Dir on a file system, durably.
func Load(t TB, to disk.FS, hostDir string) {
	t.Helper()
	err := filepath.WalkDir(hostDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(hostDir, path)
		if err != nil {
			return err
		}
		name := to.PathJoin(append([]string{Dir}, strings.Split(filepath.ToSlash(rel), "/")...)...)
		if d.IsDir() {
			return disk.MkdirAll(to, name)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return disk.WriteFile(to, name, b)
	})
	if err != nil {
		t.Fatalf("load %s: %v", hostDir, err)
	}
}

// Save copies Dir to a directory of this machine, which must not exist.
func Save(t TB, from disk.FS, hostDir string) {
	t.Helper()
	if _, err := os.Stat(hostDir); err == nil {
		t.Fatalf("save %s: it exists, and what is there must stay as it is for ever", hostDir)
	}
	if err := save(from, Dir, hostDir); err != nil {
		t.Fatalf("save %s: %v", hostDir, err)
	}
}

func save(from disk.FS, dir, hostDir string) error {
	names, err := from.List(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(hostDir, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		path, host := from.PathJoin(dir, name), filepath.Join(hostDir, name)
		info, err := from.Stat(path)
		if err != nil {
			return err
		}
		if info.IsDir() {
			err = save(from, path, host)
		} else {
			var b []byte
			if b, err = disk.ReadFile(from, path); err == nil {
				err = os.WriteFile(host, b, 0o600)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
