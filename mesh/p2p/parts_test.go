package p2p

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/multiformats/go-multiaddr"
	"pgregory.net/rapid"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// pipe is a stream whose bytes come in pieces.
type pipe struct {
	net.Conn
	piece int
}

func (p pipe) Read(b []byte) (int, error) { return p.Conn.Read(b[:min(len(b), p.piece)]) }

func TestFramesInAnyPieces(t *testing.T) {
	l := Limits{}
	l.defaults()
	rapid.Check(t, func(t *rapid.T) {
		var all [][]byte
		for range rapid.IntRange(1, 5).Draw(t, "messages") {
			var m reconcile.Message = reconcile.Credit{Bytes: 7}
			if rapid.Bool().Draw(t, "large") {
				m = reconcile.Blocks{Entries: [][]byte{make([]byte, rapid.SampledFrom([]int{1, 5000, firstPiece, 3 * firstPiece}).Draw(t, "size"))}}
			}
			all = append(all, reconcile.Encode(m))
		}
		here, there := net.Pipe()
		defer here.Close()
		go func() {
			defer there.Close()
			_, _ = there.Write(bytes.Join(all, nil))
		}()
		f := newFrames(entryForm, pipe{here, rapid.SampledFrom([]int{1000, 4096, 1 << 20}).Draw(t, "piece")}, &l, make(chan struct{}, 1))
		for _, want := range all {
			got, err := f.next(time.Minute)
			if err != nil || !bytes.Equal(got.bytes, want) {
				t.Fatalf("got %d bytes, want %d: %v", len(got.bytes), len(want), err)
			}
			got.done()
		}
		if _, err := f.next(time.Minute); err != io.EOF {
			t.Fatalf("behind the last: %v", err)
		}
		if len(f.large) != 0 {
			t.Fatal("a place for large messages is not given back")
		}
	})
}

// TestLargeMessagesWait has one large message keep others from memory.
func TestLargeMessagesWait(t *testing.T) {
	l := Limits{HelloTime: 50 * time.Millisecond}
	l.defaults()
	large := make(chan struct{}, 1)
	m := reconcile.Encode(reconcile.Blocks{Entries: [][]byte{make([]byte, 2*firstPiece)}})
	feed := func() *frames {
		here, there := net.Pipe()
		t.Cleanup(func() { here.Close(); there.Close() })
		go func() { _, _ = there.Write(m) }()
		return newFrames(entryForm, here, &l, large)
	}
	first, err := feed().next(time.Minute)
	check(t, err)
	if _, err := feed().next(time.Minute); err == nil {
		t.Error("a second large message found memory")
	}
	first.done()
	again, err := feed().next(time.Minute)
	check(t, err)
	again.done()
}

func TestQueue(t *testing.T) {
	q := newQueue(1000)
	blocks := func(n int) reconcile.Message { return reconcile.Blocks{Entries: [][]byte{make([]byte, n)}} }
	if !q.put(aboutEntries(blocks(5000))) {
		t.Error("one message fits always")
	}
	if q.put(aboutEntries(reconcile.Credit{})) {
		t.Error("another does not, when it is full")
	}
	b, over := q.take(nil, 1)
	if m, err := reconcile.Parse(b); err != nil || over || m.Kind() != reconcile.KindBlocks {
		t.Errorf("took %T %v: %v", m, over, err)
	}
	q.sent(len(b))
	for range 3 {
		q.put(aboutEntries(reconcile.Credit{Bytes: 1}))
	}
	q.end(true)
	q.put(aboutEntries(reconcile.Credit{Bytes: 2})) // too late
	if b, over = q.take(nil, 1<<20); len(b) != 3*12 || over {
		t.Errorf("took %d bytes, over %v", len(b), over)
	}
	if b, over = q.take(nil, 1<<20); len(b) != 0 || !over {
		t.Errorf("took %d bytes, over %v", len(b), over)
	}
	q = newQueue(1000)
	q.put(aboutEntries(reconcile.Credit{}))
	q.end(false)
	if b, over = q.take(nil, 1); len(b) != 0 || !over {
		t.Error("what is dropped is still sent")
	}
}

func storeOf(id uint64, w state.Writer, n int) reconcile.Store {
	return reconcile.Store{ID: id, Log: w, Entries: make([]sigchain.Signed, n)}
}

