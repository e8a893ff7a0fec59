package keyval

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// removeOp removes an author, whose entries here still count.
func (n *node) removeOp(author byte) sigchain.Op {
	n.t.Helper()
	rm := roster.Remove{Author: keyOf(author).Author()}
	for _, c := range n.AuthorChains(rm.Author) {
		rm.Cut = append(rm.Cut, c.Tip)
	}
	op, err := rm.Op()
	n.must(err)
	return op
}

// grantTo has the node make an author what it says.
func (n *node) grantTo(author byte, r roster.Role) {
	n.t.Helper()
	op, err := roster.Member{Author: keyOf(author).Author(), Role: r}.Op()
	n.must(err)
	_, err = n.Enter(context.Background(), op)
	n.must(err)
}

// wantGone checks that a node writes nothing and reads what it has.
func (n *node) wantGone(want bool) {
	n.t.Helper()
	err := n.update(func(tx *Tx) error { return set(tx, "new", "1") })
	if gone := lattice.KindOf(err) == lattice.Denied; gone != want || (err != nil) != want {
		n.t.Fatalf("a write: %v", err)
	}
	if says := n.Status().Dismissed != ""; says != want || (n.Gone() != nil) != want {
		n.t.Fatalf("status says %q, Gone %v", n.Status().Dismissed, n.Gone())
	}
	if n.get("k") != "1" {
		n.t.Fatal("what is here cannot be read")
	}
}

// TestRemovedByTheFold: a node that has the entry which removed it writes nothing more.
func TestRemovedByTheFold(t *testing.T) {
	clock := tick.NewManual(testEpoch)
	a, b := start(t, options(disk.NewMem(), 0, 2, clock)), start(t, options(disk.NewMem(), 1, 3, clock))
	a.admit(1)
	a.set("k", "1")
	rng := rand.New(rand.NewPCG(1, 1))
	b.receive(rng, a.entries())
	b.wantGone(false)
	a.receive(rng, b.entries())
	_, err := a.Enter(context.Background(), a.removeOp(1))
	a.must(err)
	b.receive(rng, a.entries())
	b.wantGone(true)
	if b.get("new") == "" {
		t.Error("what it wrote while it was a member cannot be read")
	}
}

