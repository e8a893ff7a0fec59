package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	ma "github.com/multiformats/go-multiaddr"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/invite"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/mesh/batches"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// court is a node that is lied to, an honest member, and one that lies.
type court struct {
	t     *testing.T
	ann   *Node // whole, so that what it shows is seen where people see it
	store *store.Store
	bob   *twin
	eve   *liar
	round int
}

// liar is a member whose program is another one: it is its key over connections of its
// own, and says what it likes. Its data are the real engine's, of which nobody hears.
type liar struct {
	*twin
	host host.Host
	t    *testing.T
	ann  *Node
}

// newCourt makes them, with what prepare makes while all three still are honest.
func newCourt(t *testing.T, prepare func(c *court)) *court {
	t.Helper()
	c := &court{t: t}
	c.ann, _ = runNode(t, local(t))
	c.store = defaultOf(t, c.ann)
	member := func() *twin {
		n, _ := runTwin(t, t.TempDir())
		if err := n.join(t.Context(), c.token(roster.Writer)); err != nil {
			t.Fatal(err)
		}
		soon(t, "the right to write", func() bool { return n.first.Role() == roster.Writer })
		return n
	}
	c.bob = member()
	c.eve = &liar{twin: member(), t: t, ann: c.ann}
	if prepare != nil {
		prepare(c)
	}
	alike(t, c.store, c.eve.first)
	alike(t, c.store, c.bob.first)
	if err := c.eve.meshes.stop(); err != nil {
		t.Fatal(err)
	}
	c.eve.turns()
	return c
}

func (c *court) token(role roster.Role) invite.Token {
	c.t.Helper()
	token, _, err := c.store.Invite(c.t.Context(), role, time.Hour, c.ann.mesh.Addresses()...)
	if err != nil {
		c.t.Fatal(err)
	}
	return token
}

// turns has the member's key in the hands of another program.
func (l *liar) turns() {
	key, err := crypto.UnmarshalEd25519PrivateKey(l.key.Private())
	if err != nil {
		l.t.Fatal(err)
	}
	l.host, err = libp2p.New(libp2p.Identity(key), libp2p.NoListenAddrs, libp2p.DisableRelay(), libp2p.DisableMetrics(), libp2p.ForceReachabilityPrivate())
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = l.host.Close() })
}

// node is whom the liar is, to others.
func (l *liar) node() lattice.NodeID { return l.key.Author() }

// stream opens a protocol at a node that is reached at some addresses; the first of them says
// which it is.
func (l *liar) stream(of lattice.NodeID, addresses []string, proto protocol.ID) network.Stream {
	l.t.Helper()
	key, err := crypto.UnmarshalEd25519PublicKey(of[:])
	if err != nil {
		l.t.Fatal(err)
	}
	id, err := peer.IDFromPublicKey(key)
	if err != nil {
		l.t.Fatal(err)
	}
	to := peer.AddrInfo{ID: id}
	for _, a := range addresses {
		to.Addrs = append(to.Addrs, ma.StringCast(a))
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	var s network.Stream
	soon(l.t, "a stream of "+string(proto), func() bool {
		if err := l.host.Connect(ctx, to); err != nil {
			return false
		}
		s, err = l.host.NewStream(ctx, id, proto)
		return err == nil
	})
	l.t.Cleanup(func() { _ = s.Reset() })
	return s
}

// toAnn opens a protocol at ann.
func (l *liar) toAnn(proto protocol.ID) network.Stream {
	l.t.Helper()
	return l.stream(l.ann.stores.key.Author(), l.ann.mesh.Addresses(), proto)
}

// talk is a session in which each message is the liar's own.
type talk[M any] struct {
	t     *testing.T
	s     network.Stream
	parse func([]byte) (M, error)

	mu    sync.Mutex
	heard []M
	ended bool
}

// begin reads what comes, until the stream ends.
func begin[M any](t *testing.T, s network.Stream, header int, size func([]byte) (int, error), parse func([]byte) (M, error)) *talk[M] {
	x := &talk[M]{t: t, s: s, parse: parse}
	go func() {
		defer func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.ended = true
		}()
		for {
			b := make([]byte, header)
			if _, err := io.ReadFull(s, b); err != nil {
				return
			}
			n, err := size(b)
			if err != nil {
				t.Errorf("an honest node says what is no message: %v", err)
				return
			}
			b = append(b, make([]byte, n)...)
			if _, err := io.ReadFull(s, b[header:]); err != nil {
				return
			}
			m, err := parse(b)
			if err != nil {
				t.Errorf("an honest node says what is no message: %v", err)
				return
			}
			x.mu.Lock()
			x.heard = append(x.heard, m)
			x.mu.Unlock()
		}
	}()
	return x
}

func (x *talk[M]) write(b []byte) {
	x.t.Helper()
	if _, err := x.s.Write(b); err != nil {
		x.t.Fatalf("the session has ended: %v", err)
	}
}

// hears waits for a message, the newest of those that fit.
func (x *talk[M]) hears(what string, fits func(M) bool) (got M) {
	x.t.Helper()
	soon(x.t, what, func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		for i := len(x.heard) - 1; i >= 0; i-- {
			if fits(x.heard[i]) {
				got = x.heard[i]
				return true
			}
		}
		return false
	})
	return got
}