// TestKeepingInOrder has batches of several logs finish in any order: within a log
// the parts come in theirs, and never two at a time.
func TestKeepingInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 3).Draw(t, "workers")
		k := newKeeping(workers)
		logs := []state.Writer{{Incarnation: 1}, {Incarnation: 2}, {Incarnation: 3}}
		var under []batch
		next := map[state.Writer]uint64{}
		last := map[state.Writer]uint64{}
		id := uint64(0)
		takeAll := func() {
			for {
				select {
				case b := <-k.work:
					for _, u := range under {
						if u.log == b.log {
							t.Fatalf("two batches of %v", b.log)
						}
					}
					for _, p := range b.parts {
						if p.ID <= next[b.log] {
							t.Fatalf("%v: %d behind %d", b.log, p.ID, next[b.log])
						}
						next[b.log] = p.ID
					}
					under = append(under, b)
				default:
					return
				}
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "add") || len(under) == 0 {
				id++
				w := rapid.SampledFrom(logs).Draw(t, "log")
				last[w] = id
				k.add(storeOf(id, w, 1))
			} else {
				i := rapid.IntRange(0, len(under)-1).Draw(t, "which")
				b := under[i]
				under = slices.Delete(under, i, i+1)
				k.done(b)
			}
			takeAll()
		}
		for len(under) > 0 {
			b := under[0]
			under = under[1:]
			k.done(b)
			takeAll()
		}
		if !k.idle() || k.free != workers {
			t.Fatal("workers are missing")
		}
		for w, id := range last {
			if next[w] != id {
				t.Fatalf("%v: the last is %d, kept up to %d", w, id, next[w])
			}
		}
	})
}

func TestWhatBecameOfEachPart(t *testing.T) {
	w := state.Writer{Incarnation: 1}
	parts := []reconcile.Store{storeOf(1, w, 3), storeOf(2, w, 2), storeOf(3, w, 4)}
	parts[1].Note = []byte("note")
	if s := join(parts); len(s.Entries) != 9 || s.Log != w || string(s.Note) != "note" {
		t.Errorf("joined: %+v", s)
	}
	bad := errors.New("refused")
	for _, c := range []struct {
		kept int
		err  error
		want string
	}{
		{9, nil, "1:3:<nil> 2:2:<nil> 3:4:<nil> "},
		{0, bad, "1:0:refused 2:0:refused 3:0:refused "},
		{3, bad, "1:3:<nil> 2:0:refused 3:0:refused "},
		{4, bad, "1:3:<nil> 2:1:refused 3:0:refused "},
		{9, bad, "1:3:<nil> 2:2:<nil> 3:4:refused "},
	} {
		got := ""
		keptBatch{batch{w, parts}, c.kept, c.err}.each(func(id uint64, kept int, err error) { got += fmt.Sprintf("%d:%d:%v ", id, kept, err) })
		if got != c.want {
			t.Errorf("%d kept, %v: %s", c.kept, c.err, got)
		}
	}
	fork := reconcile.Store{ID: 9, Fork: &reconcile.ForkProof{}}
	if n := together([]reconcile.Store{parts[0], fork}); n != 1 {
		t.Errorf("a fork is joined with entries: %d", n)
	}
	if n := together([]reconcile.Store{fork, fork}); n != 1 {
		t.Errorf("%d forks at once", n)
	}
}

func TestHeld(t *testing.T) {
	k := newKeeping(1)
	w := state.Writer{Incarnation: 1}
	k.add(storeOf(1, w, 1))
	b := <-k.work
	k.hold()
	k.add(storeOf(2, w, 1))
	k.done(b)
	if !k.idle() {
		t.Error("something was begun while held")
	}
	k.drop()
	k.add(storeOf(3, w, 1))
	if b := <-k.work; len(b.parts) != 1 || b.parts[0].ID != 3 {
		t.Errorf("after what was dropped: %+v", b)
	}
}

func TestBackoff(t *testing.T) {
	for n, want := range []time.Duration{1, 1, 2, 4, 8, 10, 10} {
		for range 100 {
			got := backoff(n, time.Second, 10*time.Second)
			if got < want*time.Second/2 || got > want*time.Second {
				t.Errorf("after %d failures: %v", n, got)
			}
		}
	}
	if got := backoff(1<<30, time.Second, time.Minute); got > time.Minute {
		t.Errorf("after very many: %v", got)
	}
}

