package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
)

// onlyHere is what the other nodes of a store lack of what is here: members of topics' sets by what they
// acknowledged, over the partitions that this node leads, and others by what the mesh knows.
type onlyHere struct {
	replicas int                              // nodes that are to have the store, this one among them
	unknown  int                              // of them, with which nothing was compared since this node started
	behind   map[lattice.NodeID]time.Duration // those that lack something, and for how long
	records  int64                            // that are on this node only
	entries  int64                            // of keys and topics, likewise
	atLeast  bool                             // there may be more of them
	counted  map[lattice.TopicPartition]bool  // by acknowledgements
}

// newOnlyHere begins with what is known of the peers. Dormant ones are not waited for.
func newOnlyHere(peers []Peer, now time.Time) *onlyHere {
	o := &onlyHere{replicas: 1, behind: map[lattice.NodeID]time.Duration{}, counted: map[lattice.TopicPartition]bool{}}
	for _, p := range peers {
		switch {
		case p.Dormant:
			continue
		case !p.Known:
			o.unknown++
		case p.Ahead > 0:
			o.behind[p.Node] = now.Sub(p.AheadSince)
		}
		o.replicas++
	}
	return o
}

// add takes what members of a partition's set have acknowledged.
func (o *onlyHere) add(p *partition.Partition) {
	acks := p.AckStatus()
	if !p.Leads() || len(acks.Replicas) < 2 {
		return
	}
	o.counted[p.ID()] = true
	o.records += acks.OnlyHere
	for _, r := range acks.Replicas {
		if r.Node != p.Leader() && !r.InSync {
			o.behind[r.Node] = max(o.behind[r.Node], r.Behind)
		}
	}
}

// mostAlone is how many logs are looked at that exist on this node only.
const mostAlone = 4096

// addMesh takes what no peer has of other logs, as far as the mesh knows.
func (o *onlyHere) addMesh(ctx context.Context, mesh Mesh, s *store.Store, peers []Peer) error {
	if mesh == nil || o.replicas < 2 {
		return nil
	}
	var of []lattice.NodeID
	for _, p := range peers {
		of = append(of, p.Node)
	}
	all, more, known, err := mesh.Alone(ctx, s.Info().ID, of, mostAlone)
	if lattice.KindOf(err) == lattice.Unavailable && err != nil || !known && err == nil {
		return nil // the sentence says that nothing is known of them
	}
	if err != nil {
		return err
	}
	o.atLeast = more
	for _, l := range all {
		switch {
		case l.Writer != lattice.AuthorID{}:
			o.entries += int64(l.Here - min(l.Has, l.Here))
			continue
		case o.counted[l.Partition]:
			continue
		}
		p, err := s.Partition(l.Partition.Topic, l.Partition.Partition)
		if err != nil {
			continue // it is being opened as something else
		}
		n, err := p.Beyond(l.Has)
		if lattice.KindOf(err) == lattice.NotYet && err != nil {
			continue
		}
		if err != nil {
			return fmt.Errorf("count what only this node has of %s: %w", l.Partition, err)
		}
		o.records += n
	}
	return nil
}

// sentence says it.
func (o *onlyHere) sentence() string {
	if o.replicas < 2 {
		return "; no other node has a copy."
	}
	s := "."
	only := o.only()
	switch n := len(o.behind); {
	case n > 0:
		most := time.Duration(0)
		for _, d := range o.behind {
			most = max(most, d)
		}
		is := "is"
		if n > 1 {
			is = "are up to"
		}
		s += fmt.Sprintf(" %d of %d replicas %s %s behind: %s.", n, o.replicas, is, roughly(most), only)
	case only != nothing:
		s += fmt.Sprintf(" Of %d replicas the others have what they are known to want, and yet %s.", o.replicas, only)
	case o.unknown == 0:
		s += fmt.Sprintf(" All %d replicas have what is here.", o.replicas)
	case o.unknown < o.replicas-1:
		s += fmt.Sprintf(" %d of %d replicas have what is here.", o.replicas-o.unknown, o.replicas)
	}
	switch {
	case o.unknown == 1:
		s += " What 1 of them has is not known: it was not reached since this node started."
	case o.unknown > 1:
		s += fmt.Sprintf(" What %d of them have is not known: they were not reached since this node started.", o.unknown)
	}
	if o.unknown > 0 && o.unknown == o.replicas-1 {
		s = strings.Replace(s, "of them", fmt.Sprintf("of %d replicas", o.replicas), 1)
	}
	return s
}

const nothing = "nothing exists on this node only"

// only says what exists on this node only.
func (o *onlyHere) only() string {
	var what []string
	one := o.records+o.entries == 1
	for _, x := range []struct {
		n         int64
		one, many string
	}{{o.records, "record", "records"}, {o.entries, "entry of keys", "entries of keys"}} {
		switch {
		case x.n == 1:
			what = append(what, "1 "+x.one)
		case x.n > 1:
			what = append(what, fmt.Sprintf("%d %s", x.n, x.many))
		}
	}
	s := strings.Join(what, " and ")
	switch {
	case s == "":
		return nothing
	case o.atLeast:
		s = "at least " + s
	}
	if one {
		return s + " exists on this node only"
	}
	return s + " exist on this node only"
}

// roughly is a time as people say it.
func roughly(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	case d >= 2*time.Minute:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	}
	return fmt.Sprintf("%d s", max(1, int(d.Seconds())))
}

// partitionsOf calls f with each partition of a store that is open here.
func partitionsOf(s *store.Store, f func(t store.Topic, n int32, p *partition.Partition, err error)) {
	for _, t := range s.Topics() {
		for n := range t.Partitions {
			p, err := s.Partition(t.ID, n)
			if !errors.Is(err, store.ErrNotLeader) {
				f(t, n, p, err)
			}
		}
	}
}
