package p2p

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/mesh/forward"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// leadStore is a memStore that leads: it notes what it is asked, and answers at once
// unless it holds answers back.
type leadStore struct {
	*memStore

	mu   sync.Mutex
	got  []string
	hold bool
	held []func()
}

var _ Leader = (*leadStore)(nil)

// Lead implements Leader.
func (s *leadStore) Lead(_ lattice.NodeID, a forward.Ask, done func(forward.Answer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := int64(len(s.got))
	s.got = append(s.got, string(a.Batches))
	answer := func() { done(forward.Answer{Base: at, Time: -1}) }
	switch {
	case bytes.HasPrefix(a.Batches, []byte("refuse")):
		answer = func() {
			done(forward.Answer{Refused: true, Kind: lattice.Invalid, Code: 87, Base: -1, Time: -1, Start: -1, Text: "no"})
		}
	case a.Op == forward.Truncate:
		answer = func() { done(forward.Answer{Base: -1, Time: -1, Start: a.Before}) }
	}
	if s.hold {
		s.held = append(s.held, answer)
		return
	}
	answer()
}

func (s *leadStore) has() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

func (s *leadStore) holdBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = true
}

// release answers all that was held back, the newest first.
func (s *leadStore) release() {
	s.mu.Lock()
	s.hold = false
	held := s.held
	s.held = nil
	s.mu.Unlock()
	for _, f := range slices.Backward(held) {
		f()
	}
}

// leadPair is two connected nodes with a store that ann leads.
func leadPair(t *testing.T, change func(*Config)) (ann, bob *testNode, at *leadStore) {
	t.Helper()
	sa := found(t, "ann", "bob")
	sb := sa.at("bob")
	at = &leadStore{memStore: sa}
	ann, bob = start(t, "ann", change), start(t, "bob", change, sb)
	check(t, ann.Add(at))
	bob.knows(ann)
	eventually(t, "a connection", func() bool { return bob.peer(sb, "ann").Session })
	return ann, bob, at
}

type asked struct {
	answer forward.Answer
	err    error
}

// forward asks, and returns where the answer comes.
func (n *testNode) forward(s *memStore, leader string, wait time.Duration, batches string) chan asked {
	got := make(chan asked, 2) // two, to see one too many
	n.Forward(s.id, idOf(leader), forward.Ask{Op: forward.Append, Acks: 1, Batches: []byte(batches)}, wait, func(a forward.Answer, err error) { got <- asked{a, err} })
	return got
}

func TestForward(t *testing.T) {
	_, bob, at := leadPair(t, nil)
	var all []chan asked
	for i := range 300 {
		all = append(all, bob.forward(at.memStore, "ann", time.Minute, fmt.Sprint(i)))
	}
	for i, c := range all {
		if got := <-c; got.err != nil || got.answer.Base != int64(i) {
			t.Fatalf("ask %d: %+v", i, got)
		}
	}
	if got := <-bob.forward(at.memStore, "ann", time.Minute, "refuse"); got.err != nil || !got.answer.Refused || got.answer.Code != 87 || got.answer.Kind != lattice.Invalid || got.answer.Text != "no" {
		t.Errorf("refused: %+v", got)
	}
	large := strings.Repeat("x", 3<<20)
	if got := <-bob.forward(at.memStore, "ann", time.Minute, large); got.err != nil || at.has()[301] != large {
		t.Errorf("a large one: %v", got.err)
	}
	if got := <-bob.forward(at.memStore, "ann", time.Minute, strings.Repeat("x", forward.MaxBatches+1)); !errors.Is(got.err, forward.ErrTooLarge) {
		t.Errorf("one too large: %v", got.err)
	}
	start := make(chan asked, 1)
	bob.Forward(at.id, idOf("ann"), forward.Ask{Op: forward.Truncate, Before: 7}, time.Minute, func(a forward.Answer, err error) { start <- asked{a, err} })
	if got := <-start; got.err != nil || got.answer.Start != 7 {
		t.Errorf("a truncation: %+v", got)
	}
}

