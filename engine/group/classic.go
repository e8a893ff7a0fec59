package group

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// classic is one group of the classic protocol, as a state machine.
//
//	Empty --join--> PreparingRebalance --all joined or time over--> CompletingRebalance
//	  ^                  ^        |                                     |          |
//	  |                  |        +--nobody left--> Empty               |          |
//	  |                  +--member joins, leaves, times out-------------+          |
//	  |                  +--likewise------------ Stable <----leader's SyncGroup----+
//
// A member is parked, with its reply kept here, while it waits in
// PreparingRebalance for the join to complete or in CompletingRebalance for the
// leader's assignment. Each reply kept here is answered exactly once: by the
// event it waits for, or with an error when its member is removed, replaced or
// asks again.
type classic struct {
	cfg *Config

	state        State
	generation   int32
	protocolType string
	protocol     string // chosen for this generation
	leader       string // member id; "" when there are no members
	members      map[string]*classicMember
	static       map[string]string    // instance id -> member id
	pending      map[string]time.Time // ids given out but not used yet (KIP-394) -> until when
	joined       int                  // counts members ever added, to keep their order

	// joinBy ends PreparingRebalance. In a group's first rebalance (initial) it is
	// pushed back by delay for as long as members keep arriving (KIP-134), until
	// nothing of delayLeft remains.
	joinBy    time.Time
	initial   bool
	arrived   bool // a member arrived since delay was last set
	delay     time.Duration
	delayLeft time.Duration

	// syncBy is when members of unsynced are removed.
	syncBy   time.Time
	unsynced map[string]bool

	emptySince time.Time
}

type classicMember struct {
	id, instance string
	client       Client
	session      time.Duration
	rebalance    time.Duration
	protocols    []Protocol
	order        int

	// alive is when the member is removed unless it is heard of before. While it
	// is parked it counts as heard of, but for a fresh member: nobody else would
	// notice that its client gave up.
	alive time.Time
	fresh bool

	join       func(JoinResult) // parked JoinGroup
	sync       func(SyncResult) // parked SyncGroup
	assignment []byte
}

func newClassic(cfg *Config, now time.Time, generation int32) *classic {
	return &classic{
		cfg: cfg, state: Empty, generation: generation, emptySince: now,
		members: map[string]*classicMember{}, static: map[string]string{},
		pending: map[string]time.Time{}, unsynced: map[string]bool{},
	}
}

// ordered returns the members in the order of their arrival.
func (c *classic) ordered() []*classicMember {
	return slices.SortedFunc(maps.Values(c.members), func(a, b *classicMember) int { return cmp.Compare(a.order, b.order) })
}

func (c *classic) waiting() (n int) {
	for _, m := range c.members {
		if m.join != nil {
			n++
		}
	}
	return n
}

// check finds a member, or says why the caller is not it.
func (c *classic) check(id, instance string) (*classicMember, error) {
	if instance != "" {
		holder, ok := c.static[instance]
		if !ok {
			return nil, ErrUnknownMember
		}
		if holder != id {
			return nil, ErrFencedInstance
		}
	}
	if m := c.members[id]; m != nil {
		return m, nil
	}
	return nil, ErrUnknownMember
}

// supports reports whether a member that offers these protocols could be in the
// group together with those that are there.
func (c *classic) supports(protocolType string, offered []Protocol) bool {
	if len(c.members) == 0 {
		return protocolType != "" && len(offered) > 0
	}
	if protocolType != c.protocolType {
		return false
	}
	common := c.common()
	return slices.ContainsFunc(offered, func(p Protocol) bool { return common[p.Name] })
}

// common returns the protocols that every member offers.
func (c *classic) common() map[string]bool {
	count := map[string]int{}
	for _, m := range c.members {
		names := map[string]bool{} // a name given twice is one vote
		for _, p := range m.protocols {
			names[p.Name] = true
		}
		for name := range names {
			count[name]++
		}
	}
	common := map[string]bool{}
	for name, n := range count {
		if n == len(c.members) {
			common[name] = true
		}
	}
	return common
}

