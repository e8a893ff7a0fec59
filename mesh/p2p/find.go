package p2p

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/multiformats/go-multiaddr"
	multistream "github.com/multiformats/go-multistream"

	lattice "github.com/lattice-log/lattice"
)

// contact is what is known of reaching a node. Guarded by Mesh.mu.
type contact struct {
	id        peer.ID
	connected bool
	since     time.Time // of connected
	calling   bool
	failures  int // calls, since the last that was answered
	next      time.Time
	failed    string    // why the last one was
	learned   time.Time // when its addresses were
	trip      time.Duration
	checked   time.Time // when its round trip was last measured
	checking  bool
	mute      int // checks, since the last that was answered
	links     map[linkID]*link
}

// linkID is a store, and which of its sessions with a node.
type linkID struct {
	store   lattice.StoreID
	batches bool
}

// link is the attempts to open a session with a node about one store.
type link struct {
	opening  bool
	failures int
	next     time.Time
	asked    time.Time // where others are
}

const (
	findTime    = 250 * time.Millisecond
	rosterTime  = 2 * time.Second
	saveTime    = 5 * time.Second
	routesTime  = 5 * time.Second
	graceTime   = 2 * time.Second // that the other node has to open the session
	healthyTime = 10 * time.Second
)

// look has the finder look around soon.
func (m *Mesh) look() { poke(m.wake) }

// find keeps up connections with members, and sessions over them, until ctx ends.
func (m *Mesh) find(ctx context.Context) {
	tick := time.NewTicker(findTime)
	defer tick.Stop()
	var (
		clock         = pulse{time.Now()}
		routes        = localRoutes()
		wanted        map[lattice.NodeID][]*carrier
		looked, saved time.Time
		listed        time.Time
	)
	for {
		again := false
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
			again = true
		case <-tick.C:
		}
		now := time.Now()
		woke := clock.beat(now)
		if now.Sub(listed) >= routesTime {
			listed = now
			if r := localRoutes(); r != routes {
				routes, woke = r, true
			}
		}
		if woke {
			m.c.Logger.Info("this node slept, or its network changed: it looks for its peers again")
			m.afresh()
		}
		if again || woke || now.Sub(looked) >= rosterTime {
			looked = now
			wanted = m.wanted()
			for _, c := range m.gate.sort(now) {
				_ = c.Close()
			}
		}
		m.tend(ctx, wanted, now)
		if now.Sub(saved) >= saveTime {
			saved = now
			if err := m.book.save(); err != nil {
				m.c.Logger.Warn("the address book is not saved", "err", err)
			}
		}
	}
}

// wanted lists whom to be connected with, and about which stores.
func (m *Mesh) wanted() map[lattice.NodeID][]*carrier {
	out := map[lattice.NodeID][]*carrier{}
	for _, c := range m.carriers() {
		seen := map[lattice.NodeID]bool{m.node: true}
		for _, n := range append(c.store.Members(), m.book.inviters(c.id)...) {
			if !seen[n] && c.admits(n) {
				seen[n] = true
				out[n] = append(out[n], c)
			}
		}
	}
	return out
}

// afresh forgets failures: calls are made at once, and connections are checked.
func (m *Mesh) afresh() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range m.contacts {
		x.failures, x.next, x.checked = 0, time.Time{}, time.Time{}
		x.mute = max(x.mute, 1) // one more that is not answered, and the connection is dropped
		for _, l := range x.links {
			l.failures, l.next = 0, time.Time{}
		}
	}
}

// tend does what is due for each node.
func (m *Mesh) tend(ctx context.Context, wanted map[lattice.NodeID][]*carrier, now time.Time) {
	m.mu.Lock()
	for n := range m.contacts {
		if _, ok := wanted[n]; !ok && !m.contacts[n].calling && !m.contacts[n].checking {
			delete(m.contacts, n)
		}
	}
	calls, met := 0, 0
	for _, x := range m.contacts {
		if x.calling {
			calls++
		}
		if x.connected {
			met++
		}
	}
	m.mu.Unlock()
	// With enough, whoever else there is hears of things through others.
	most := min(m.c.Limits.Calls, m.c.Limits.Peers-met)
	lacking := map[lattice.StoreID]bool{} // of these it is not known where some member is
	for n, stores := range wanted {
		if len(m.book.addresses(n)) > 0 {
			continue
		}
		for _, c := range stores {
			lacking[c.id] = true
		}
	}
	for n, stores := range wanted { // in no order, so that all get their turn
		x := m.contact(n)
		if x == nil {
			continue
		}
		if m.host.Network().Connectedness(x.id) == network.Connected {
			m.connected(ctx, n, x, stores, lacking, now)
			continue
		}
		if m.call(ctx, n, x, now, calls < most) {
			calls++
		}
	}
}

