package p2p

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	manet "github.com/multiformats/go-multiaddr/net"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/mesh/batches"
	"github.com/lattice-log/lattice/mesh/forward"
	"github.com/lattice-log/lattice/mesh/lag"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// Status is what people are shown of the mesh. It is at most a second old.
type Status struct {
	Node      lattice.NodeID
	Addresses []string // where others may call
	Strangers int      // connected, that are no members
	Turned    uint64   // connections that were refused
	Stores    []StoreStatus
}

// StoreStatus is about one store.
type StoreStatus struct {
	Store   lattice.StoreID
	Root    reconcile.Root // of what is here: equal roots mean the same logs
	Peers   []PeerStatus   // members, and those that have a session, ascending by node
	Refused map[reconcile.Reason]uint64
	Failed  string // why the store takes no part now; empty: it does
	Coming  Coming
	// Fetching is the snapshot that is being fetched; nil: none.
	Fetching *Fetching

	// Batches is about the records of its topics; nil: they do not travel.
	Batches *BatchStatus
}

// BatchStatus is about the batches of one store's partitions.
type BatchStatus struct {
	// Peers are those with which a session is or was open, ascending by node: Logs are
	// partitions, Behind and Ahead batches. How they are reached StoreStatus.Peers says.
	Peers   []PeerStatus
	Behind  []batches.Lag // partitions of which others have more, the furthest behind first; 64 at most
	Refused map[reconcile.Reason]uint64
	Failed  string // why they do not travel now; empty: they do
	Coming  Coming
}

// Coming is what is on its way here.
type Coming struct {
	Logs      int     // of which others have more than this node
	Blocks    uint64  // entries, or batches, that this node lacks of them
	PerSecond float64 // that came, over the last seconds
	Bytes     float64 // a second, of messages
}

// progress is how fast things come.
type progress struct {
	taken         uint64 // blocks that came, in all
	blocks, bytes rate
}

// PeerStatus is about one node and one store.
type PeerStatus struct {
	Node      lattice.NodeID
	Reachable bool
	Since     time.Time     // of that; zero: it was never reached since this node began
	RoundTrip time.Duration // 0: not measured yet
	Addresses []string      // where it is called, the newest first
	Failed    string        // why it was not reached last, or why the last session ended

	Session bool   // one is open
	Equal   bool   // what it has, as it said last, is what is here
	Logs    int    // that it has more of
	Behind  uint64 // entries that it has and this node lacks
	Ahead   uint64 // entries that it wants and was not sent yet
	Lacks   Lacking
	In, Out uint64 // bytes of messages since this node began
	Slow    uint64 // sessions that ended because it took its messages too slowly
}

// Status returns what is known now.
func (m *Mesh) Status() Status {
	out := Status{Node: m.node, Addresses: m.Addresses()}
	out.Strangers, out.Turned = m.gate.counts()
	for _, c := range m.carriers() {
		s := c.current.get(c.id)
		for _, n := range c.store.Members() {
			if n != m.node && !slices.ContainsFunc(s.Peers, func(p PeerStatus) bool { return p.Node == n }) {
				s.Peers = append(s.Peers, PeerStatus{Node: n})
			}
		}
		for i := range s.Peers {
			m.reach(&s.Peers[i])
		}
		slices.SortFunc(s.Peers, byNode)
		if c.batches != nil {
			s.Batches = c.batches.status()
		}
		out.Stores = append(out.Stores, s)
	}
	return out
}

func byNode(a, b PeerStatus) int { return slices.Compare(a.Node[:], b.Node[:]) }

// reach fills in how a node is reached.
func (m *Mesh) reach(p *PeerStatus) {
	p.Addresses = m.book.addresses(p.Node)
	m.mu.Lock()
	defer m.mu.Unlock()
	if x := m.contacts[p.Node]; x != nil {
		p.Reachable, p.Since, p.RoundTrip = x.connected, x.since, x.trip
		if !p.Reachable && x.failed != "" {
			p.Failed = x.failed
		}
	}
}

// Addresses returns where others may call this node, as it stands in invitations:
// multiaddresses, at most 16. Those of the loopback interface are left out if there
// are others.
func (m *Mesh) Addresses() []string {
	var out, loopback []string
	for _, a := range m.host.Addrs() {
		a = bare(a)
		switch {
		case a == nil || !callable(a) || len(a.String()) > maxAddress:
		case manet.IsIPLoopback(a):
			loopback = append(loopback, a.String())
		default:
			out = append(out, a.String())
		}
	}
	if len(out) == 0 {
		out = loopback
	}
	slices.Sort(out)
	return out[:min(len(out), maxAddresses)]
}

// Seen is when a node was connected with this one last; the zero time if that is not known.
func (m *Mesh) Seen(n lattice.NodeID) time.Time { return m.book.lastSeen(n) }

// Remember notes where a node may be called, as its operator says. It is called if it
// is a member of a store here. Kind Invalid: one is no address.
func (m *Mesh) Remember(n lattice.NodeID, addresses []string) error {
	if _, err := parseAddresses(addresses); err != nil {
		return err
	}
	m.book.remember(n, addresses[:min(len(addresses), maxAddresses)])
	m.look()
	return m.book.save()
}

// shown is what a carrier shows, and what it adds up over sessions. Safe for
// concurrent use.
type shown struct {
	mu     sync.Mutex
	status StoreStatus
	open   map[lattice.NodeID]bool
	sums   map[lattice.NodeID]*sums
	counts map[reconcile.Reason]uint64 // what was refused outside of sessions

	fetching *Fetching
}

// sums are of sessions that have ended.
type sums struct {
	in, out, slow uint64
	why           string // the last one did
}

