package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/structs"
)

// Who leads a partition passes from node to node by grants (core/grant). Each node keeps
// those of its partitions in local records, and what a partition's own grants say is what
// counts (partition.Partition.Heed). To come to everyone they are state: a hash for each
// partition that ever passed to another leader, a field for each grant. Whoever writes
// there is not believed; the grants are.
//
// # A handoff, and what a crash leaves
//
//  1. The old leader seals its log and stores the grant (partition.Partition.Seal). A
//     crash before it is stored: it leads on. After: it is a follower, of a term that
//     nobody else knows of yet.
//  2. It opens the partition again, as a follower.
//  3. The grants become state. A crash before: the next start finds what is not state
//     yet, and writes it (Open, followTerms).
//  4. The new leader hears of them and stores them. Until it has all batches that the
//     term builds on it is a follower that nobody leads: clients are told
//     LEADER_NOT_AVAILABLE, and retry. A crash: the same after the restart.
//  5. It has them, opens the partition again, and leads, in a term of its own above the
//     sealed one. A crash: it does so at once.

// termsMap has a hash for each partition that another than its topic's creator was to
// lead, under its topic's id and its number (u32): the id of each grant -> the grant.
const termsMap = "$terms"

// ErrNoWriter: who is to lead is no member that may write. Kind Invalid.
var ErrNoWriter = lattice.E(lattice.Invalid, errors.New("only a member that may write can lead"))

func termsKey(tp lattice.TopicPartition) []byte {
	return binary.BigEndian.AppendUint32(bytes.Clone(tp.Topic[:]), uint32(tp.Partition))
}

func parseTermsKey(key []byte) (lattice.TopicPartition, bool) {
	var tp lattice.TopicPartition
	if len(key) != len(tp.Topic)+4 {
		return tp, false
	}
	tp.Topic, tp.Partition = lattice.TopicID(key), int32(binary.BigEndian.Uint32(key[len(tp.Topic):]))
	return tp, tp.Partition >= 0
}

// maxTold bounds the fields of a partition's hash that are read.
const maxTold = 4096

// readTerms returns what the state has of a partition's grants.
func (s *Store) readTerms(tp lattice.TopicPartition) (told [][]byte, err error) {
	t, err := s.state.View(func(tx *keyval.Tx) error {
		err := structs.In(tx, termsMap).HScan(termsKey(tp), nil, func(_, value []byte) bool {
			told = append(told, slices.Clone(value))
			return len(told) < maxTold
		})
		if errors.Is(err, structs.ErrWrongType) {
			return nil
		}
		return err
	})
	if err == nil {
		err = t.Wait(context.Background())
	}
	return told, err
}

// toldOf returns all partitions of which the state has grants.
func (s *Store) toldOf() (all []lattice.TopicPartition, err error) {
	t, err := s.state.View(func(tx *keyval.Tx) error {
		return structs.In(tx, termsMap).Keys(nil, func(key []byte, _ structs.Type) bool {
			if tp, ok := parseTermsKey(key); ok {
				all = append(all, tp)
			}
			return true
		})
	})
	if err == nil {
		err = t.Wait(context.Background())
	}
	return all, err
}

// tell makes state of the grants of a partition that are not, durably.
func (s *Store) tell(p *partition.Partition) error {
	all, err := p.Grants()
	if err != nil {
		return err
	}
	t, err := s.state.UpdateQuietly(func(tx *keyval.Tx) error { return putTerms(tx, p.ID(), all) })
	if err == nil {
		err = t.Wait(context.Background())
	}
	if err == nil {
		err = s.state.Sync()
	}
	if err != nil {
		return fmt.Errorf("tell of the terms of %s: %w", p.ID(), err)
	}
	return nil
}

// putTerms adds to what the state has of a partition's terms.
func putTerms(tx *keyval.Tx, tp lattice.TopicPartition, all [][]byte) error {
	m, key := structs.In(tx, termsMap), termsKey(tp)
	for _, b := range all {
		g, _, err := grant.Cut(b)
		if err != nil {
			return err
		}
		if was, there, err := m.HGet(key, g.ID[:]); there && bytes.Equal(was.Bytes, b) || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		if _, err := m.HSet(key, g.ID[:], b); err != nil {
			return err
		}
	}
	return nil
}

