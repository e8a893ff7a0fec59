package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/merge"
	"github.com/lattice-log/lattice/core/promise"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/partition"
)

// Where a partition's leader is out of reach, another member of its set leads it by the
// promises of enough of them (core/promise). A leader that was started again goes the
// same way, by itself, where others acknowledge too.
//
// # A takeover, and what a crash leaves
//
//  1. The candidate promises to itself, durably. A crash: it asks for a later term.
//  2. The others are asked, each promises durably. A crash: they are bound to a term that
//     nobody leads, and promise a later one to who asks next.
//  3. It fetches what it lacks of the base, as any follower does (mesh/batches). A crash:
//     it has more than before.
//  4. It signs and stores the grant (partition.Succeed). A crash: the term rules, and its
//     leader is another incarnation, which asks for promises after it. Nobody else knows the
//     grant: it comes to them with that question.
//  5. It opens the partition again, and leads; 6. the grant becomes state. A crash before:
//     the next start writes it (followTerms).

// Voters asks members of a partition's set. Elsewhere may be one. Safe for concurrent use.
type Voters interface {
	// Vote asks a member to promise, and tells it grants, and calls done exactly once,
	// after wait at the latest, with no lock held, possibly before it returns.
	Vote(node lattice.NodeID, ask promise.Promise, grants [][]byte, wait time.Duration, done func(Vote))
	// Where asks how many batches of a partition a member has.
	Where(node lattice.NodeID, tp lattice.TopicPartition, wait time.Duration, done func(size uint64, err error))
}

// Vote is a member's answer: a signed promise, or why there is none, with the latest term
// that it is bound by, and the grants that it knows.
type Vote struct {
	Promise []byte
	Err     error
	Bound   int32
	Grants  [][]byte
}

var (
	// ErrNotPromised: fewer members than are needed have promised. Kind Unavailable. It
	// says who did not, and why.
	ErrNotPromised = lattice.E(lattice.Unavailable, errors.New("not enough members have promised to follow"))
	// ErrTakingOver: it is under way already. Kind Conflict.
	ErrTakingOver = lattice.E(lattice.Conflict, errors.New("this node is taking the partition over already"))
)

const (
	// voteWait is how long a member's answer may take.
	voteWait = 10 * time.Second
	// baseWait is how long a candidate waits for what it lacks, and some member has.
	baseWait = 30 * time.Second
	basePoll = 50 * time.Millisecond
	// candidacies is how often a candidate asks anew, after it heard of later terms.
	candidacies = 8
	// waitingEvery is how often a leader that was started again looks for promises.
	waitingEvery = time.Second
)

// Vote answers a candidate, which may be hostile. Besides those of partition.Promise the
// errors are ErrMayNotWrite, ErrNoTopic, ErrNotOpen; Kind Denied: it asks for another.
func (s *Store) Vote(from lattice.NodeID, ask promise.Promise, grants [][]byte) Vote {
	v, err := s.vote(from, ask, grants)
	if err != nil {
		v.Err = err
		if p, err := s.Partition(ask.Partition.Topic, ask.Partition.Partition); err == nil {
			v.Bound = p.Bound().Term
			v.Grants, _ = p.Grants() // without them it is still told why
		}
	}
	return v
}

func (s *Store) vote(from lattice.NodeID, ask promise.Promise, grants [][]byte) (v Vote, err error) {
	if m, ok := s.state.Member(from); !ok || m.Role < roster.Writer {
		return v, fmt.Errorf("%s: %w", from.Short(), ErrMayNotWrite)
	}
	if ask.Candidate != from {
		return v, lattice.E(lattice.Denied, fmt.Errorf("%s asks for %s", from.Short(), ask.Candidate.Short()))
	}
	if err := s.hearTerms(ask.Partition, grants); err != nil {
		return v, err
	}
	p, err := s.Partition(ask.Partition.Topic, ask.Partition.Partition)
	if err == nil {
		v.Promise, err = p.Promise(ask)
	}
	if err == nil {
		s.cfg.Logger.Info("promised a partition to a candidate", "partition", p.ID().String(), "term", ask.Term, "candidate", from.Short())
	}
	return v, err
}

// Holds returns how many batches of a partition are here, for a member that gives it to this
// node, and the offset behind them.
func (s *Store) Holds(from lattice.NodeID, tp lattice.TopicPartition) (size uint64, end int64, err error) {
	if _, ok := s.state.Member(from); !ok {
		return 0, 0, fmt.Errorf("%s: %w", from.Short(), ErrMayNotWrite)
	}
	p, err := s.Partition(tp.Topic, tp.Partition)
	if err != nil {
		return 0, 0, err
	}
	at := p.Position()
	return at.Size, at.End, nil
}

// hearTerms takes grants that another node tells.
func (s *Store) hearTerms(tp lattice.TopicPartition, grants [][]byte) error {
	if len(grants) == 0 {
		return nil
	}
	s.changeMu.Lock()
	defer s.changeMu.Unlock()
	changed, err := s.heed(tp, s.tell, grants...)
	if changed {
		s.topicsChanged()
	}
	return err
}