// over waits for the end of the session.
func (x *talk[M]) over() {
	x.t.Helper()
	soon(x.t, "the session ends", func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.ended
	})
}

// entries opens a session about entries with ann.
func (l *liar) entries() *talk[reconcile.Message] {
	l.t.Helper()
	return l.entriesOf(l.toAnn("/lattice/reconcile/1"))
}

func (l *liar) entriesOf(s network.Stream) *talk[reconcile.Message] {
	l.t.Helper()
	x := begin(l.t, s, reconcile.HeaderSize, reconcile.BodySize, reconcile.Parse)
	x.write(reconcile.Encode(reconcile.Hello{Min: 1, Max: 1, Store: l.first.Info().ID, Node: l.node(), Session: 1, Window: 1 << 20}))
	x.hears("hello", func(m reconcile.Message) bool { return m.Kind() == reconcile.KindHello })
	return x
}

// wanted offers a log up to a place, and returns what is asked for of it.
func (l *liar) wanted(x *talk[reconcile.Message], w state.Writer, last sigchain.Link) reconcile.Span {
	l.t.Helper()
	x.write(reconcile.Encode(reconcile.Offer{Items: []reconcile.Item{{Key: reconcile.LogKey(w), N: last.Seq, ID: last.ID}}}))
	return asked(x, w, 0)
}

// asked waits for a want of a log that is newer than an ask.
func asked(x *talk[reconcile.Message], w state.Writer, after uint32) (got reconcile.Span) {
	x.t.Helper()
	soon(x.t, "the log is wanted", func() bool { got = newest(x, w); return got.Ask > after })
	return got
}

// newest is what was asked for last of a log, if anything was.
func newest(x *talk[reconcile.Message], w state.Writer) (got reconcile.Span) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, m := range x.heard {
		if want, ok := m.(reconcile.Want); ok {
			for _, s := range want.Spans {
				if s.Log == w {
					got = s
				}
			}
		}
	}
	return got
}

// records opens a session about records with ann.
func (l *liar) records() *talk[batches.Message] {
	l.t.Helper()
	x := begin(l.t, l.toAnn("/lattice/batches/1"), batches.HeaderSize, batches.BodySize, batches.Parse)
	x.write(batches.Encode(batches.Hello{Min: 1, Max: batches.VersionAcks, Store: l.first.Info().ID, Node: l.node(), Session: 1, Window: 1 << 20}))
	x.hears("hello", func(m batches.Message) bool { return m.Kind() == batches.KindHello })
	return x
}

// counted is how often ann has refused something for a reason, in sessions about entries,
// or those about records.
func (c *court) counted(ofRecords bool, why reconcile.Reason) uint64 {
	for _, s := range c.ann.mesh.Status().Stores {
		switch {
		case s.Store != c.store.Info().ID:
		case !ofRecords:
			return s.Refused[why]
		case s.Batches != nil:
			return s.Batches.Refused[why]
		}
	}
	return 0
}

// refuses has ann lied to: it counts one more that it refused for that reason, and meanwhile and
// afterwards what bob and ann write is on both, keys and records.
func (c *court) refuses(what string, ofRecords bool, why reconcile.Reason, lie func(t *testing.T)) {
	c.t.Run(what, func(t *testing.T) {
		defer func(whole *testing.T) { c.t, c.eve.t = whole, whole }(c.t)
		c.t, c.eve.t = t, t
		before := c.counted(ofRecords, why)
		lie(t)
		c.honest()
		soon(t, "it is counted as "+why.String(), func() bool { return c.counted(ofRecords, why) > before })
	})
}

// honest has both others write, and waits until each has what the other wrote.
func (c *court) honest() {
	c.t.Helper()
	c.round++
	key, value := "honest", strings.Repeat("x", c.round)
	if err := errors.Join(setKey(c.store, key+"/ann", value), setKey(c.bob.first, key+"/bob", value)); err != nil {
		c.t.Fatal(err)
	}
	soon(c.t, "what the honest ones write is on both", func() bool {
		return getKey(c.t, c.store, key+"/bob") == value && getKey(c.t, c.bob.first, key+"/ann") == value
	})
}

// shows holds what people are shown at ann to what was counted: by lattice peer list, and
// in the metrics.
func (c *court) shows(ofRecords bool, all ...reconcile.Reason) {
	c.t.Helper()
	res, err := http.Get("http://" + c.ann.Info().HTTP + "/metrics")
	if err != nil {
		c.t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer res.Body.Close()
	metrics, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	peers := c.ann.mesh.Peers(c.store.Info().ID)
	name := "lattice_mesh_refused_total"
	if ofRecords {
		name = "lattice_mesh_refused_batches_total"
	}
	for _, why := range all {
		if peers.Refused[why.String()] == 0 || peers.Wrong == 0 {
			c.t.Errorf("%q is not shown of its peers: %v", why, peers.Refused)
		}
		if !bytes.Contains(metrics, []byte(name+`{reason="`+why.String()+`",store="main"}`)) {
			c.t.Errorf("%q is not among the metrics", why)
		}
	}
}
