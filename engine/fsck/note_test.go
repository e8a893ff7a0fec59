package fsck_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/authorlog"
	"github.com/lattice-log/lattice/engine/enginetest"
	"github.com/lattice-log/lattice/engine/fsck"
	"github.com/lattice-log/lattice/storage/disk"
)

// TestAuthorsCheckpoint: the checkpoint that is kept beside another's log is compared
// with the log when all that it covers is here. A signed one that does not match is
// damage; one that cannot be used is not, because nothing rests on it.
func TestAuthorsCheckpoint(t *testing.T) {
	mem := disk.NewMem()
	n := enginetest.New(t, mem)
	other := identity.FromSeed([32]byte{9})
	member, err := roster.Member{Author: other.Author(), Role: roster.Writer}.Op()
	if err != nil {
		t.Fatal(err)
	}
	grant, err := n.State().Enter(context.Background(), member)
	if err != nil {
		t.Fatal(err)
	}
	w := state.Writer{Author: other.Author(), Incarnation: 5}
	var all []sigchain.Signed
	tree := merkle.NewAppender(merkle.Range{})
	for i := range 7 {
		e := sigchain.Entry{Store: n.Info().ID, Incarnation: 5, Seq: uint64(i) + 1, Time: grant.Time + uint64(i) + 1}
		if i == 0 {
			e.Parents = []sigchain.Ref{grant.Ref()}
		} else {
			e.Prev = all[i-1].Link()
		}
		s, err := sigchain.Sign(other, e)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
		tree.Append(nil, sigchain.Leaf(s).Hash())
	}
	sign := func(change func(*merkle.Checkpoint)) []byte {
		c := merkle.Checkpoint{Origin: merkle.Origin(n.Info().ID, authorlog.Name(w)), Size: 7, Root: tree.Root(), End: 7, Incarnation: 5, Time: 1}
		change(&c)
		note, err := merkle.SignCheckpoint(other, c)
		if err != nil {
			t.Fatal(err)
		}
		return note
	}
	good := sign(func(*merkle.Checkpoint) {})
	if kept, err := n.State().StoreSpan(all, good); kept != 7 || err != nil {
		t.Fatal(kept, err)
	}
	n.Clock.Advance(time.Second)
	n.Stop()
	path := mem.PathJoin(authorlog.Start{Writer: w}.Dir(mem, mem.PathJoin(n.Cfg.Dir, "authors")), authorlog.NoteFile)
	if r := checked(t, mem); !r.Clean() {
		t.Fatalf("%+v", r.Findings)
	}
	for _, tc := range []struct {
		what string
		file []byte
		find string
		how  fsck.Severity
	}{
		{"as it was", authorlog.EncodeNote(good), "", 0},
		{"another tree", authorlog.EncodeNote(sign(func(c *merkle.Checkpoint) { c.Root[0] ^= 1 })), "root does not match", fsck.Damage},
		{"more than is here", authorlog.EncodeNote(sign(func(c *merkle.Checkpoint) { c.Size, c.End, c.Root[0] = 9, 9, 1 })), "", 0},
		{"another log", authorlog.EncodeNote(sign(func(c *merkle.Checkpoint) { c.Origin += "1" })), "author's checkpoint unusable", fsck.Note},
		{"torn", authorlog.EncodeNote(good)[:100], "author's checkpoint unusable", fsck.Note},
		{"empty", nil, "author's checkpoint unusable", fsck.Note},
	} {
		if err := disk.WriteFile(mem, path, tc.file); err != nil {
			t.Fatal(err)
		}
		r := checked(t, mem)
		found := ""
		for _, f := range r.Findings {
			if strings.HasSuffix(f.Path, authorlog.NoteFile) {
				found = f.What
				if f.Severity != tc.how {
					t.Errorf("%s: %s", tc.what, f)
				}
			}
		}
		if found != tc.find {
			t.Errorf("%s: found %q, want %q: %+v", tc.what, found, tc.find, r.Findings)
		}
	}
}