// TestShownToBeRemoved: a node that gets no more entries is shown the one that removed it,
// believes what is proven, and keeps it over a restart.
func TestShownToBeRemoved(t *testing.T) {
	clock := tick.NewManual(testEpoch)
	rng := rand.New(rand.NewPCG(1, 1))
	fsA, fsB := disk.NewMem(), disk.NewMem()
	a, b, c := start(t, options(fsA, 0, 2, clock)), start(t, options(fsB, 1, 3, clock)), start(t, options(disk.NewMem(), 2, 4, clock))
	a.admit(1)
	a.grantTo(2, roster.Admin)
	a.grantTo(3, roster.Reader)
	a.set("k", "1")
	for _, n := range []*node{b, c} {
		n.receive(rng, a.entries())
	}
	if _, err := a.Notice(keyOf(1).Author()); lattice.KindOf(err) != lattice.NotFound {
		t.Fatalf("a member's notice: %v", err)
	}
	_, err := c.Enter(context.Background(), c.removeOp(1)) // by an admin, whom the owner made one
	c.must(err)
	notice, err := c.Notice(keyOf(1).Author())
	c.must(err)
	if _, err := c.Notice(keyOf(9).Author()); lattice.KindOf(err) != lattice.NotFound {
		t.Fatalf("a stranger's notice: %v", err)
	}
	_, err = c.Enter(context.Background(), c.removeOp(9))
	c.must(err)
	if _, err := c.Notice(keyOf(9).Author()); lattice.KindOf(err) != lattice.NotFound {
		t.Fatalf("the notice of a stranger that was removed: %v", err)
	}
	_, err = c.Enter(context.Background(), c.removeOp(3))
	c.must(err)
	another, err := c.Notice(keyOf(3).Author())
	c.must(err)
	forged := func(change func(all []sigchain.Signed) []sigchain.Signed) []byte {
		t.Helper()
		all := []sigchain.Signed{}
		for _, ref := range c.grounds(1) {
			s, err := c.logs.get(writerOf(ref)).Read(ref.Seq)
			c.must(err)
			all = append(all, s)
		}
		out, err := fold.EncodeNotice(change(all))
		c.must(err)
		return out
	}
	op, err := roster.Remove{Author: keyOf(1).Author()}.Op()
	c.must(err)
	for what, x := range map[string][]byte{
		"nothing":           nil,
		"half of one":       notice[:len(notice)-3],
		"more than one":     append(append([]byte{}, notice...), 0),
		"of another member": another,
		"without the grant": forged(func(all []sigchain.Signed) []sigchain.Signed { return all[:1] }),
		"in another order":  forged(func(all []sigchain.Signed) []sigchain.Signed { return []sigchain.Signed{all[1], all[0]} }),
		"by a stranger": forged(func(all []sigchain.Signed) []sigchain.Signed {
			return []sigchain.Signed{foreign(t, 9, sigchain.Signed{}, 5, nil, op), all[1]}
		}),
		"by itself": forged(func(all []sigchain.Signed) []sigchain.Signed {
			return []sigchain.Signed{foreign(t, 1, sigchain.Signed{}, 5, nil, op), all[1]}
		}),
		"with a bad signature": func() []byte { x := append([]byte{}, notice...); x[len(x)-1] ^= 1; return x }(),
	} {
		if err := b.Dismiss(x); err == nil || !errors.Is(err, fold.ErrNotice) {
			t.Errorf("%s: %v", what, err)
		}
	}
	b.wantGone(false)
	told := false
	defer b.Follow(Follower{Roster: func() { told = true }})()
	b.must(b.Dismiss(notice))
	b.must(b.Dismiss(notice))
	b.wantGone(true)
	if !told {
		t.Error("followers do not hear of it")
	}
	b.close()
	b = start(t, options(fsB, 1, 5, clock))
	b.wantGone(true)

	// It is admitted again: the entries come, and the fold decides.
	refs := c.grounds(1)[:1]
	back, err := roster.Return{Member: roster.Member{Author: keyOf(1).Author(), Role: roster.Writer}, Lifts: refs}.Op()
	c.must(err)
	_, err = c.Enter(context.Background(), back)
	c.must(err)
	b.receive(rng, c.entries())
	b.wantGone(false)
	b.close()
	if _, err := fsB.Stat(b.noticePath()); err != nil {
		t.Fatalf("the file goes with the next start only: %v", err)
	}
	b = start(t, options(fsB, 1, 6, clock))
	b.wantGone(false)
	if _, err := fsB.Stat(b.noticePath()); !disk.IsNotExist(err) {
		t.Errorf("the notice stays: %v", err)
	}
}

// TestRefutedNotice: a removal by who was removed itself, below it, by a senior, is not believed.
func TestRefutedNotice(t *testing.T) {
	clock := tick.NewManual(testEpoch)
	rng := rand.New(rand.NewPCG(1, 1))
	a, b, c := start(t, options(disk.NewMem(), 0, 2, clock)), start(t, options(disk.NewMem(), 1, 3, clock)), start(t, options(disk.NewMem(), 2, 4, clock))
	a.admit(1)
	a.grantTo(2, roster.Admin)
	a.set("k", "1")
	c.receive(rng, a.entries())
	_, err := c.Enter(context.Background(), c.removeOp(1))
	c.must(err)
	notice, err := c.Notice(keyOf(1).Author())
	c.must(err)
	_, err = a.Enter(context.Background(), a.removeOp(2))
	a.must(err)
	b.receive(rng, a.entries())
	if err := b.Dismiss(notice); !errors.Is(err, fold.ErrNotice) {
		t.Errorf("a removal that does not stand: %v", err)
	}
	b.wantGone(false)
}

func (n *node) grounds(author byte) (refs []sigchain.Ref) {
	n.ReadRoster(func(r *roster.Roster) { refs = r.Grounds(keyOf(author).Author()) })
	return refs
}
