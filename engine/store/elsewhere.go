package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/partition"
)

// What clients of this node want changed in partitions that another node leads is done
// there, and the leader's answer is theirs; nothing is made up here. How it gets there
// is Elsewhere's affair. What other nodes' clients want of partitions that are led here
// comes in by Led and TruncateLed.
//
// # What an answer means
//
// ErrAway: nothing was done, and nothing will be. ErrNoAnswer: the leader was asked,
// and may have done it, or may still. The client asks again, and an idempotent
// producer's batch that is there already is answered with its place. Any other error is
// the leader's own (Answered). A crash of this node between the ask and the answer is
// to the client what ErrNoAnswer is: its connection breaks. The leader answers when the
// records are durable, as it answers its own clients.

var (
	// ErrAway (5): another node leads the partition, and cannot be reached now. Clients
	// retry it, and look at the metadata again.
	ErrAway = lattice.E(lattice.Unavailable, errors.New("another node leads the partition, and cannot be reached now"))
	// ErrNoAnswer (7): the partition's leader was asked, and has not answered. Clients
	// retry it; whether the records are there is not known.
	ErrNoAnswer = lattice.E(lattice.Unavailable, errors.New("the partition's leader was asked, and has not answered"))
	// ErrKept (44): the topic is compacted, and does not delete.
	ErrKept = lattice.E(lattice.Conflict, errors.New("the topic is compacted and does not delete"))
	// ErrMayNotWrite (29): who asks is no writer of the store.
	ErrMayNotWrite = lattice.E(lattice.Denied, errors.New("only writers of the store may append to its topics"))
)

// Answered is an error that a partition's leader on another node answered. It is told
// on as it is.
type Answered struct {
	Code    int16 // Kafka's
	Text    string
	Records []*record.RecordError // for which a batch is refused, if it is for some
}

func (a *Answered) Error() string { return a.Text }

// RemoteAppend is an append to a partition that another node leads.
type RemoteAppend struct {
	Partition lattice.TopicPartition
	// Acks is Kafka's: 0, 1 or -1.
	Acks int8
	// Wait is how long the leader's answer may take.
	Wait time.Duration
	// Append is as for a partition, but that Batches are not changed, and are the
	// caller's again when Elsewhere.Append returns.
	partition.Append
}

// Elsewhere has other nodes do what is to be done in partitions that they lead. Safe
// for concurrent use. No method blocks; done is called exactly once, with no lock
// held, possibly before they return. Errors wrap ErrAway or ErrNoAnswer, or an
// *Answered.
type Elsewhere interface {
	// Append appends. What one goroutine appends to one leader comes there in order,
	// as long as the connection lasts; after a break, what was under way is answered
	// with an error before what is asked then is taken.
	Append(leader lattice.NodeID, a RemoteAppend)
	// Lead has a partition's leader give it to another.
	Lead(leader lattice.NodeID, tp lattice.TopicPartition, to lattice.NodeID, wait time.Duration, done func(error))
	// Ask has the home of a group do what a client asked, as Store.Ask says.
	Ask(home lattice.NodeID, ask []byte, wait time.Duration, done func([]byte, error)) (cancel func())
	// Reaches reports whether another node can be asked now.
	Reaches(node lattice.NodeID) bool
	// Truncate moves the start of a log forward; before -1: to the high watermark.
	Truncate(leader lattice.NodeID, tp lattice.TopicPartition, before int64, wait time.Duration, done func(start int64, err error))
}

// UseElsewhere says how other leaders are reached. Until then they are not.
func (s *Store) UseElsewhere(e Elsewhere) { s.elsewhere.Store(&e) }

// Forwards reports whether other leaders can be asked at all.
func (s *Store) Forwards() bool { return s.elsewhere.Load() != nil }

