package store

import (
	"context"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/structs"
)

// An admin's word for an unclean grant is a key of a system map in which only admins'
// entries count (fold.UncleanMap), as every node's fold judges: the partition's key (termsKey) and
// the grant's id, 32 bytes -> the grant. If the entry turns out not to count, since its author
// was removed before it, say, the grant does not either, and the terms that ruled before
// rule again.

func uncleanKey(tp lattice.TopicPartition, id lattice.Hash) []byte {
	return append(termsKey(tp), id[:]...)
}

// parseUncleanKey returns the partition that an unclean grant is of.
func parseUncleanKey(key []byte) (lattice.TopicPartition, bool) {
	if len(key) <= len(lattice.Hash{}) {
		return lattice.TopicPartition{}, false
	}
	return parseTermsKey(key[:len(key)-len(lattice.Hash{})])
}

// admitted reports whether an admin gave a term uncleanly.
func (s *Store) admitted(tp lattice.TopicPartition, id lattice.Hash) (there bool) {
	t, err := s.state.View(func(tx *keyval.Tx) error {
		_, ok, err := structs.In(tx, fold.UncleanMap).Get(uncleanKey(tp, id))
		there = ok
		return err
	})
	if err == nil {
		err = t.Wait(context.Background())
	}
	return there && err == nil
}

// Unclean is what an unclean grant says, or would say.
type Unclean struct {
	Old  lattice.NodeID // who led
	Base int64          // what the old leader, or another, has from here on is stranded
	// Committed is up to where records are acknowledged, as far as this node knows.
	Committed int64
	Term      int32
}

// LeadUnclean gives a partition to another leader without the old one's word, from what is
// here on, if this node is an admin. Nothing changes if dry. What a crash leaves: nothing, or an entry
// by which all members, this one among them, follow the new leader.
// Errors besides those of partition.Unclean: ErrRole, ErrNoWriter, ErrNoTopic, ErrNotOpen.
func (s *Store) LeadUnclean(ctx context.Context, tp lattice.TopicPartition, to lattice.NodeID, dry bool) (Unclean, error) {
	if err := s.mayGrant(roster.Admin, "give a partition to another leader uncleanly"); err != nil {
		return Unclean{}, err
	}
	if m, ok := s.state.Member(to); !ok || m.Role < roster.Writer {
		return Unclean{}, fmt.Errorf("%s: %w", to.Short(), ErrNoWriter)
	}
	s.changeMu.Lock()
	defer s.changeMu.Unlock()
	p, err := s.Partition(tp.Topic, tp.Partition)
	if err != nil {
		return Unclean{}, err
	}
	u := Unclean{Old: p.Leader(), Committed: p.Bounds().Committed}
	g, err := p.Unclean(to)
	if err != nil {
		return u, err
	}
	u.Base, u.Term = g.BaseOffset, g.Term
	if dry {
		return u, nil
	}
	if err := s.admit(ctx, p, g); err != nil {
		return u, err
	}
	changed, err := s.heed(tp, s.tell)
	if changed {
		s.topicsChanged()
	}
	return u, err
}

// admit makes an unclean grant, and those before it, state, durably and in one entry.
func (s *Store) admit(ctx context.Context, p *partition.Partition, g grant.Signed) error {
	all, err := p.Grants()
	if err != nil {
		return err
	}
	t, err := s.state.UpdateQuietly(func(tx *keyval.Tx) error {
		if err := structs.In(tx, fold.UncleanMap).Set(uncleanKey(p.ID(), g.ID), g.Bytes(), false); err != nil {
			return err
		}
		return putTerms(tx, p.ID(), append(slices.Clone(all), g.Bytes()))
	})
	if err == nil {
		err = t.Wait(ctx)
	}
	if err == nil {
		err = s.state.Sync()
	}
	if err != nil {
		return fmt.Errorf("tell of an unclean term of %s: %w", p.ID(), err)
	}
	return nil
}