func TestPulse(t *testing.T) {
	now := time.Now()
	p := pulse{now}
	if p.beat(now.Add(time.Second)) {
		t.Error("a second is no sleep")
	}
	if !p.beat(now.Add(time.Minute)) {
		t.Error("a minute is")
	}
	// The wall clock went on, the monotonic one did not.
	if !p.beat(now.Add(time.Minute).Round(0).Add(time.Hour)) {
		t.Error("an hour by the wall clock is")
	}
}

func TestBook(t *testing.T) {
	to := &memBook{}
	b, err := openBook(to, slog.New(slog.DiscardHandler))
	check(t, err)
	n, now := idOf("bob"), time.UnixMilli(startMs)
	b.learn(n, []string{"/ip4/192.0.2.1/tcp/1"}, now)
	b.learn(n, []string{"/ip4/192.0.2.2/tcp/1"}, now)
	b.invite(n, lattice.StoreID{1})
	b.invite(n, lattice.StoreID{1})
	check(t, b.save())
	check(t, b.save())
	b.learn(n, []string{"/ip4/192.0.2.2/tcp/1"}, now.Add(time.Second))
	check(t, b.save())
	if to.saves != 1 {
		t.Errorf("saved %d times", to.saves)
	}
	b, err = openBook(to, slog.New(slog.DiscardHandler))
	check(t, err)
	if got := b.addresses(n); !slices.Equal(got, []string{"/ip4/192.0.2.2/tcp/1", "/ip4/192.0.2.1/tcp/1"}) {
		t.Errorf("addresses: %v", got)
	}
	if !b.invited(n, lattice.StoreID{1}) || b.invited(n, lattice.StoreID{2}) || len(b.inviters(lattice.StoreID{1})) != 1 {
		t.Error("who invited is lost")
	}
	for i := range 2 * maxListed {
		b.learn(idOf(fmt.Sprint(i)), []string{fmt.Sprintf("/ip4/192.0.2.1/tcp/%d", i+1)}, now.Add(time.Duration(i)*time.Hour))
	}
	if len(b.peers) > maxListed || !b.invited(n, lattice.StoreID{1}) || b.addresses(idOf(fmt.Sprint(2*maxListed-1))) == nil {
		t.Errorf("%d nodes are listed; who invited and who was seen last stay", len(b.peers))
	}
	for i := range 100 {
		b.remember(n, []string{fmt.Sprintf("/ip4/192.0.2.1/tcp/%d", i+1)})
	}
	if got := b.addresses(n); len(got) != maxAddresses || got[0] != "/ip4/192.0.2.1/tcp/100" {
		t.Errorf("%d addresses, the first %s", len(got), got[0])
	}
	check(t, b.save())
	_, err = parseBook(to.bytes)
	check(t, err)

	to.bytes = []byte("garbage")
	if b, err = openBook(to, slog.New(slog.DiscardHandler)); err != nil || len(b.peers) != 0 {
		t.Errorf("a book that cannot be read: %v", err)
	}
	to.bytes = []byte(`{"version":7}`)
	if _, err = openBook(to, slog.New(slog.DiscardHandler)); lattice.KindOf(err) != lattice.Unsupported {
		t.Errorf("a later version: %v", err)
	}
}

func TestWhereFrom(t *testing.T) {
	for a, want := range map[string]string{
		"/ip4/192.0.2.7/tcp/1":                   "192.0.2.7/32",
		"/ip6/2001:db8:1:2ff:4::1/udp/1/quic-v1": "2001:db8:1:200::/56",
		"/ip6/::ffff:192.0.2.7/tcp/1":            "192.0.2.7/32",
		"/dns4/example.org/tcp/1":                "invalid Prefix",
	} {
		if got := prefixOf(multiaddr.StringCast(a)).String(); got != want {
			t.Errorf("%s: %s", a, got)
		}
	}
}

func TestTCPComesFirst(t *testing.T) {
	var all []multiaddr.Multiaddr
	for _, a := range []string{"/ip4/192.0.2.1/udp/1/quic-v1", "/ip4/192.0.2.1/tcp/1", "/ip6/2001:db8::1/tcp/1"} {
		all = append(all, multiaddr.StringCast(a))
	}
	ranked := rank(all)
	if len(ranked) != 3 || ranked[0].Delay != 0 || ranked[0].Addr.String() != "/ip4/192.0.2.1/tcp/1" || ranked[2].Delay <= ranked[1].Delay {
		t.Errorf("%v", ranked)
	}
	if only := rank(all[:1]); only[0].Delay != 0 {
		t.Errorf("QUIC waits for no TCP: %v", only)
	}
}