// Route returns the partition if this node leads it, else nil and who does. Errors:
// ErrNoTopic, ErrNotOpen. It does not allocate.
func (s *Store) Route(id lattice.TopicID, n int32) (*partition.Partition, lattice.NodeID, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t, ok := s.identified(id)
	switch {
	case !ok || n < 0 || n >= t.rec.Partitions:
		return nil, lattice.NodeID{}, ErrNoTopic
	case int(n) < len(t.parts):
		if p := t.parts[n]; !p.Leads() {
			return nil, p.Leader(), nil
		}
		return t.parts[n], s.info.Node, nil
	case t.from.leader != s.info.Node:
		return nil, t.from.leader, nil
	}
	return nil, t.from.leader, ErrNotOpen
}

// Gone says that this node was removed from the store, so that nothing which its clients
// append would count: nil, or an error that wraps ErrMayNotWrite. It never waits.
func (s *Store) Gone() error {
	if err := s.state.Gone(); err != nil {
		return fmt.Errorf("%w: %w", ErrMayNotWrite, err)
	}
	return nil
}

// Append appends where the partition is led. wait bounds how long another leader's
// answer may take. Errors besides those of partition.Append: ErrNoTopic, ErrNotOpen,
// ErrNotLeader (no other leader can be asked on this node), and those of Elsewhere.
func (s *Store) Append(id lattice.TopicID, n int32, acks int8, wait time.Duration, a partition.Append) {
	p, leader, err := s.Route(id, n)
	if err == nil {
		err = s.Gone()
	}
	switch {
	case err != nil:
		a.Done(partition.Result{Base: -1, AppendTime: -1, Start: -1}, err)
	case p != nil:
		a.All, a.Wait = acks == -1, wait
		p.Append(a)
	default:
		s.AppendElsewhere(leader, RemoteAppend{Partition: lattice.TopicPartition{Topic: id, Partition: n}, Acks: acks, Wait: wait, Append: a})
	}
}

// heard is how far the logs of other leaders go at least, by what this node was told:
// their answers, and offsets that groups committed. It is a hint, and gone after a
// restart.
type heard struct {
	mu   sync.Mutex
	ends map[lattice.TopicPartition]int64
}

// HearEnd notes that the log of a partition, if another node leads it, goes to end.
func (s *Store) HearEnd(tp lattice.TopicPartition, end int64) {
	if p, _, err := s.Route(tp.Topic, tp.Partition); err != nil || p != nil || end <= 0 {
		return
	}
	h := &s.heard
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ends == nil {
		h.ends = map[lattice.TopicPartition]int64{}
	}
	h.ends[tp] = max(h.ends[tp], end)
}

// HeardEnd returns how far the log of a partition goes at least, 0 if nothing was heard.
func (s *Store) HeardEnd(tp lattice.TopicPartition) int64 {
	s.heard.mu.Lock()
	defer s.heard.mu.Unlock()
	return s.heard.ends[tp]
}

// forgetBeyond forgets that the log of a partition goes further than to an offset.
func (s *Store) forgetBeyond(tp lattice.TopicPartition, end int64) {
	s.heard.mu.Lock()
	defer s.heard.mu.Unlock()
	if s.heard.ends[tp] > end {
		s.heard.ends[tp] = end
	}
}

// forgetHeard forgets a topic that has gone.
func (s *Store) forgetHeard(id lattice.TopicID) {
	s.heard.mu.Lock()
	defer s.heard.mu.Unlock()
	maps.DeleteFunc(s.heard.ends, func(tp lattice.TopicPartition, _ int64) bool { return tp.Topic == id })
}

// AppendElsewhere appends to a partition of which Route has named another leader.
func (s *Store) AppendElsewhere(leader lattice.NodeID, a RemoteAppend) {
	e := s.elsewhere.Load()
	if e == nil {
		a.Done(partition.Result{Base: -1, AppendTime: -1, Start: -1}, ErrNotLeader)
		return
	}
	done, tp := a.Done, a.Partition
	a.Done = func(r partition.Result, err error) {
		if err == nil {
			s.HearEnd(tp, r.Base+1)
		}
		done(r, err)
	}
	(*e).Append(leader, a)
}