// taking are the partitions that this node is taking over.
type taking struct {
	mu  sync.Mutex
	now map[lattice.TopicPartition]bool
}

func (t *taking) begin(tp lattice.TopicPartition) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now[tp] {
		return false
	}
	if t.now == nil {
		t.now = map[lattice.TopicPartition]bool{}
	}
	t.now[tp] = true
	return true
}

func (t *taking) end(tp lattice.TopicPartition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.now, tp)
}

// TakeOver has this node lead a partition by promises of its set's members. It returns when
// it leads, and has written so. Errors: ErrNotPromised, promise.ErrMissing (who has what
// nobody can supply), promise.ErrNoMember, promise.ErrSplit, ErrTakingOver, ErrNoTopic,
// ErrNotOpen, ErrNotLeader (no other node can be asked here); Kind Storage.
func (s *Store) TakeOver(ctx context.Context, tp lattice.TopicPartition) error {
	if !s.taking.begin(tp) {
		return fmt.Errorf("%s: %w", tp, ErrTakingOver)
	}
	defer s.taking.end(tp)
	var err error
	after, again := int32(0), true
	for try := 0; again && try < candidacies; try++ {
		if again, err = s.candidacy(ctx, tp, &after); ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("take over %s: %w", tp, err)
	}
	return nil
}

// candidacy asks for one term. again: somebody is bound by a later one, or knows another
// grant, so that another try may succeed.
func (s *Store) candidacy(ctx context.Context, tp lattice.TopicPartition, after *int32) (again bool, err error) {
	p, err := s.Partition(tp.Topic, tp.Partition)
	switch {
	case err != nil:
		return false, err
	case p.Leads():
		return false, nil
	}
	voters := s.voters()
	if voters == nil {
		return false, ErrNotLeader
	}
	mine, err := p.Candidate(*after)
	if err != nil {
		return false, err
	}
	own, err := p.Promise(mine)
	if err != nil {
		return errors.Is(err, promise.ErrOtherGrant) || errors.Is(err, partition.ErrClosed), err
	}
	ruling := p.Ruling()
	if ruling.ID != mine.Previous {
		return true, promise.ErrOtherGrant
	}
	round, err := promise.NewRound(ruling, own, s.votes)
	if err != nil {
		return false, err
	}
	told, err := s.gather(ctx, p, voters, round)
	if err == nil {
		err = s.hearTerms(tp, told)
	}
	if err != nil {
		return false, err
	}
	*after = round.Bound()
	if now, err := s.Partition(tp.Topic, tp.Partition); err != nil || now != p || now.Ruling().ID != ruling.ID {
		return err == nil, errors.Join(err, promise.ErrOtherGrant)
	}
	if !round.Enough() {
		_, _, err := round.Choose(func(merge.Point) bool { return true })
		if errors.Is(err, promise.ErrFew) {
			err = fmt.Errorf("%w: %w", ErrNotPromised, err)
		}
		return round.Bound() > mine.Term, err
	}
	base, evidence, err := s.fetchBase(ctx, p, round, ruling.AckSet)
	if err != nil {
		return false, err
	}
	if err := p.Succeed(mine, base, evidence); err != nil {
		return errors.Is(err, promise.ErrOtherGrant) || errors.Is(err, partition.ErrClosed), err
	}
	return false, s.succeeded(p)
}

// succeeded is steps 5 and 6.
func (s *Store) succeeded(p *partition.Partition) error {
	s.changeMu.Lock()
	defer s.changeMu.Unlock()
	tp := p.ID()
	s.mu.RLock()
	t, ok := s.byID[tp.Topic]
	s.mu.RUnlock()
	if !ok {
		return ErrNoTopic
	}
	if t.parts[tp.Partition] == p { // else it was opened again with the grant
		if err := s.reopen(t, tp.Partition); err != nil {
			return err
		}
		s.topicsChanged()
	}
	p, err := s.Partition(tp.Topic, tp.Partition)
	if err == nil {
		err = s.tell(p)
	}
	return err
}

// voters is how members are asked; nil: they are not.
func (s *Store) voters() Voters {
	if e := s.elsewhere.Load(); e != nil {
		if v, ok := (*e).(Voters); ok {
			return v
		}
	}
	return nil
}

// votes reports whether a member's promise counts: it was not removed.
func (s *Store) votes(a lattice.AuthorID) bool {
	_, ok := s.state.Member(a)
	return ok
}

