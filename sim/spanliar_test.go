package sim

import (
	"bytes"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/mesh/batches"
)

// lieAboutBatches changes what a node sends about batches.
func (n *node) lieAboutBatches(m batches.Message) []batches.Message {
	w := n.w
	how := w.rng.IntN(30)
	switch b := m.(type) {
	case batches.Spans:
		if lied, ok := n.lieAboutSpan(b, how); ok {
			w.did("lie about batches")
			return lied
		}
	case batches.Offer:
		b.Items = slices.Clone(b.Items)
		switch {
		case how < 4 && len(b.Items) > 0: // more than there is
			b.Items[0].Size += 1000
		case how < 8 && len(b.Items) > 0: // another history
			b.Items[0].Root[0] ^= 1
		default:
			return []batches.Message{m}
		}
		w.did("lie about batches")
		return []batches.Message{b}
	case batches.Follows:
		if how < 2 { // from nowhere
			b.All = slices.Clone(b.All)
			b.All[0].From += 1 << 40
			w.did("lie about batches")
			return []batches.Message{b}
		}
	}
	switch how {
	case 25:
		w.did("lie about batches")
		return nil
	case 26:
		w.did("lie about batches")
		return []batches.Message{m, m}
	}
	return []batches.Message{m}
}

// lieAboutSpan changes a span on its way.
func (n *node) lieAboutSpan(b batches.Spans, how int) ([]batches.Message, bool) {
	r, s := n.w.rng, &b.Span
	s.Batches = slices.Clone(s.Batches)
	if len(s.Batches) == 0 {
		return nil, false
	}
	i := r.IntN(len(s.Batches))
	switch how {
	case 0: // a bit is another
		s.Batches[i] = bytes.Clone(s.Batches[i])
		s.Batches[i][r.IntN(len(s.Batches[i]))] ^= 1
	case 1, 2, 3: // another record, with a right checksum
		s.Batches[i] = otherRecord(s.Batches[i])
	case 4: // a hole
		if s.Batches = s.Batches[1:]; len(s.Batches) == 0 {
			return nil, true
		}
	case 5:
		slices.Reverse(s.Batches)
	case 6: // longer, by a batch that its leader never wrote
		more := otherRecord(s.Batches[len(s.Batches)-1])
		if h, err := record.ParseHeader(more); err == nil {
			record.Place(more, h.NextOffset(), h.LeaderEpoch)
		}
		s.Batches = append(s.Batches, more)
	case 7, 8: // a checkpoint of its own
		s.Note = bytes.Clone(s.Note)
		s.Note[r.IntN(len(s.Note))] ^= 1
	case 9:
		s.Proof = nil
	case 10: // far start
		s.From += 1 << 20
	case 11:
		s.Grants = nil
	case 12:
		s.Left = append(slices.Clone(s.Left), lattice.Hash{1})
	case 13:
		return nil, true
	default:
		return nil, false
	}
	return []batches.Message{b}, true
}

// otherRecord is a batch in the place of another, with another record in it.
func otherRecord(b []byte) []byte {
	h, err := record.ParseHeader(b)
	if err != nil {
		return b
	}
	x := record.NewBuilder(record.None, 0)
	for range h.Count {
		x.Add(h.BaseTimestamp, nil, []byte("forged"), nil)
	}
	out := x.Build(nil)
	record.Place(out, h.BaseOffset, h.LeaderEpoch)
	return out
}

// trespass has a stranger, and a member of a topic that it does not lead, ask for what
// only writers may have done.
func (w *world) trespass() {
	n, ok := w.pick(func(n *node) bool { return !n.lies })
	if !ok {
		return
	}
	t, ok := n.topic()
	if !ok {
		return
	}
	b := record.NewBuilder(record.None, 0)
	b.Add(n.clock.Now().UnixMilli(), nil, []byte("a stranger's"), nil)
	got := make(chan error, 1)
	n.st.AppendLed(w.keyOf("zed").Author(), lattice.TopicPartition{Topic: t.ID}, partition.Append{Batches: b.Build(nil), Done: func(_ partition.Result, err error) { got <- err }})
	w.quiet()
	w.did("trespass")
	select {
	case err := <-got:
		w.say("a stranger asks %s to append: %s", n.name, short(err))
		if err == nil {
			w.fail("only entitled writes count", "%s appends what a stranger asks for", n.name)
		}
	default:
		w.fail("only entitled writes count", "%s gives a stranger no answer", n.name)
	}
}
