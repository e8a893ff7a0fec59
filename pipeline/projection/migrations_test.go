package projection

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"strings"
	"testing"
)

// TestMigrationsStay checks that migrations that were released keep their bytes.
func TestMigrationsStay(t *testing.T) {
	want := map[string]string{
		"sqlite/00001_projection.sql":   "225f0715b32cc16b",
		"postgres/00001_projection.sql": "7068822405830d9c",
		"sqlite/00002_rebuild.sql":      "968588d582bc6658",
		"postgres/00002_rebuild.sql":    "50175d5a4ce1a82c",
	}
	if err := fs.WalkDir(migrations, "migrations", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := migrations.ReadFile(path)
		if err != nil {
			return err
		}
		name, sum := strings.TrimPrefix(path, "migrations/"), sha256.Sum256(b)
		if have := hex.EncodeToString(sum[:8]); want[name] != have {
			t.Errorf("%s is %s, want %s", name, have, want[name])
		}
		delete(want, name)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for name := range want {
		t.Errorf("%s is gone", name)
	}
}