// forgetTerms removes what the state has of a topic's terms.
func forgetTerms(tx *keyval.Tx, id lattice.TopicID) error {
	m := structs.In(tx, termsMap)
	var keys [][]byte
	err := m.Keys(id[:], func(key []byte, _ structs.Type) bool {
		if !bytes.HasPrefix(key, id[:]) {
			return false
		}
		keys = append(keys, slices.Clone(key))
		return true
	})
	for _, key := range keys {
		if err == nil {
			_, err = m.Delete(key)
		}
	}
	return err
}

// led notes that a partition may be led here now.
func (n *news) led(tp lattice.TopicPartition) {
	n.mu.Lock()
	n.terms[tp] = true
	n.mu.Unlock()
	n.signal()
}

// followTerms brings partitions to what the state says of who leads them, and makes state
// of what it does not say.
func (s *Store) followTerms(got *news) error {
	return s.followTermsThen(got, s.tell)
}

// openTerms does so when the store is opened. Nothing is written then, for what is written is
// committed as long as Run runs: what the state does not say, follow tells.
func (s *Store) openTerms() error {
	return s.followTermsThen(&news{all: true}, func(p *partition.Partition) error {
		s.news.led(p.ID())
		return nil
	})
}

func (s *Store) followTermsThen(got *news, tell func(*partition.Partition) error) error {
	if !got.all && len(got.terms) == 0 || s.fork != nil { // a fork is led here, whoever leads its origin
		return nil
	}
	s.changeMu.Lock()
	defer s.changeMu.Unlock()
	tps := got.terms
	if got.all {
		all, err := s.toldOf()
		if err != nil {
			return err
		}
		tps = s.handed()
		for _, tp := range all {
			tps[tp] = true
		}
	}
	var errs error
	changed := false
	for _, tp := range inOrder(tps) {
		did, err := s.heed(tp, tell)
		changed, errs = changed || did, errors.Join(errs, err)
	}
	if changed && s.groups != nil { // when the store is opened nobody is there to be told so far
		s.topicsChanged()
	}
	return errs
}

// inOrder returns partitions in one order, so that what is done to them comes in it.
func inOrder(tps map[lattice.TopicPartition]bool) []lattice.TopicPartition {
	return slices.SortedFunc(maps.Keys(tps), func(a, b lattice.TopicPartition) int {
		return cmp.Or(bytes.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Partition, b.Partition))
	})
}

// handed returns the partitions here that were given to another leader.
func (s *Store) handed() map[lattice.TopicPartition]bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := map[lattice.TopicPartition]bool{}
	for _, t := range s.byID {
		for _, p := range t.parts {
			if p.Handed() {
				out[p.ID()] = true
			}
		}
	}
	return out
}

// heed takes over what the state says of who leads a partition, and has told what it does
// not say; also are grants that somebody else tells. It reports whether another leads now.
// s.changeMu is held.
func (s *Store) heed(tp lattice.TopicPartition, tell func(*partition.Partition) error, also ...[]byte) (changed bool, err error) {
	s.mu.RLock()
	t, ok := s.byID[tp.Topic]
	s.mu.RUnlock()
	if !ok || int(tp.Partition) >= len(t.parts) {
		return false, nil // it is looked at when it is opened
	}
	told, err := s.readTerms(tp)
	if err != nil {
		return false, err
	}
	p := t.parts[tp.Partition]
	h, err := p.Heed(told, also...)
	if err == nil && (h.Changed || p.ToLead()) {
		changed, err = true, s.reopen(t, tp.Partition)
	}
	if err == nil && h.Behind {
		err = tell(p)
	}
	return changed, err
}

// reopen closes a partition and opens it as what it is now: led here, or a follower.
// Whoever reads it meanwhile is told that it is closed, and asks again. s.changeMu is
// held.
func (s *Store) reopen(t *topic, n int32) error {
	cfg, err := parseConfig(s.cfg.TopicDefaults, t.rec.Config)
	if err != nil {
		return err
	}
	if err := t.parts[n].Close(); err != nil {
		s.cfg.Logger.Error("close a partition whose leader changes", "partition", t.parts[n].ID(), "err", err)
	}
	o := s.partitionOptions(t.rec, t.from.leader, n)
	o.Cuts = t.parts[n].Cuts()
	p, err := partition.Open(o, cfg)
	if err != nil {
		return fmt.Errorf("open a partition whose leader changed: %w", err)
	}
	if g := p.Ruling(); g != nil {
		s.forgetBeyond(p.ID(), g.BaseOffset) // what older leaders said of more does not hold
	}
	changed := *t
	changed.parts = slices.Clone(t.parts)
	changed.parts[n] = p
	s.replace(&changed, 0)
	s.cfg.Logger.Info("a partition has another leader", "partition", p.ID().String(), "leader", p.Leader().Short(), "here", p.Leads())
	return nil
}