// gather asks the set, and returns the grants that came with refusals.
func (s *Store) gather(ctx context.Context, p *partition.Partition, voters Voters, round *promise.Round) (told [][]byte, err error) {
	grants, err := p.Grants()
	if err != nil {
		return nil, err
	}
	type answer struct {
		from lattice.NodeID
		Vote
	}
	all := round.Ask()
	got := make(chan answer, len(all))
	for _, a := range all {
		voters.Vote(a, round.Asked(), grants, voteWait, func(v Vote) { got <- answer{a, v} })
	}
	for range all {
		select {
		case a := <-got:
			switch {
			case a.Err != nil:
				round.Refused(a.from, a.Err, a.Bound)
				told = append(told, a.Grants...)
			default:
				if err := round.Take(a.from, a.Promise); err != nil {
					s.cfg.Logger.Warn("a member's answer is no promise", "partition", p.ID().String(), "member", a.from.Short(), "err", err)
				}
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return told, nil
}

// fetchBase waits until this node has the base of the promised term, as long as somebody is
// there who may have what it lacks of it.
func (s *Store) fetchBase(ctx context.Context, p *partition.Partition, round *promise.Round, set []lattice.AuthorID) (merge.Point, []byte, error) {
	until := s.cfg.Clock.Now().Add(baseWait)
	for {
		var wrong error
		fetching := false
		base, evidence, err := round.Choose(func(b merge.Point) bool {
			has, _, err := p.Holds(b)
			if err != nil {
				wrong = errors.Join(wrong, err)
				return false
			}
			if !has && s.cfg.Clock.Now().Before(until) && s.reachesAny(set) {
				fetching = true
				return true
			}
			return has
		})
		if err != nil {
			return base, nil, errors.Join(err, wrong)
		}
		if !fetching {
			return base, evidence, nil
		}
		if err := s.pause(ctx, basePoll); err != nil {
			return base, nil, err
		}
	}
}

func (s *Store) reachesAny(set []lattice.AuthorID) bool {
	e := s.elsewhere.Load()
	for _, a := range set {
		if a != s.info.Node && e != nil && (*e).Reaches(a) {
			return true
		}
	}
	return false
}

// pause waits for a while.
func (s *Store) pause(ctx context.Context, d time.Duration) error {
	over := make(chan struct{})
	stop := s.cfg.Clock.AfterFunc(d, func() { close(over) })
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		stop()
		return ctx.Err()
	}
}

// regain has this node lead again, after a start, what it led before it, where others
// have to promise that, until ctx ends. What keeps it is logged when it changes.
func (s *Store) regain(ctx context.Context) error {
	why := map[lattice.TopicPartition]string{}
	for {
		if err := s.pause(ctx, waitingEvery); err != nil {
			return nil
		}
		for _, p := range s.waiting() {
			tp := p.ID()
			err := error(ErrNotPromised)
			if s.mayBeEnough(p) {
				tctx, cancel := context.WithTimeout(ctx, time.Minute)
				err = s.TakeOver(tctx, tp)
				cancel()
			}
			switch {
			case ctx.Err() != nil:
				return nil
			case err == nil:
				delete(why, tp)
			case why[tp] != err.Error():
				why[tp] = err.Error()
				s.cfg.Logger.Warn("a partition is read only: members of its set have to promise it to its leader, which was started again",
					"partition", tp.String(), "err", err)
			}
		}
	}
}

// waiting returns the partitions that wait for promises.
func (s *Store) waiting() (all []*partition.Partition) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, t := range s.byID {
		for _, p := range t.parts {
			if p.Waits() {
				all = append(all, p)
			}
		}
	}
	return all
}

// mayBeEnough reports whether as many members of a set can be asked as have to promise.
func (s *Store) mayBeEnough(p *partition.Partition) bool {
	e, ruling := s.elsewhere.Load(), p.Ruling()
	if e == nil || ruling == nil {
		return false
	}
	n := 1
	for _, a := range ruling.AckSet {
		if a != s.info.Node && s.votes(a) && (*e).Reaches(a) {
			n++
		}
	}
	return n >= promise.Needs(ruling)
}

// LeadByPromises has a member of a partition's set lead it though its leader is out of
// reach: this node, or another, which is asked to. While the leader answers it gives the
// partition in order. Errors: those of TakeOver and Lead.
func (s *Store) LeadByPromises(ctx context.Context, tp lattice.TopicPartition, to lattice.NodeID, wait time.Duration) error {
	p, leader, err := s.Route(tp.Topic, tp.Partition)
	e := s.elsewhere.Load()
	switch {
	case err != nil:
		return err
	case e == nil:
		return ErrNotLeader
	case p != nil && to != s.info.Node:
		return s.Lead(ctx, tp, to, wait)
	case p != nil:
		return nil
	case to != s.info.Node:
		if err := s.MayLead(to); err != nil {
			return err
		}
		return s.askLead(ctx, to, tp, to, wait)
	}
	if leader != to && (*e).Reaches(leader) {
		err := s.askLead(ctx, leader, tp, to, voteWait)
		switch k := lattice.KindOf(err); {
		case err == nil:
			return nil
		case k == lattice.Unavailable || k == lattice.Storage || k == lattice.NotLeader:
			s.cfg.Logger.Warn("the leader does not hand over in order; members are asked", "partition", tp.String(), "leader", leader.Short(), "err", err)
		default:
			return err
		}
	}
	return s.TakeOver(ctx, tp)
}
