package store

import (
	"context"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/structs"
)

// How groups move from home to home, and how homes are forgotten.

// putHome writes that a group was moved, durably. was is what the caller knows: Conflict
// if it is not so any more.
func (s *Store) putHome(name string, was lattice.NodeID, to lattice.NodeID) error {
	s.homes.changing.Lock()
	defer s.homes.changing.Unlock()
	var h group.Home
	t, err := s.state.UpdateQuietly(func(tx *keyval.Tx) error {
		there, ok, err := readHome(tx, []byte(name))
		switch {
		case err != nil:
			return err
		case !ok || there.Node != was:
			return lattice.E(lattice.Conflict, fmt.Errorf("the home of group %q changed meanwhile", name))
		}
		h = there.Moved(to, s.cfg.Clock.Now())
		return structs.In(tx, groupsMap).Set([]byte(name), h.AppendTo(nil), false)
	})
	if err == nil {
		err = t.Wait(context.Background())
	}
	if err == nil {
		err = s.state.Sync()
	}
	if err != nil {
		return fmt.Errorf("move group %q: %w", name, err)
	}
	s.setHome(name, h, true)
	return nil
}

// MoveGroup gives a group that is at home here another home. Its members are told to join
// again; every commit that was acknowledged is known there before the move is. It returns
// when the move is durable. Errors: group.ErrGroupNotFound, ErrNotHome, ErrNoWriter, ErrAway
// (who is to have it is not connected), ErrShareHome, group.ErrPending, Conflict (it is being
// moved).
func (s *Store) MoveGroup(name string, to lattice.NodeID) error {
	if err := s.mayMove(name, to); err != nil {
		return err
	}
	here, known := s.homeHere(name)
	switch {
	case !known && !s.groups.Known(name):
		return group.ErrGroupNotFound
	case !known:
		h, ok := s.settle(name)
		if here = ok && h.Node == s.info.Node; !ok {
			return ErrMayNotWrite
		}
	}
	switch {
	case !here:
		return fmt.Errorf("group %q: %w", name, ErrNotHome)
	case to == s.info.Node:
		return nil
	case !s.homes.mark(&s.homes.moving, name, true):
		return lattice.E(lattice.Conflict, fmt.Errorf("group %q is being moved already", name))
	}
	defer s.homes.mark(&s.homes.moving, name, false)
	if err := s.groups.HandOver(name); err != nil {
		return err
	}
	if err := s.putHome(name, s.info.Node, to); err != nil {
		return err
	}
	s.groups.Evict(name) // who came in the last moment
	return nil
}

// TakeGroup gives a group another home without the one that it has, which cannot be
// reached. What that one takes meanwhile from its own clients is joined when it is back;
// members on both sides get the same records. Errors as of MoveGroup, and Conflict: the
// home can be reached, and is to be asked.
func (s *Store) TakeGroup(name string, to lattice.NodeID) error {
	if err := s.mayMove(name, to); err != nil {
		return err
	}
	h, ok := s.GroupHome(name)
	switch {
	case !ok:
		return s.MoveGroup(name, to)
	case h.Node == to:
		return nil
	}
	if h.Node == s.info.Node || s.Reaches(h.Node) {
		return lattice.E(lattice.Conflict, fmt.Errorf("the home of group %q, %s, can be reached: it is not taken from it", name, h.Node.Short()))
	}
	return s.putHome(name, h.Node, to)
}

func (s *Store) mayMove(name string, to lattice.NodeID) error {
	if s.isShare(name) {
		return fmt.Errorf("group %q: %w", name, ErrShareHome)
	}
	return s.MayLead(to)
}

// DeleteGroup deletes a group that is coordinated here: its offsets, and where it is at home.
// reply is called as group.Manager.DeleteGroup does.
func (s *Store) DeleteGroup(name string, reply func(error)) {
	s.groups.DeleteGroup(name, func(err error) {
		here, _ := s.homeHere(name)
		if err == nil && here && !s.groups.Known(name) && !s.isShare(name) {
			if err := s.forgetHomes([]string{name}); err != nil { // sweepHomes will
				s.cfg.Logger.Warn("forget the home of a group that was deleted", "group", name, "err", err)
			}
		}
		reply(err)
	})
}

// sweepHomes forgets the homes of groups of which nothing is left here for two looks,
// until ctx ends: consumers with names of their own come and go.
func (s *Store) sweepHomes(ctx context.Context) error {
	look := make(chan struct{}, 1)
	gone := map[string]bool{}
	for {
		stop := s.cfg.Clock.AfterFunc(s.cfg.Group.RetentionCheck, func() { look <- struct{}{} })
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-look:
		}
		now := map[string]bool{}
		var over []string
		for name, home := range s.GroupHomes() {
			if home != s.info.Node || s.groups.Known(name) || s.isShare(name) {
				continue
			}
			if now[name] = true; gone[name] {
				over = append(over, name)
			}
		}
		gone = now
		if err := s.forgetHomes(over); err != nil {
			s.cfg.Logger.Warn("forget the homes of groups that are gone", "store", s.info.ID.Short(), "err", err)
		}
	}
}

func (s *Store) forgetHomes(names []string) error {
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	s.homes.changing.Lock()
	defer s.homes.changing.Unlock()
	_, err := s.state.UpdateQuietly(func(tx *keyval.Tx) error {
		m := structs.In(tx, groupsMap)
		for _, name := range names {
			if _, err := m.Delete([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	for _, name := range names {
		if err == nil {
			s.setHome(name, group.Home{}, false)
		}
	}
	return err
}
