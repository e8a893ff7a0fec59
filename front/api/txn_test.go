package api_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/engine/enginetest"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/engine/txn"
	"github.com/lattice-log/lattice/internal/tick"
)

// transactional returns a producer with a transactional id.
func transactional(t *testing.T, s *store.Store, id string) *enginetest.Producer {
	t.Helper()
	n := &enginetest.Node{Store: s, Clock: tick.NewManual(time.Now())}
	p := &enginetest.Producer{N: n, Request: txn.Request{ID: id}, Timeout: time.Minute}
	if err := p.Init(); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestConsumeCommitted: readers get committed records only: not what was aborted
// or is open, and no markers, whether they follow or not and in chunks of any size.
func TestConsumeCommitted(t *testing.T) {
	s, c, _ := node(t)
	if _, err := c.CreateTopic(t.Context(), client.NewTopic{Name: "t", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	top, _ := s.Topic("t")
	good, bad, open := transactional(t, s, "good"), transactional(t, s, "bad"), transactional(t, s, "open")
	put := func(p *enginetest.Producer, values ...string) {
		t.Helper()
		if _, err := p.Put(top, 0, values...); err != nil {
			t.Fatal(err)
		}
	}
	end := func(p *enginetest.Producer, commit bool) {
		t.Helper()
		if err := p.End(commit); err != nil {
			t.Fatal(err)
		}
	}
	put(good, "a", "b")
	put(bad, "x")
	put(good, "c")
	end(good, true)
	end(bad, false)
	put(open, "d")
	put(good, "e")
	end(good, true)
	want := []string{"a", "b", "c"}
	for _, chunk := range []int{0, 1} {
		for _, limit := range []int64{0, 2} {
			r, err := c.Consumer(t.Context(), client.ConsumerOptions{Topic: "t", ChunkBytes: chunk, MaxRecords: limit})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for rec, err := range r.All() {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(rec.Value))
			}
			if n := len(want); limit > 0 && !slices.Equal(got, want[:limit]) || limit == 0 && !slices.Equal(got, want[:n]) {
				t.Errorf("chunks of %d, limit %d: %q", chunk, limit, got)
			}
			r.Close()
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := c.Consumer(ctx, client.ConsumerOptions{Topic: "t", Follow: true, ChunkBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i, value := range []string{"a", "b", "c", "d", "e", "f"} {
		switch i {
		case 3:
			end(open, true)
		case 5:
			for range 12 { // each wakes the reader, and brings it nothing
				put(bad, "y")
				end(bad, false)
			}
			put(good, "f")
			end(good, true)
		}
		rec, err := r.Next()
		if err != nil || string(rec.Value) != value {
			t.Fatalf("record %d is %q, %v, want %q", i, rec.Value, err, value)
		}
	}
}