// TestForwardUnreachable: who is no member, is not connected or takes no asks is not
// asked, and that is said at once.
func TestForwardUnreachable(t *testing.T) {
	ann, bob, at := leadPair(t, nil)
	for _, leader := range []string{"carl", "bob"} {
		if got := <-bob.forward(at.memStore, leader, time.Minute, "x"); !errors.Is(got.err, forward.ErrUnreachable) {
			t.Errorf("%s: %v", leader, got.err)
		}
	}
	// A store that leads nothing resets the stream: what was sent may be there.
	if got := <-ann.forward(at.memStore, "bob", time.Minute, "x"); !errors.Is(got.err, forward.ErrLost) && !errors.Is(got.err, forward.ErrUnreachable) {
		t.Errorf("a node that leads nothing: %v", got.err)
	}
	check(t, ann.stop())
	eventually(t, "no connection", func() bool { return !bob.peer(at.memStore, "ann").Reachable })
	if got := <-bob.forward(at.memStore, "ann", time.Minute, "x"); !errors.Is(got.err, forward.ErrUnreachable) || lattice.KindOf(got.err) != lattice.Unavailable {
		t.Errorf("a node that has gone: %v", got.err)
	}
	if len(at.has()) != 0 {
		t.Errorf("the leader was asked %q", at.has())
	}
	check(t, bob.stop())
	if got := <-bob.forward(at.memStore, "ann", time.Minute, "x"); !errors.Is(got.err, forward.ErrUnreachable) {
		t.Errorf("after its end: %v", got.err)
	}
}

// TestForwardLost: answers that do not come in time, or not before the stream breaks.
// Each ask is told once, and the next stream works.
func TestForwardLost(t *testing.T) {
	ann, bob, at := leadPair(t, nil)
	at.holdBack()
	late := bob.forward(at.memStore, "ann", 50*time.Millisecond, "late")
	if got := <-late; !errors.Is(got.err, forward.ErrLost) {
		t.Fatalf("no answer in time: %+v", got)
	}
	eventually(t, "the leader to be asked", func() bool { return len(at.has()) == 1 })
	cut := bob.forward(at.memStore, "ann", time.Minute, "cut")
	eventually(t, "the leader to be asked again", func() bool { return len(at.has()) == 2 })
	id, err := peerOf(idOf("bob"))
	check(t, err)
	check(t, ann.host.Network().ClosePeer(id))
	if got := <-cut; !errors.Is(got.err, forward.ErrLost) {
		t.Errorf("cut off: %+v", got)
	}
	at.release()
	eventually(t, "an answer by itself", func() bool { return (<-bob.forward(at.memStore, "ann", time.Minute, "next")).err == nil })
	if len(late) != 0 || len(cut) != 0 {
		t.Error("an ask is told twice")
	}
}

// TestForwardToASlowLeader: what waits for it is bounded, and the rest is refused
// without being sent.
func TestForwardToASlowLeader(t *testing.T) {
	_, bob, at := leadPair(t, func(c *Config) { c.Limits.Asking = 10_000 })
	at.holdBack()
	var all []chan asked
	for range 30 {
		all = append(all, bob.forward(at.memStore, "ann", time.Minute, strings.Repeat("x", 1000)))
	}
	busy := 0
	for _, c := range all[15:] {
		if got := <-c; errors.Is(got.err, forward.ErrBusy) && lattice.KindOf(got.err) == lattice.Unavailable {
			busy++
		}
	}
	if busy != 15 {
		t.Errorf("%d of the last 15 are refused", busy)
	}
	eventually(t, "the others at the leader", func() bool { return len(at.has()) == 10 })
	at.release()
	for i, c := range all[:10] {
		if got := <-c; got.err != nil || got.answer.Base != int64(i) {
			t.Errorf("ask %d: %+v", i, got)
		}
	}
}

