package group

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
)

// consumer is one group of the KIP-848 protocol, as a state machine.
//
// Every change of what the group is (a member, a subscription, a topic) raises
// the group epoch; the next heartbeat computes the target assignment of that
// epoch; each member is then led from what it has to its target:
//
//	stable      has its target, or nothing was found to change yet
//	unrevoked   was asked to let go of partitions, stays at its epoch until a
//	            heartbeat shows that it did (or it is removed: rebalance timeout)
//	unreleased  is at the target epoch, and gets the rest of its target when
//	            other members have let go of it
//
// owners is what makes that safe: a partition has an entry while a member has
// it or has not let go of it, and is given to nobody else for so long.
type consumer struct {
	cfg   *Config
	times Times

	epoch       int32 // of the group
	targetEpoch int32 // of the target assignment; <= epoch
	members     map[string]*consumerMember
	static      map[string]string // instance id -> member id
	owners      map[lattice.TopicPartition]*consumerMember

	// topics are the subscribed ones that exist, as of version.
	topics  map[string]TopicInfo
	version uint64

	emptySince time.Time
}

type memberState uint8

const (
	memberStable memberState = iota
	memberUnrevoked
	memberUnreleased
)

type consumerMember struct {
	id, instance, rack string
	client             Client
	epoch, previous    int32 // EpochLeaveStatic while a static member is away
	rebalance          time.Duration
	assignor           string
	topics             []string // subscribed by name; sorted
	regex              string
	pattern            *regexp.Regexp
	matched            []string // topics that the pattern matches

	session  time.Time // removed then, unless it is heard of before
	revokeBy time.Time // removed then, unless it has let go of revoking

	state    memberState
	assigned partitionSet // may own
	revoking partitionSet // was asked to let go of
	target   partitionSet
}

// topicView is the topics at one moment: version changes when they do.
type topicView struct {
	Topics
	version uint64
}

func newConsumer(cfg *Config, now time.Time, epoch int32) *consumer {
	return &consumer{
		cfg: cfg, times: Times{cfg.ConsumerSession, cfg.ConsumerHeartbeat}, epoch: epoch, targetEpoch: epoch, emptySince: now,
		members: map[string]*consumerMember{}, static: map[string]string{},
		owners: map[lattice.TopicPartition]*consumerMember{}, topics: map[string]TopicInfo{},
	}
}

func (c *consumer) ordered() []*consumerMember {
	return slices.SortedFunc(maps.Values(c.members), func(a, b *consumerMember) int { return cmp.Compare(a.id, b.id) })
}

func (c *consumer) state() State {
	if len(c.members) == 0 {
		return Empty
	}
	if c.epoch > c.targetEpoch {
		return Assigning
	}
	for _, m := range c.members {
		if m.state != memberStable || m.epoch != c.targetEpoch {
			return Reconciling
		}
	}
	return Stable
}

// remove takes a member out and lets go of all it had.
func (c *consumer) remove(now time.Time, m *consumerMember) {
	for tp := range m.assigned {
		delete(c.owners, tp)
	}
	for tp := range m.revoking {
		delete(c.owners, tp)
	}
	delete(c.members, m.id)
	if m.instance != "" {
		delete(c.static, m.instance)
	}
	c.epoch++
	if len(c.members) == 0 {
		c.emptySince = now
		c.targetEpoch = c.epoch
		c.topics = map[string]TopicInfo{}
	}
}

// leave handles the member epochs -1 and -2, and a classic LeaveGroup.
func (c *consumer) leave(now time.Time, id, instance string, epoch int32) error {
	m, err := c.find(id, instance)
	if err != nil {
		return err
	}
	if epoch != EpochLeaveStatic {
		c.remove(now, m)
		return nil
	}
	if m.instance == "" {
		return fmt.Errorf("%w: member epoch -2 is for static members", ErrInvalidRequest)
	}
	for tp := range m.revoking { // the client is gone, and with it its hold on these
		delete(c.owners, tp)
	}
	m.revoking, m.revokeBy, m.state = partitionSet{}, never, memberStable
	m.epoch = EpochLeaveStatic
	m.session = now.Add(c.times.Session)
	return nil
}