// maxSums bounds the peers of whom something is added up.
const maxSums = 4096

func (x *shown) sum(n lattice.NodeID) *sums {
	if x.sums == nil || len(x.sums) >= maxSums {
		x.sums = map[lattice.NodeID]*sums{}
	}
	s := x.sums[n]
	if s == nil {
		s = &sums{}
		x.sums[n] = s
	}
	return s
}

// show takes the state of the Replica and its sessions.
func (c *carrier) show() {
	var all []PeerStatus
	for _, p := range c.replica.Peers() {
		if s := c.sessions[p.Node]; s != nil {
			all = append(all, PeerStatus{
				Node: p.Node, Session: p.Greeted, Equal: p.Equal, Logs: p.Logs, Behind: p.Behind, Ahead: p.Ahead, In: s.in.Load(), Out: s.out.Load(),
			})
		}
	}
	about := StoreStatus{Root: c.replica.Root(), Refused: c.replica.Refusals()}
	about.Coming.Logs, about.Coming.Blocks, c.came.taken = c.replica.Lacking()
	c.current.show(about, all, &c.came, c.store.Members(), c.replica.Lacks)
}

// lack says of each peer what it lacks, of members with which no session is or was open too. mu is held.
func (x *shown) lack(members []lattice.NodeID, of func(lattice.NodeID) lag.Sum) {
	at := make(map[lattice.NodeID]int, len(x.status.Peers))
	for i, p := range x.status.Peers {
		at[p.Node] = i
		x.status.Peers[i].Lacks = lackingOf(of(p.Node))
	}
	for _, n := range members {
		if _, ok := at[n]; !ok {
			if l := lackingOf(of(n)); l.Known {
				x.status.Peers = append(x.status.Peers, PeerStatus{Node: n, Lacks: l})
			}
		}
	}
}

// fetch says how far the snapshot is that is being fetched; nil: none is.
func (x *shown) fetch(f *Fetching) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.fetching = nil; f != nil {
		now := *f
		x.fetching = &now
	}
}

// come says how fast what this node lacks came on since the last time. mu is held.
func (x *shown) come(p *progress) {
	bytes := uint64(0)
	for _, s := range x.status.Peers {
		bytes += s.In
	}
	now := time.Now()
	p.blocks.see(now, p.taken)
	p.bytes.see(now, bytes)
	x.status.Coming.PerSecond, x.status.Coming.Bytes = p.blocks.per, p.bytes.per
}

// show takes the status of a store, and of the peers with which a session is open, to
// whose bytes those of earlier sessions are added; how much came here; and what members lack.
func (x *shown) show(s StoreStatus, all []PeerStatus, came *progress, members []lattice.NodeID, lacks func(lattice.NodeID) lag.Sum) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.status = s
	x.open = make(map[lattice.NodeID]bool, len(all))
	for _, p := range all {
		x.open[p.Node] = true
		old := x.sum(p.Node)
		p.In, p.Out, p.Slow, p.Failed = p.In+old.in, p.Out+old.out, old.slow, old.why
		x.status.Peers = append(x.status.Peers, p)
	}
	for n, s := range x.sums {
		if !x.open[n] {
			x.status.Peers = append(x.status.Peers, PeerStatus{Node: n, In: s.in, Out: s.out, Slow: s.slow, Failed: s.why})
		}
	}
	x.lack(members, lacks)
	x.come(came)
}

func (x *shown) get(id lattice.StoreID) StoreStatus {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.status
	s.Refused = maps.Clone(s.Refused)
	if s.Refused == nil {
		s.Refused = map[reconcile.Reason]uint64{}
	}
	for why, n := range x.counts {
		s.Refused[why] += n
	}
	s.Fetching = x.fetching
	s.Store, s.Peers = id, slices.SortedFunc(slices.Values(s.Peers), byNode)
	return s
}

// has reports whether a session with a node is open.
func (x *shown) has(n lattice.NodeID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.open[n]
}

// gone adds up what an ended session carried.
func (x *shown) gone(n lattice.NodeID, in, out uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	sum := x.sum(n)
	sum.in += in
	sum.out += out
	delete(x.open, n)
}

// slow counts a session that ended because the peer did not take its messages.
func (x *shown) slow(n lattice.NodeID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sum(n).slow++
}

// ended notes why a session did.
func (x *shown) ended(n lattice.NodeID, why string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sum(n).why = why
}

// reasonOf names why something was refused that came outside of a session.
func reasonOf(err error) reconcile.Reason {
	switch {
	case errors.Is(err, forward.ErrMessage), errors.Is(err, errAnswer):
		return reconcile.BadMessage
	case errors.Is(err, errLaterSnapshot):
		return reconcile.NotShown
	}
	switch lattice.KindOf(err) {
	case lattice.Corrupt, lattice.Invalid:
		return reconcile.Unproven
	case lattice.Denied:
		return reconcile.NotEntitled
	case lattice.TooLarge:
		return reconcile.Oversize
	case lattice.Storage, lattice.Unavailable:
		return reconcile.NotStored
	}
	return reconcile.NotShown
}

// refuse counts what a peer sent outside of a session, and was refused.
func (x *shown) refuse(why reconcile.Reason) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.counts == nil {
		x.counts = map[reconcile.Reason]uint64{}
	}
	x.counts[why]++
}

// failed says why the store takes no part.
func (x *shown) failed(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.status.Failed = err.Error()
}

// stopped says that no session is open.
func (x *shown) stopped() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.open = nil
	for i := range x.status.Peers {
		x.status.Peers[i].Session, x.status.Peers[i].Equal = false, false
	}
}