// contact returns a node's, or nil if its id is no key.
func (m *Mesh) contact(n lattice.NodeID) *contact {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.contacts[n]
	if x == nil {
		id, err := peerOf(n)
		if err != nil {
			return nil
		}
		x = &contact{id: id, links: map[linkID]*link{}}
		m.contacts[n] = x
	}
	return x
}

// connected tends a node that is connected: its addresses are learned, its round trip
// is measured, and sessions are opened.
func (m *Mesh) connected(ctx context.Context, n lattice.NodeID, x *contact, stores []*carrier, lacking map[lattice.StoreID]bool, now time.Time) {
	if now.Sub(x.learned) >= saveTime { // the finder alone uses it
		told := m.told(x.id)
		m.book.learn(n, told, now)
		if len(told) > 0 { // it has said who it is
			x.learned = now
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !x.connected {
		x.connected, x.since, x.failures, x.failed, x.mute, x.checked = true, now, 0, "", 0, time.Time{}
	}
	if !x.checking && now.Sub(x.checked) >= m.c.Limits.Check {
		x.checking, x.checked = true, now
		m.run(func() { m.check(ctx, x) })
	}
	for _, c := range stores {
		l := x.link(linkID{store: c.id})
		every := hearsayTime
		if lacking[c.id] {
			every = lackingTime
		}
		if now.Sub(l.asked) >= every {
			l.asked = now
			m.run(func() { _ = m.askWhere(ctx, c, x.id) }) // asked again later
		}
		m.tie(n, x, l, now, &c.current, func() error {
			err := m.meet(ctx, c, n, x.id)
			m.askFarewell(ctx, c, n, x.id)
			return err
		})
		if b := c.batches; b != nil {
			m.tie(n, x, x.link(linkID{c.id, true}), now, &b.current, func() error { return m.meetForBatches(ctx, b, n, x.id) })
		}
	}
}

// link returns a node's link for one kind of session of a store. Mesh.mu is held.
func (x *contact) link(id linkID) *link {
	l := x.links[id]
	if l == nil {
		l = &link{}
		x.links[id] = l
	}
	return l
}

// tie has a session opened if there is none and it is time to. The lower id opens; the
// other only if that does not. Mesh.mu is held.
func (m *Mesh) tie(n lattice.NodeID, x *contact, l *link, now time.Time, current *shown, meet func() error) {
	if l.opening || now.Before(l.next) || !lower(m.node, n) && now.Sub(x.since) < graceTime || current.has(n) {
		return
	}
	l.opening = true
	m.run(func() { m.open(x, l, meet) })
}

// run is spawn for who holds mu.
func (m *Mesh) run(f func()) {
	m.work.Go(f) // Run waits for the finder, and so for this, too
}

// open runs a session that this node opens, and notes how it went.
func (m *Mesh) open(x *contact, l *link, meet func() error) {
	began := time.Now()
	err := meet()
	m.mu.Lock()
	defer m.mu.Unlock()
	l.opening = false
	now := time.Now()
	if now.Sub(began) >= healthyTime {
		l.failures = 0
	} else {
		l.failures++
	}
	l.next = now.Add(backoff(l.failures, m.c.Limits.RedialMin, m.c.Limits.RedialMax))
	if !over(err) {
		x.failed = err.Error()
	}
}

// call calls a node that is not connected, if it is time to and its address is known.
func (m *Mesh) call(ctx context.Context, n lattice.NodeID, x *contact, now time.Time, free bool) bool {
	addresses, err := parseAddresses(m.book.addresses(n))
	m.mu.Lock()
	defer m.mu.Unlock()
	if x.connected {
		x.connected, x.since, x.trip = false, now, 0
		x.next = now.Add(backoff(0, m.c.Limits.RedialMin, m.c.Limits.RedialMax))
		clear(x.links)
	}
	if !free || x.calling || now.Before(x.next) || err != nil || len(addresses) == 0 {
		return false
	}
	x.calling = true
	m.run(func() {
		err := m.dial(ctx, x.id, addresses)
		m.mu.Lock()
		defer m.mu.Unlock()
		x.calling = false
		if err != nil {
			x.failures++
			x.failed = err.Error()
			x.next = time.Now().Add(backoff(x.failures, m.c.Limits.RedialMin, m.c.Limits.RedialMax))
		}
		m.look()
	})
	return true
}

// dial connects with a node at the addresses given and those that libp2p knows.
func (m *Mesh) dial(ctx context.Context, id peer.ID, addresses []multiaddr.Multiaddr) error {
	ctx, cancel := context.WithTimeout(ctx, 2*m.c.Limits.HelloTime)
	defer cancel()
	if s, ok := m.host.Network().(*swarm.Swarm); ok {
		s.Backoff().Clear(id) // when to call again is decided here
	}
	m.host.Peerstore().AddAddrs(id, addresses, peerstore.TempAddrTTL)
	if err := m.host.Connect(ctx, peer.AddrInfo{ID: id}); err != nil {
		return fmt.Errorf("call %s: %w", strings.Join(texts(addresses), ", "), plain(err))
	}
	return nil
}

// plain shortens libp2p's account of a failed call to its reasons.
func plain(err error) error {
	var all *swarm.DialError
	if !errors.As(err, &all) {
		return err
	}
	var why []string
	for _, e := range all.DialErrors {
		if s := e.Cause.Error(); !slices.Contains(why, s) {
			why = append(why, s)
		}
	}
	if all.Cause != nil {
		why = append(why, all.Cause.Error())
	}
	return errors.New(strings.Join(why, "; "))
}

// check measures the round trip to a node. One that does not answer twice is
// disconnected: the connection is dead, and the network has not said so.
func (m *Mesh) check(ctx context.Context, x *contact) {
	ctx, cancel := context.WithTimeout(ctx, m.c.Limits.HelloTime)
	defer cancel()
	trip, err := m.ping(ctx, x.id)
	var says multistream.ErrNotSupported[protocol.ID]
	m.mu.Lock()
	x.checking = false
	switch {
	case err == nil:
		x.trip, x.mute = trip, 0
	case errors.As(err, &says), errors.Is(err, network.ErrReset): // it lives, and does not care for pings, or for ours
		x.mute = 0
		if x.trip == 0 { // it may not know yet that this node is a member
			x.checked = time.Now().Add(m.c.Limits.Check/5 - m.c.Limits.Check)
		}
	default:
		x.mute++
		x.checked = time.Now().Add(m.c.Limits.RedialMin - m.c.Limits.Check) // again soon
	}
	dead := x.mute >= 2
	m.mu.Unlock()
	if dead && ctx.Err() != context.Canceled {
		_ = m.host.Network().ClosePeer(x.id)
	}
}

// told returns the addresses that a connected peer says it listens on.
func (m *Mesh) told(id peer.ID) []string {
	var out []string
	for _, a := range m.host.Peerstore().Addrs(id) {
		a = bare(a)
		if a != nil && callable(a) && len(a.String()) <= maxAddress {
			out = append(out, a.String())
		}
	}
	slices.Sort(out)
	return out
}

// bare is an address without the id of whom it leads to.
func bare(a multiaddr.Multiaddr) multiaddr.Multiaddr {
	out, _ := peer.SplitAddr(a)
	return out
}

func texts(all []multiaddr.Multiaddr) []string {
	out := make([]string, len(all))
	for i, a := range all {
		out[i] = a.String()
	}
	return out
}

// backoff is how long to wait after so many failures: doubled each time, up to most,
// and anything between half of it and all, so that nodes do not call in step.
func backoff(failures int, least, most time.Duration) time.Duration {
	d := least
	for range failures - 1 {
		if d *= 2; d >= most {
			d = most
			break
		}
	}
	return d/2 + rand.N(d/2+1)
}

// pulse notices that the machine slept: the wall clock went on without us.
type pulse struct{ last time.Time }

const sleptTime = 10 * time.Second

// beat reports whether the time since the last one is much longer by the wall clock
// than by the monotonic one, or is much too long by either.
func (p *pulse) beat(now time.Time) bool {
	gap := max(now.Sub(p.last), now.Round(0).Sub(p.last.Round(0)))
	p.last = now
	return gap > sleptTime
}

// localRoutes is this node's own addresses, to notice that they change.
func localRoutes() string {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	var out []string
	for _, a := range all {
		out = append(out, a.String())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}
