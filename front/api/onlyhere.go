package api

import (
	"fmt"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/partition"
)

// onlyHere gathers what members of topics' sets lack, over the partitions that this node
// leads.
type onlyHere struct {
	records int64
	of      map[lattice.NodeID]bool          // all other members of sets
	behind  map[lattice.NodeID]time.Duration // those that are not in sync, and for how long
}

func (o *onlyHere) add(p *partition.Partition) {
	acks := p.AckStatus()
	if !p.Leads() || len(acks.Replicas) < 2 {
		return
	}
	if o.of == nil {
		o.of, o.behind = map[lattice.NodeID]bool{}, map[lattice.NodeID]time.Duration{}
	}
	o.records += acks.OnlyHere
	for _, r := range acks.Replicas {
		if r.Node == p.Leader() {
			continue
		}
		o.of[r.Node] = true
		if !r.InSync {
			o.behind[r.Node] = max(o.behind[r.Node], r.Behind)
		}
	}
}

// sentence says it; empty: there are no such topics.
func (o *onlyHere) sentence() string {
	if len(o.of) == 0 {
		return ""
	}
	most := time.Duration(0)
	for _, d := range o.behind {
		most = max(most, d)
	}
	if len(o.behind) == 0 && o.records == 0 {
		return fmt.Sprintf(" All %d other replicas have what topics with replicas hold.", len(o.of))
	}
	s := " "
	if len(o.behind) > 0 {
		s += fmt.Sprintf("%d of %d other replicas behind, by up to %s: ", len(o.behind), len(o.of), roughly(most))
	}
	if o.records == 1 {
		return s + "1 record of topics with replicas exists on this node only."
	}
	return s + fmt.Sprintf("%d records of topics with replicas exist on this node only.", o.records)
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
	return fmt.Sprintf("%d s", int(d.Seconds()))
}
