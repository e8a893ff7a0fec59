package reconcile

import (
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
)

// Ready is a message that has been taken apart as far as that needs no Replica: what
// costs most, hashing entries, is done by then, and can be done by a goroutine for
// each peer.
type Ready struct {
	message Message
	size    int
	err     error // it is no message

	// Of blocks: the entries that parse, and what is wrong with the one after them.
	entries []sigchain.Signed
	wrong   error
	leaves  []lattice.Hash // of all entries, if there is a checkpoint and nothing is wrong
}

// Take takes one whole message apart, whose memory the result goes on using. What is
// wrong with it is told by StepReady.
func Take(message []byte) Ready {
	m, err := Parse(message)
	out := Ready{message: m, size: len(message), err: err}
	b, ok := m.(Blocks)
	if err != nil || !ok {
		return out
	}
	out.entries = make([]sigchain.Signed, 0, len(b.Entries))
	for i, x := range b.Entries {
		s, err := sigchain.Parse(x)
		if err != nil {
			out.wrong = err
			return out
		}
		if s.Author != b.Log.Author || s.Incarnation != b.Log.Incarnation || s.Seq != b.After+1+uint64(i) {
			out.wrong = fmt.Errorf("entry %d of %s: %w", s.Seq, s.Author.Short(), sigchain.ErrForeign)
			return out
		}
		out.entries = append(out.entries, s)
	}
	if len(b.Note) == 0 {
		return out
	}
	out.leaves = make([]lattice.Hash, len(out.entries))
	for i := range out.entries {
		out.leaves[i] = sigchain.Leaf(out.entries[i]).Hash()
	}
	return out
}
