package group

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	lattice "github.com/lattice-log/lattice"
)

// TestGoldenHome holds the bytes that replicas exchange.
func TestGoldenHome(t *testing.T) {
	h := Home{Moves: 258, Since: time.UnixMilli(1_700_000_000_123).UTC(), Node: lattice.NodeID(bytes.Repeat([]byte{7}, 32))}
	want := "01" + "0000000000000102" + "0000018bcfe5687b" + strings.Repeat("07", 32)
	if got := hex.EncodeToString(h.AppendTo(nil)); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got, err := ParseHome(h.AppendTo(nil)); err != nil || got != h {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := ParseHome(append([]byte{2}, h.AppendTo(nil)[1:]...)); lattice.KindOf(err) != lattice.Unsupported {
		t.Errorf("of a later version: %v", err)
	}
}

func FuzzParseHome(f *testing.F) {
	f.Add(Home{Moves: 1, Since: time.UnixMilli(2), Node: lattice.NodeID{3}}.AppendTo(nil))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHome(b)
		if err == nil && !bytes.Equal(h.AppendTo(nil), b) {
			t.Fatalf("%x is %+v, which is %x", b, h, h.AppendTo(nil))
		}
	})
}

func drawHome(t *rapid.T) Home {
	return Home{
		Moves: rapid.Uint64Range(0, 3).Draw(t, "moves"), Since: time.UnixMilli(rapid.Int64Range(0, 3).Draw(t, "since")).UTC(),
		Node: lattice.NodeID{rapid.ByteRange(1, 4).Draw(t, "node")},
	}
}

// TestHomesJoin: whatever nodes wrote while apart, and in whatever order it comes, all end
// with one home; a move that had heard of a home beats it.
func TestHomesJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawHome(t), drawHome(t), drawHome(t)
		if JoinHomes(a, b) != JoinHomes(b, a) {
			t.Fatalf("%+v, %+v: not commutative", a, b)
		}
		if JoinHomes(JoinHomes(a, b), c) != JoinHomes(a, JoinHomes(b, c)) {
			t.Fatalf("%+v, %+v, %+v: not associative", a, b, c)
		}
		if JoinHomes(a, a) != a || JoinHomes(a, b) != a && JoinHomes(a, b) != b {
			t.Fatalf("%+v, %+v: made up", a, b)
		}
		if m := JoinHomes(a, b).Moved(c.Node, c.Since); JoinHomes(JoinHomes(a, m), b) != m {
			t.Fatalf("%+v moved to %+v, and that does not stand", JoinHomes(a, b), m)
		}
		if a.Moves == 0 && b.Moves == 0 && a.Since.Before(b.Since) && JoinHomes(a, b) != a {
			t.Fatalf("%+v, %+v: not where it was first used", a, b)
		}
	})
}

// TestEvict: who waits in a group that another node coordinates from now on is told to look
// for the coordinator, others when they ask; offsets stay; the next members go on above
// the old generation.
func TestEvict(t *testing.T) {
	w := newWorld(t, nil)
	var joined []JoinResult
	join := func(id string) {
		w.Join(JoinRequest{
			Group: "g", MemberID: id, Session: 10 * time.Second, Rebalance: time.Minute, ProtocolType: "consumer",
			Protocols: []Protocol{{Name: "range"}},
		}, func(r JoinResult) { joined = append(joined, r) })
	}
	join("")
	w.clock.Advance(5 * time.Second)
	if len(joined) != 1 || joined[0].Err != nil {
		t.Fatalf("joined: %+v", joined)
	}
	first := joined[0]
	join("") // it waits for the first, which does not come within 5 s
	w.Evict("g")
	if len(joined) != 2 || !errors.Is(joined[1].Err, ErrMoving) {
		t.Fatalf("who waited: %+v", joined)
	}
	if err := w.Heartbeat(HeartbeatRequest{Group: "g", MemberID: first.MemberID, Generation: first.Generation}); !errors.Is(err, ErrUnknownMember) {
		t.Errorf("heartbeat of an evicted member: %v", err)
	}
	join("")
	w.clock.Advance(5 * time.Second)
	if last := joined[len(joined)-1]; last.Err != nil || last.Generation <= first.Generation {
		t.Errorf("joined again: %+v, before %+v", last, first)
	}
	w.Evict("another") // of which nothing is known
}