// Truncate moves the start of a partition's log forward, where it is led; before -1:
// to the high watermark. It returns the start. Errors besides those of
// partition.Truncate: as of Append, and ErrKept.
func (s *Store) Truncate(ctx context.Context, id lattice.TopicID, n int32, before int64, wait time.Duration) (int64, error) {
	p, leader, err := s.Route(id, n)
	switch {
	case err != nil:
		return -1, err
	case p != nil:
		return s.truncate(ctx, p, before)
	}
	e := s.elsewhere.Load()
	if e == nil {
		return -1, ErrNotLeader
	}
	type answer struct {
		start int64
		err   error
	}
	got := make(chan answer, 1)
	(*e).Truncate(leader, lattice.TopicPartition{Topic: id, Partition: n}, before, wait, func(start int64, err error) { got <- answer{start, err} })
	select {
	case a := <-got:
		return a.start, a.err
	case <-ctx.Done():
		return -1, ctx.Err()
	}
}

// truncate truncates a partition that is led here, if its topic deletes.
func (s *Store) truncate(ctx context.Context, p *partition.Partition, before int64) (int64, error) {
	t, ok := s.TopicByID(p.ID().Topic)
	if !ok {
		return -1, ErrNoTopic
	}
	if policy := t.Config["cleanup.policy"]; policy != "" && !t.Internal && !strings.Contains(policy, "delete") {
		return -1, fmt.Errorf("topic %q: %w", t.Name, ErrKept)
	}
	return p.Truncate(ctx, before)
}

// led returns a partition for what a member asks of its leader.
func (s *Store) led(from lattice.NodeID, tp lattice.TopicPartition) (*partition.Partition, error) {
	m, ok := s.state.Member(from)
	if !ok || m.Role < roster.Writer {
		return nil, fmt.Errorf("%s: %w", from.Short(), ErrMayNotWrite)
	}
	p, leader, err := s.Route(tp.Topic, tp.Partition)
	if err == nil && p == nil {
		err = fmt.Errorf("%s leads it: %w", leader.Short(), ErrNotLeader)
	}
	return p, err
}

// AppendLed appends what a client of another member sent to a partition that is led
// here. Nothing of it is believed: who asks may be hostile. It holds to what Append
// does; besides, a transaction's batch is refused, since its coordinator is not here
// (partition.ErrTransaction). Errors: ErrMayNotWrite, ErrNotLeader, ErrNoTopic,
// ErrNotOpen.
func (s *Store) AppendLed(from lattice.NodeID, tp lattice.TopicPartition, a partition.Append) {
	p, err := s.led(from, tp)
	if err == nil {
		err = noTransaction(a.Batches)
	}
	if err != nil {
		a.Done(partition.Result{Base: -1, AppendTime: -1, Start: -1}, err)
		return
	}
	p.Append(a)
}

// noTransaction refuses batches of transactions.
func noTransaction(batches []byte) error {
	for len(batches) > 0 {
		_, rest, h, err := record.Next(batches)
		if err != nil {
			return err
		}
		if h.Transactional() {
			return fmt.Errorf("a batch of a transaction of another node: %w", partition.ErrTransaction)
		}
		batches = rest
	}
	return nil
}

// TruncateLed is Truncate for a client of another member. It waits for the disk.
func (s *Store) TruncateLed(ctx context.Context, from lattice.NodeID, tp lattice.TopicPartition, before int64) (int64, error) {
	p, err := s.led(from, tp)
	if err != nil {
		return -1, err
	}
	if before < -1 {
		return -1, lattice.E(lattice.OutOfRange, fmt.Errorf("truncate %s before offset %d", tp, before))
	}
	return s.truncate(ctx, p, before)
}