// find returns a member, or says why the caller is not it.
func (c *consumer) find(id, instance string) (*consumerMember, error) {
	if instance != "" {
		holder, ok := c.static[instance]
		if !ok {
			return nil, ErrUnknownMember
		}
		if id != "" && holder != id {
			return nil, ErrFencedInstance
		}
		id = holder
	}
	if m := c.members[id]; m != nil {
		return m, nil
	}
	return nil, ErrUnknownMember
}

// mayCommit says whether a commit under this name is in order; see classic.mayCommit.
func (c *consumer) mayCommit(r CommitRequest, txn bool) error {
	nobody := r.MemberID == "" && r.InstanceID == ""
	if r.Generation < 0 && (len(c.members) == 0 || txn && nobody) {
		return nil
	}
	return c.current(r.MemberID, r.Generation)
}

// mayFetch says whether a fetch of offsets under this name is in order.
func (c *consumer) mayFetch(r FetchRequest) error {
	if r.MemberID == "" {
		return nil // an administrator
	}
	return c.current(r.MemberID, r.MemberEpoch)
}

func (c *consumer) current(id string, epoch int32) error {
	m := c.members[id]
	switch {
	case m == nil:
		return ErrUnknownMember
	case m.epoch != epoch || epoch < 0: // a static member that is away commits nothing
		return ErrStaleMemberEpoch
	}
	return nil
}

// subscribed reports whether a member is subscribed to the topic.
func (c *consumer) subscribed(topic string) bool {
	for _, m := range c.members {
		if slices.Contains(m.topics, topic) || slices.Contains(m.matched, topic) {
			return true
		}
	}
	return false
}

// tick removes the members whose time is over.
func (c *consumer) tick(now time.Time) {
	due := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	for _, m := range c.ordered() {
		if due(m.session) || due(m.revokeBy) {
			c.remove(now, m)
		}
	}
}

// deadline returns when tick must be called next; zero: not before the next request.
func (c *consumer) deadline() time.Time {
	next := never
	for _, m := range c.members {
		for _, t := range [...]time.Time{m.session, m.revokeBy} {
			if !t.IsZero() && (next.IsZero() || t.Before(next)) {
				next = t
			}
		}
	}
	return next
}

func (c *consumer) describe(name func(lattice.TopicID) string) Description {
	d := Description{
		Type: Consumer, State: c.state(), ProtocolType: consumerProtocol,
		Protocol: c.assignorName(), Epoch: c.epoch, AssignmentEpoch: c.targetEpoch,
	}
	for _, m := range c.ordered() {
		d.Members = append(d.Members, MemberDescription{
			ID: m.id, InstanceID: m.instance, Rack: m.rack, Client: m.client, Epoch: m.epoch,
			Subscribed: slices.Clone(m.topics), Regex: m.regex,
			Assigned: m.assigned.byTopic(name), Target: m.target.byTopic(name),
		})
	}
	return d
}

// verify returns what is wrong with the machine's own state; tests call it
// after every step.
func (c *consumer) verify() error {
	held := 0
	for id, m := range c.members {
		if m.id != id || m.instance != "" && c.static[m.instance] != id {
			return fmt.Errorf("member %s is filed wrongly", id)
		}
		for _, set := range []partitionSet{m.assigned, m.revoking} {
			held += len(set)
			for tp := range set {
				if c.owners[tp] != m {
					return fmt.Errorf("%s has %s, which is not on its name", id, tp)
				}
			}
		}
		if m.assigned.meets(m.revoking) {
			return fmt.Errorf("%s is to keep and to let go of the same partition", id)
		}
		if m.epoch > c.targetEpoch || c.targetEpoch > c.epoch {
			return fmt.Errorf("epochs: member %s %d, target %d, group %d", id, m.epoch, c.targetEpoch, c.epoch)
		}
		if (m.state == memberUnrevoked) != (len(m.revoking) > 0) || (len(m.revoking) > 0) == m.revokeBy.IsZero() {
			return fmt.Errorf("%s is asked for %d partitions in state %d by %v", id, len(m.revoking), m.state, m.revokeBy)
		}
	}
	if held != len(c.owners) {
		return fmt.Errorf("%d partitions are on somebody's name, members have %d", len(c.owners), held)
	}
	return nil
}
