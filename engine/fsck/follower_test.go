package fsck_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/engine/enginetest"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/keyfile"
)

// TestFollowerChecks: the followers of a node that joined pass: one that is catching up,
// one that has all, and one that began where its leader's log begins. A changed batch
// does not.
func TestFollowerChecks(t *testing.T) {
	a := enginetest.New(t, disk.NewMem())
	topic := a.Topic("orders", 3, "segment.bytes=4096")
	for p := range int32(3) {
		for i := range 100 {
			a.Put(a.Part(topic, p), record.None, fmt.Sprint(i))
		}
	}
	_, err := a.Part(topic, 2).Truncate(t.Context(), 60)
	must(t, err)

	mem, key := disk.NewMem(), identity.FromSeed([32]byte{9})
	member, err := roster.Member{Author: key.Author(), Role: roster.Writer}.Op()
	must(t, err)
	_, err = a.State().Enter(t.Context(), member)
	must(t, err)
	stores := mem.PathJoin(enginetest.Dir, "stores")
	must(t, disk.MkdirAll(mem, stores))
	must(t, keyfile.Create(mem, mem.PathJoin(enginetest.Dir, "identity.key"), key))
	logger := slog.New(slog.DiscardHandler)
	_, err = store.Join(mem, stores, a.Genesis(), a.Info().Node, logger)
	must(t, err)
	b, err := store.Open(store.Config{
		FS: mem, Dir: mem.PathJoin(stores, a.Info().ID.String()), Key: key, Clock: a.Clock, Rand: rand.NewChaCha8([32]byte{8}), Logger: logger,
	})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	for _, l := range a.State().LogStates() {
		s, err := a.State().ReadSpan(l.Writer, 0, l.Tip.Seq, 1<<20)
		must(t, err)
		var entries []sigchain.Signed
		for _, raw := range s.Entries {
			e, err := sigchain.Parse(raw)
			must(t, err)
			entries = append(entries, e)
		}
		if kept, err := b.State().StoreSpan(entries, nil); err != nil || kept != len(entries) {
			t.Fatal(kept, err)
		}
	}
	for {
		if _, ok := b.Topic("orders"); ok {
			break
		}
		time.Sleep(time.Millisecond)
	}
	pull := func(p int32, times int) {
		from, to := a.Part(topic, p), part(t, b, topic, p)
		for range times {
			s, err := from.ReadSpan(to.Position().Size, 2000)
			if lattice.KindOf(err) == lattice.OutOfRange {
				s, err = from.ReadSpan(s.From, 2000)
			}
			if lattice.KindOf(err) == lattice.NotYet {
				return
			}
			if err == nil {
				_, err = to.Receive(s)
			}
			must(t, err)
		}
	}
	pull(0, 2)
	pull(1, 100)
	pull(2, 100)
	cancel()
	must(t, errors.Join(<-done, b.Close()))
	if r := checked(t, mem); !r.Clean() || r.Batches < 100 {
		t.Fatalf("%v: %+v", r, r.Findings)
	}
	name := mem.PathJoin(stores, a.Info().ID.String(), "topics", topic.ID.String(), "1", strings.Repeat("0", 20)+".log")
	raw, err := disk.ReadFile(mem, name)
	must(t, err)
	raw[70] ^= 1
	must(t, disk.WriteFile(mem, name, raw))
	if r := checked(t, mem); r.Clean() {
		t.Fatal("a changed batch was not found")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func part(t *testing.T, s *store.Store, topic store.Topic, n int32) *partition.Partition {
	t.Helper()
	p, err := s.Partition(topic.ID, n)
	must(t, err)
	return p
}
