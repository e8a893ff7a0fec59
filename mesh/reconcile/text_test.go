package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

func (w *world) name(a lattice.AuthorID) string {
	if n := w.byID(a); n != nil {
		return n.name
	}
	return a.Short()
}

func (w *world) logText(l state.Writer) string {
	if l.Incarnation == 1 {
		return w.name(l.Author)
	}
	return fmt.Sprintf("%s/%d", w.name(l.Author), l.Incarnation)
}

func (w *world) placeText(p sigchain.Place) string {
	return fmt.Sprintf("%s:%d", w.logText(logOf(p)), p.Seq)
}

func (w *world) items(all []Item) string {
	var out []string
	for _, i := range all {
		switch i.Key[0] {
		case keyFork:
			out = append(out, "fork "+w.placeText(i.place()))
		case keyLog:
			out = append(out, fmt.Sprintf("%s:%d", w.logText(i.Key.writer()), i.N))
		default:
			out = append(out, fmt.Sprintf("partition %d:%d", i.Key.partition().Partition, i.N))
		}
	}
	slices.SortStableFunc(out, cmp.Compare)
	if len(out) > 8 {
		return fmt.Sprintf("%d items", len(out))
	}
	return strings.Join(out, " ")
}

// why says what each node waits for.
func (w *world) why(liars map[*node]bool) string {
	var b strings.Builder
	for _, n := range w.nodes {
		fmt.Fprintf(&b, "%s, lies: %v\n", n.name, liars[n])
		for _, k := range n.r.keys() {
			l := n.r.logs[k]
			if l.source == nil && l.search == nil && l.chain == l.durable {
				continue
			}
			fmt.Fprintf(&b, "  %s: durable %d, chain %d", n.logText(l.writer), l.durable.Tip.Seq, l.chain.Tip.Seq)
			if l.source != nil {
				fmt.Fprintf(&b, ", from %s", w.name(l.source.id))
			}
			if l.search != nil {
				fmt.Fprintf(&b, ", searched at %s, %d", w.name(l.search.peer.id), l.search.at)
			}
			fmt.Fprintln(&b)
		}
		for x, until := range n.r.bars {
			fmt.Fprintf(&b, "  %s of %s barred for %d s\n", w.items([]Item{{Key: x.key}}), w.name(x.peer), (until-w.now)/1000)
		}
		for _, p := range n.r.peers {
			fmt.Fprintf(&b, "  peer %s: %d questions, settled %v, granted %d, owed %d, credit %d, held %d, reading %d, ready %d, live %d, bulk %d\n", w.name(p.id), p.questions, p.settled, p.granted, p.owed, p.credit, p.held, p.reading, len(p.ready), len(p.live), len(p.bulk))
			for _, k := range p.missing() {
				fmt.Fprintf(&b, "    has %s\n", w.items([]Item{p.has[k]}))
			}
			for _, x := range p.serving {
				if x.after < x.limit() {
					fmt.Fprintf(&b, "    wants %s behind %d, queued %v, reading %v\n", n.logText(x.log.writer), x.after, x.queued, x.reading)
				}
			}
		}
	}
	return b.String()
}

// missing returns the keys of what a peer has and this replica lacks, ascending.
func (p *peer) missing() []Key {
	keys := make([]Key, 0, len(p.has))
	for k := range p.has {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, Key.compare)
	return keys
}

// ids are items with their ids.
func (w *world) ids(all []Item) string {
	var out []string
	for _, i := range all {
		out = append(out, w.items([]Item{i})+"="+i.ID.Short())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// text is a message for people.
func (w *world) text(m Message) string {
	switch m := m.(type) {
	case Hello:
		return fmt.Sprintf("hello %d items", m.Root.Items)
	case Ranges:
		var out []string
		digests := 0
		for _, x := range m.Ranges {
			switch x.Mode {
			case ModeDigest:
				digests++
			case ModeItems:
				out = append(out, "["+w.items(x.Items)+"]?")
			case ModeAnswer:
				out = append(out, "["+w.items(x.Items)+"]")
			}
		}
		if digests > 0 {
			out = append(out, fmt.Sprintf("%d digests", digests))
		}
		return "ranges " + strings.Join(out, " ")
	case Offer:
		return "offer " + w.items(m.Items)
	case Want:
		var out []string
		for _, s := range m.Spans {
			upto := ""
			if s.Upto != 0 {
				upto = fmt.Sprint(s.Upto)
			}
			out = append(out, fmt.Sprintf("%s:%d-%s", w.logText(s.Log), s.After+1, upto))
		}
		for _, a := range m.Forks {
			out = append(out, "fork of "+w.name(a))
		}
		for _, p := range m.Partitions {
			out = append(out, fmt.Sprintf("partition %d", p.Partition))
		}
		return "want " + strings.Join(out, " ")
	case Blocks:
		sealed := ""
		if m.Note != nil {
			sealed = " checkpoint"
		}
		return fmt.Sprintf("blocks %s:%d-%d%s", w.logText(m.Log), m.After+1, m.After+uint64(len(m.Entries)), sealed)
	case Pruned:
		return fmt.Sprintf("pruned %s begins at %d", w.logText(m.Log), m.First)
	case Refuse:
		return fmt.Sprintf("refuse %s behind %d: %s", w.logText(m.Log), m.After, m.Reason)
	case Frontier:
		return fmt.Sprintf("frontier %d items", m.Root.Items)
	case Statements:
		return fmt.Sprintf("statements partition %d: %d", m.Partition.Partition, len(m.All))
	case Bye:
		return "bye: " + m.Reason.String()
	}
	return m.Kind().String()
}