// choose returns the protocol that most members prefer among the common ones;
// of equally liked ones, the first by name.
func (c *classic) choose() string {
	common := c.common()
	votes := map[string]int{}
	for _, m := range c.members {
		for _, p := range m.protocols {
			if common[p.Name] {
				votes[p.Name]++
				break
			}
		}
	}
	best := ""
	for _, name := range slices.Sorted(maps.Keys(votes)) {
		if best == "" || votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

func (m *classicMember) metadata(protocol string) []byte {
	for _, p := range m.protocols {
		if p.Name == protocol {
			return p.Metadata
		}
	}
	return nil
}

func (m *classicMember) offers(protocols []Protocol) bool {
	return slices.EqualFunc(m.protocols, protocols, func(a, b Protocol) bool {
		return a.Name == b.Name && bytes.Equal(a.Metadata, b.Metadata)
	})
}

// add puts a new member into the group.
func (c *classic) add(m *classicMember, protocolType string) {
	if len(c.members) == 0 {
		c.protocolType = protocolType
	}
	c.joined++
	m.order = c.joined
	c.members[m.id] = m
	if m.instance != "" {
		c.static[m.instance] = m.id
	}
	if c.leader == "" {
		c.leader = m.id
	}
	delete(c.pending, m.id)
}

// remove takes a member out; its parked requests are answered with err.
func (c *classic) remove(m *classicMember, err error, fx *effects) {
	c.answerJoin(m, JoinResult{Err: err}, fx)
	c.answerSync(m, SyncResult{Err: err}, fx)
	delete(c.members, m.id)
	delete(c.unsynced, m.id)
	if m.instance != "" {
		delete(c.static, m.instance)
	}
	if c.leader == m.id {
		c.leader = ""
		if rest := c.ordered(); len(rest) > 0 {
			c.leader = rest[0].id
		}
	}
}

func (c *classic) answerJoin(m *classicMember, r JoinResult, fx *effects) {
	if m.join == nil {
		return
	}
	r.MemberID = m.id
	if r.Err != nil {
		r.Generation = -1
	}
	fx.join(m.join, r)
	m.join = nil
}

func (c *classic) answerSync(m *classicMember, r SyncResult, fx *effects) {
	if m.sync == nil {
		return
	}
	fx.sync(m.sync, r)
	m.sync = nil
}

// heard notes that a member lives.
func (m *classicMember) heard(now time.Time) { m.alive = now.Add(m.session) }

// subscribed reports whether a member may read the topic: when the members'
// metadata cannot be read, any consumer might.
func (c *classic) subscribed(topic string) bool {
	if c.protocolType != consumerProtocol {
		return false
	}
	for _, m := range c.members {
		if len(m.protocols) == 0 {
			continue
		}
		metadata := m.metadata(c.protocol)
		if metadata == nil {
			metadata = m.protocols[0].Metadata
		}
		topics, err := parseSubscription(metadata)
		if err != nil || slices.Contains(topics, topic) {
			return true
		}
	}
	return false
}

// deadline returns when tick must be called next; zero: not before the next request.
func (c *classic) deadline() time.Time {
	next := never
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	sooner(c.joinBy)
	sooner(c.syncBy)
	for _, m := range c.members {
		sooner(m.alive)
	}
	for _, until := range c.pending {
		sooner(until)
	}
	return next
}

// close answers everything that is parked.
func (c *classic) close(err error, fx *effects) {
	for _, m := range c.ordered() {
		c.answerJoin(m, JoinResult{Err: err}, fx)
		c.answerSync(m, SyncResult{Err: err}, fx)
	}
}

func (c *classic) describe() Description {
	d := Description{
		Type: Classic, State: c.state, ProtocolType: c.protocolType,
		Leader: c.leader, Epoch: c.generation,
	}
	if c.state == Stable {
		d.Protocol = c.protocol
	}
	for _, m := range c.ordered() {
		md := MemberDescription{ID: m.id, InstanceID: m.instance, Client: m.client, Epoch: c.generation}
		if c.state == Stable {
			md.Metadata, md.Assignment = m.metadata(c.protocol), m.assignment
			if c.protocolType == consumerProtocol {
				md.Subscribed, _ = parseSubscription(md.Metadata) // people may do without
				md.Assigned, _ = parseAssignment(md.Assignment)
			}
		}
		d.Members = append(d.Members, md)
	}
	return d
}

// verify returns what is wrong with the machine's own state; tests call it
// after every step.
func (c *classic) verify() error {
	parked, synced := 0, 0
	for id, m := range c.members {
		if m.join != nil {
			parked++
		}
		if m.sync != nil {
			synced++
		}
		if m.id != id || m.instance != "" && c.static[m.instance] != id {
			return fmt.Errorf("member %s is filed wrongly", id)
		}
	}
	switch {
	case (c.state == Empty) && len(c.members) > 0:
		return fmt.Errorf("empty with %d members", len(c.members))
	case c.state != PreparingRebalance && parked > 0:
		return fmt.Errorf("%d parked joins in %s", parked, c.state)
	case c.state != CompletingRebalance && synced > 0:
		return fmt.Errorf("%d parked syncs in %s", synced, c.state)
	case (c.state == PreparingRebalance) == c.joinBy.IsZero():
		return fmt.Errorf("%s with join deadline %v", c.state, c.joinBy)
	case len(c.members) > 0 && c.members[c.leader] == nil:
		return fmt.Errorf("leader %q is no member", c.leader)
	case len(c.members) == 0 && (c.state == Stable || c.state == CompletingRebalance):
		return fmt.Errorf("%s without members", c.state)
	}
	return nil
}