// LeaderOf returns the node that leads a partition, or will when it has what its term
// builds on.
func (s *Store) LeaderOf(id lattice.TopicID, n int32) (lattice.NodeID, error) {
	p, leader, err := s.Route(id, n)
	if p != nil {
		leader = s.info.Node
	}
	return leader, err
}

// Lead gives a partition to another leader, at its leader, wherever that is; what is
// acknowledged stays. It returns when the grant is durable; LeaderOf tells when it is known here,
// and the new leader begins when it has all batches. Errors besides those of
// partition.Seal: ErrNoTopic, ErrNotOpen, ErrNoWriter, ErrAway (the leader, or who is to
// lead, cannot be reached), ErrNoAnswer, and what the leader answered.
func (s *Store) Lead(ctx context.Context, tp lattice.TopicPartition, to lattice.NodeID, wait time.Duration) error {
	p, leader, err := s.Route(tp.Topic, tp.Partition)
	if err == nil {
		err = s.forked("give a partition to another leader")
	}
	switch {
	case err != nil:
		return err
	case leader == to && p == nil:
		return nil
	}
	if p != nil {
		if err := s.MayLead(to); err != nil {
			return err
		}
		return s.give(ctx, tp, to)
	}
	return s.askLead(ctx, leader, tp, to, wait)
}

// askLead asks another node to have a partition led by to.
func (s *Store) askLead(ctx context.Context, node lattice.NodeID, tp lattice.TopicPartition, to lattice.NodeID, wait time.Duration) error {
	e := s.elsewhere.Load()
	if e == nil {
		return ErrNotLeader
	}
	done := make(chan error, 1)
	(*e).Lead(node, tp, to, wait, func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// MayLead says why a node cannot lead now: ErrNoWriter, ErrAway (it is not connected).
func (s *Store) MayLead(n lattice.NodeID) error {
	if m, ok := s.state.Member(n); !ok || m.Role < roster.Writer {
		return fmt.Errorf("%s: %w", n.Short(), ErrNoWriter)
	}
	if e := s.elsewhere.Load(); n != s.info.Node && (e == nil || !(*e).Reaches(n)) {
		return fmt.Errorf("%s is to lead: %w", n.Short(), ErrAway)
	}
	return nil
}

// give gives a partition that is led here to another.
func (s *Store) give(ctx context.Context, tp lattice.TopicPartition, to lattice.NodeID) error {
	if to == s.info.Node {
		return nil
	}
	s.changeMu.Lock()
	defer s.changeMu.Unlock()
	s.mu.RLock()
	t, ok := s.byID[tp.Topic]
	s.mu.RUnlock()
	switch {
	case !ok || tp.Partition < 0 || tp.Partition >= t.rec.Partitions:
		return ErrNoTopic
	case int(tp.Partition) >= len(t.parts):
		return ErrNotOpen
	}
	p := t.parts[tp.Partition]
	if err := p.Seal(ctx, to); err != nil {
		return err
	}
	// First a follower, then known as one: what the new leader writes finds it so.
	if err := s.reopen(t, tp.Partition); err != nil {
		return err
	}
	s.topicsChanged()
	return s.tell(p)
}

// LeadLed is Lead for another member, of a partition that is led here. It waits for the
// disk. Who is to lead itself, and does not, takes the partition over (LeadByPromises).
// Errors besides: ErrMayNotWrite, ErrNotLeader.
func (s *Store) LeadLed(ctx context.Context, from lattice.NodeID, tp lattice.TopicPartition, to lattice.NodeID) error {
	if to == s.info.Node {
		if m, ok := s.state.Member(from); !ok || m.Role < roster.Writer {
			return fmt.Errorf("%s: %w", from.Short(), ErrMayNotWrite)
		}
		return s.LeadByPromises(ctx, tp, to, voteWait)
	}
	if _, err := s.led(from, tp); err != nil {
		return err
	}
	if err := s.MayLead(to); err != nil {
		return err
	}
	return s.give(ctx, tp, to)
}
