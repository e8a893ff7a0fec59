package store

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/storage/disk"
)

// fork makes a fork of f and opens it.
func (f *fixture) fork(name string) *fixture {
	f.t.Helper()
	id, err := f.MakeFork(context.Background(), name, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	cfg := f.cfg
	cfg.Dir = "/data/stores/" + id.String()
	k := &fixture{t: f.t, cfg: cfg}
	k.open()
	if k.Info().ID != id || k.Info().Name != name {
		f.t.Fatalf("the fork is %s %q, want %s %q", k.Info().ID, k.Info().Name, id, name)
	}
	return k
}

// back brings a fork back until nothing is left that can be, and sums up.
func (f *fixture) back(origin *fixture) (sum Brought) {
	f.t.Helper()
	for range 1000 {
		b, err := f.BringBack(context.Background(), origin.Store)
		if err != nil {
			f.t.Fatal(err)
		}
		sum.Entries += b.Entries
		sum.Partitions = append(sum.Partitions, b.Partitions...)
		if b.Done {
			return sum
		}
	}
	f.t.Fatal("bringing a fork back does not end")
	return sum
}

func (f *fixture) do(do func(*structs.Map) error) {
	f.t.Helper()
	tk, err := f.State().Update(func(tx *keyval.Tx) error { return do(structs.In(tx, "0")) })
	if err == nil {
		err = tk.Wait(context.Background())
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) put(key, value string) {
	f.t.Helper()
	f.do(func(m *structs.Map) error { return m.Set([]byte(key), []byte(value), false) })
}

// heads returns the values of a key, ascending.
func (f *fixture) heads(key string) (all []string) {
	f.t.Helper()
	tk, err := f.State().View(func(tx *keyval.Tx) error {
		heads, _, err := structs.In(tx, "0").Heads([]byte(key), 100)
		for _, h := range heads {
			all = append(all, string(h.Value))
		}
		return err
	})
	if err == nil {
		err = tk.Wait(context.Background())
	}
	if err != nil {
		f.t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

func (f *fixture) root() lattice.Hash {
	f.t.Helper()
	r, err := f.State().Root(context.Background())
	if err != nil {
		f.t.Fatal(err)
	}
	return r.Hash
}

func (f *fixture) send(t Topic, n int32, vals ...string) {
	f.t.Helper()
	if _, err := produce(f.part(t, n), batchOf(1, vals...)); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) want(t Topic, n int32, want ...string) {
	f.t.Helper()
	if got := values(f.t, f.part(t, n), f.part(t, n).Bounds().Start); !slices.Equal(got, want) {
		f.t.Errorf("%s: partition %d has %q, want %q", f.Info().Name, n, got, want)
	}
}

func (f *fixture) wantHeads(key string, want ...string) {
	f.t.Helper()
	if got := f.heads(key); !slices.Equal(got, want) {
		f.t.Errorf("%s: %s has the heads %q, want %q", f.Info().Name, key, got, want)
	}
}

func TestForkIsACopyThatNobodySees(t *testing.T) {
	f := newFixture(t, disk.NewMem())
	top := f.topic("t", 2, nil)
	f.put("a", "1")
	f.put("b", "1")
	f.send(top, 0, "x", "y")
	k := f.fork("try")
	if o, ok := k.Fork(); !ok || o.Store != f.Info().ID || o.Home != f.Info().ID {
		t.Errorf("it is a fork of %+v, %v", o, ok)
	}
	if k.root() != f.root() {
		t.Error("the fork has another state than its origin")
	}
	k.want(top, 0, "x", "y")
	k.put("a", "2")
	k.send(top, 0, "z")
	f.send(top, 0, "o")
	f.put("b", "2")
	k.wantHeads("a", "2")
	k.wantHeads("b", "1")
	k.want(top, 0, "x", "y", "z")
	f.wantHeads("a", "1")
	f.wantHeads("b", "2")
	f.want(top, 0, "x", "y", "o")
	f.restart()
	k.restart()
	k.wantHeads("a", "2")
	k.want(top, 0, "x", "y", "z")
	f.wantHeads("a", "1")
	f.want(top, 0, "x", "y", "o")
}

func TestForkComesBack(t *testing.T) {
	f := newFixture(t, disk.NewMem())
	top := f.topic("t", 3, nil)
	f.put("both", "0")
	f.put("fork", "0")
	f.put("origin", "0")
	f.send(top, 0, "x")
	f.send(top, 1, "x")
	k := f.fork("try")
	k.put("both", "k")
	f.put("both", "f")
	k.put("fork", "k")
	f.put("origin", "f")
	k.send(top, 0, "k1", "k2") // the origin does not move
	k.send(top, 1, "k1", "k2") // it does
	f.send(top, 1, "f")
	own := k.topic("own", 1, nil)
	k.send(own, 0, "new")

	sum := k.back(f)
	f.wantHeads("both", "f", "k")
	f.wantHeads("fork", "k")
	f.wantHeads("origin", "f")
	f.want(top, 0, "x", "k1", "k2")
	f.want(top, 1, "x", "f", "k1", "k2")
	f.want(own, 0, "new")
	same, moved := int64(0), int64(0)
	for _, p := range sum.Partitions {
		same, moved = same+p.Same, moved+p.Moved
		if p.Left != 0 || p.Why != "" {
			t.Errorf("%+v", p)
		}
	}
	if same != 3 || moved != 2 {
		t.Errorf("%d records kept their offsets, %d did not, want 3 and 2", same, moved)
	}
	for _, r := range records(t, f.part(top, 1), 2) {
		if len(r.Headers) != 1 || r.Headers[0].Key != "lattice.fork" {
			t.Fatalf("record %d has the headers %v", r.Offset, r.Headers)
		}
		if id, at, err := ParseForkHeader(r.Headers[0].Value); err != nil || id != k.Info().ID || at != r.Offset-1 {
			t.Errorf("record %d says that it was at %s, %d, %v", r.Offset, id, at, err)
		}
	}
	for _, r := range records(t, f.part(top, 0), 0) {
		if len(r.Headers) != 0 {
			t.Errorf("record %d has headers", r.Offset)
		}
	}
	// Again, there is nothing.
	root := f.root()
	if sum := k.back(f); sum.Entries != 0 || len(sum.Partitions) != 0 || f.root() != root {
		t.Errorf("the second time it brings %+v", sum)
	}
	// And on from there, over restarts of both.
	f.restart()
	k.restart()
	f.wantHeads("both", "f", "k")
	k.put("later", "k")
	k.send(top, 0, "k3")
	f.put("both", "merged")
	if sum := k.back(f); sum.Entries == 0 {
		t.Errorf("it brings %+v", sum)
	}
	f.wantHeads("later", "k")
	f.wantHeads("both", "merged")
	f.want(top, 0, "x", "k1", "k2", "k3")
	f.restart()
	f.wantHeads("later", "k")
	f.put("after", "f")
	f.wantHeads("after", "f")
}

func TestForkRefuses(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, disk.NewMem())
	top := f.topic("t", 1, nil)
	k := f.fork("try")
	own := k.topic("own", 1, nil)
	gone := k.topic("gone", 1, nil)
	_, _, err := k.Invite(ctx, roster.Writer, 1e12)
	if !errors.Is(err, ErrFork) {
		t.Errorf("invite: %v", err)
	}
	if err := k.DeleteTopic(ctx, top.ID); !errors.Is(err, ErrFork) {
		t.Errorf("delete the origin's topic: %v", err)
	}
	if err := k.Lead(ctx, lattice.TopicPartition{Topic: top.ID}, f.Info().Node, 0); !errors.Is(err, ErrFork) {
		t.Errorf("lead: %v", err)
	}
	if _, err := f.BringBack(ctx, k.Store); !errors.Is(err, ErrNoFork) {
		t.Errorf("bring back what is no fork: %v", err)
	}
	if err := k.DeleteTopic(ctx, gone.ID); err != nil {
		t.Errorf("delete a topic of its own: %v", err)
	}
	k.send(own, 0, "x")
	k.back(f)
	if err := k.DeleteTopic(ctx, own.ID); !errors.Is(err, ErrFork) {
		t.Errorf("delete a topic that the origin has now: %v", err)
	}
	if err := f.DeleteTopic(ctx, top.ID); err != nil {
		t.Fatal(err)
	}
	k.send(top, 0, "stays")
	sum := k.back(f)
	if len(sum.Partitions) != 1 || sum.Partitions[0].Left != 1 || sum.Partitions[0].Why == "" {
		t.Errorf("of a topic that was deleted in the origin it brings %+v", sum.Partitions)
	}
	k.want(top, 0, "stays")
}

func TestForkHasOffsetsOfItsOwn(t *testing.T) {
	f := newFixture(t, disk.NewMem())
	top := f.topic("t", 1, nil)
	f.send(top, 0, "a", "b", "c", "d")
	key := group.Key{Group: "g", TopicPartition: lattice.TopicPartition{Topic: top.ID}}
	commit := func(f *fixture, offset int64) {
		t.Helper()
		v := group.Value{Offset: offset, LeaderEpoch: -1, Term: -1, Time: f.cfg.Clock.Now()}
		if err := f.cat.Apply([]group.Change{{Key: key, Value: &v}}); err != nil {
			t.Fatal(err)
		}
	}
	at := func(f *fixture) int64 {
		t.Helper()
		v, _, ok, err := f.cat.(*folded).Read(key)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		return v.Offset
	}
	commit(f, 1)
	k := f.fork("try")
	commit(k, 3)
	commit(f, 2)
	k.restart()
	k.back(f)
	if at(f) != 2 || at(k) != 3 {
		t.Errorf("the origin is at %d, the fork at %d, want 2 and 3", at(f), at(k))
	}
}

func ExampleParseForkHeader() {
	_, at, err := ParseForkHeader([]byte("0f00000000000000000000000000000000000000000000000000000000000000:42"))
	fmt.Println(at, err)
	// Output: 42 <nil>
}

// TestGoldenBrought pins the record of how far a fork is brought back.
func TestGoldenBrought(t *testing.T) {
	b := broughtTo{next: 1, from: 2, producer: 3}
	const want = "01000000000000000100000000000000020000000000000003"
	if got := hex.EncodeToString(b.appendTo(nil)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, bad := range []broughtTo{{-1, -1, -1}, {1, -2, -1}, {1, 1, -1}, {1, -1, 1}} {
		if _, err := parseBrought(bad.appendTo(nil)); lattice.KindOf(err) != lattice.Corrupt {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func FuzzBrought(f *testing.F) {
	f.Add(broughtTo{1, 2, 3}.appendTo(nil))
	f.Add(broughtTo{1, -1, -1}.appendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := parseBrought(b)
		if err == nil && !bytes.Equal(x.appendTo(nil), b) {
			t.Fatal("it encodes otherwise")
		}
	})
}