// TestHostileForward has a member break the rules on streams of its own: nothing comes
// of it but the end of its stream. A stranger gets nothing.
func TestHostileForward(t *testing.T) {
	ann, bob, at := leadPair(t, nil)
	carl := start(t, "carl", nil)
	id, err := peerOf(idOf("ann"))
	check(t, err)
	open := func(n *testNode) network.Stream {
		t.Helper()
		s, err := n.host.NewStream(context.Background(), id, protocol.ID(forward.Records.Protocol()))
		check(t, err)
		t.Cleanup(func() { _ = s.Reset() })
		check(t, s.SetDeadline(time.Now().Add(30*time.Second)))
		return s
	}
	ends := func(what string, s network.Stream) {
		t.Helper()
		if n, err := io.ReadFull(s, make([]byte, 1)); n != 0 || err == nil || strings.Contains(err.Error(), "deadline") {
			t.Errorf("%s: it goes on: %v", what, err)
		}
	}
	ask := forward.Ask{Op: forward.Append, ID: 1, Batches: []byte("good")}
	good := ask.AppendTo(nil)
	opening := forward.Records.Opening(at.id)
	for what, b := range map[string][]byte{
		"no opening":       bytes.Repeat([]byte{1}, 36),
		"another store":    forward.Records.Opening(lattice.StoreID{9}),
		"an empty message": append(bytes.Clone(opening), 0, 0, 0, 0),
		"a huge message":   append(bytes.Clone(opening), 0xff, 0xff, 0xff, 0xff),
		"another kind":     append(append(bytes.Clone(opening), good[:4]...), bytes.Repeat([]byte{7}, len(good)-4)...),
	} {
		s := open(bob)
		_, err := s.Write(b)
		check(t, err)
		ends(what, s)
	}
	// An id twice: the first is done, the second ends the stream.
	s := open(bob)
	_, err = s.Write(append(append(bytes.Clone(opening), good...), good...))
	check(t, err)
	_, err = io.Copy(io.Discard, s)
	if err == nil || len(at.has()) != 1 {
		t.Errorf("an id twice: %v, asked %q", err, at.has())
	}
	// A claim of 32 MiB of which nothing comes holds the first piece of memory.
	s = open(bob)
	claim := forward.Ask{Op: forward.Append, ID: 1, Batches: make([]byte, forward.MaxBatches)}
	_, err = s.Write(append(bytes.Clone(opening), claim.AppendTo(nil)[:100]...))
	check(t, err)
	eventually(t, "a piece of memory", func() bool {
		ann.leading[forward.Records].mu.Lock()
		defer ann.leading[forward.Records].mu.Unlock()
		return ann.leading[forward.Records].held > 0 && ann.leading[forward.Records].held <= firstPiece
	})
	// A newer stream of the same asker ends it, and gives it back.
	if got := <-bob.forward(at.memStore, "ann", time.Minute, "next"); got.err != nil {
		t.Error(got.err)
	}
	eventually(t, "no memory", func() bool {
		ann.leading[forward.Records].mu.Lock()
		defer ann.leading[forward.Records].mu.Unlock()
		return ann.leading[forward.Records].held == 0
	})
	addresses, err := parseAddresses(ann.Addresses())
	check(t, err)
	leave := carl.gate.allow(id)
	defer leave()
	check(t, carl.dial(context.Background(), id, addresses))
	if s, err := carl.host.NewStream(context.Background(), id, protocol.ID(forward.Records.Protocol())); err == nil {
		_, _ = s.Write(append(bytes.Clone(opening), good...))
		ends("a stranger", s)
	}
	if got := at.has(); len(got) != 2 {
		t.Errorf("the leader was asked %q", got)
	}
	if got := ann.refused(at.memStore)[reconcile.BadMessage]; got != 4 { // of what named the store
		t.Errorf("%d are counted", got)
	}
}
