package partition

import (
	"bytes"
	"slices"
	"sync"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/cosign"
	"github.com/lattice-log/lattice/core/grant"
)

// Bounds of what a ledger keeps.
const (
	keptTerms  = 8  // the newest, of which acknowledgements count
	keptBeyond = 16 // of one member, of more than is here
	keptEarly  = 16 // of terms that are not known here yet
)

// ledger is who holds how much of the partition, as far as this node was told by
// acknowledgements that it verified, and what is committed by that. Its lock is taken
// behind the partition's, never before it, and nothing is called with it held.
type ledger struct {
	mu    sync.Mutex
	terms []*ackTerm // oldest first
	mark  cosign.Mark
	saved cosign.Mark
	last  cosign.Last // what this node cosigned last, or may have
	kept  cosign.Last // of that, what is in Meta
	early [][]byte    // acknowledgements of terms that are not known here yet
	// seated were in a set of several, in any term. Whether the term that rules needs their
	// word still depends on what each node knows to be committed.
	seated map[lattice.AuthorID]bool

	told  map[int]func() // by number: called when there is a newer acknowledgement
	tells int            // of the last

	members map[lattice.AuthorID]*member // of the leader: the newest term's set, without itself
	waiting []*ackWait                   // by where they end
	end     int64                        // of the leader's log
	closed  bool
	unwatch func() // ends that the leader's own checkpoints are counted; nil: they are not
}

// ackTerm is a term and its acknowledgements.
type ackTerm struct {
	cosign.Term
	id     lattice.Hash
	number int32
	leader lattice.AuthorID
	base   cosign.Held
	held   map[lattice.AuthorID]cosign.Held
	notes  map[lattice.AuthorID][]byte       // the newest of each
	sizes  map[lattice.AuthorID]uint64       // what those say
	beyond map[lattice.AuthorID][]cosign.Ack // of more than is here, rising
}

// member is what the leader knows of another member of the set.
type member struct {
	held  cosign.Held
	since time.Time // when it began to lack something
	slow  bool      // others waited for it long enough
}

// several reports whether more than the leader's word is needed for what is committed.
func (t *ackTerm) several(settled int32) bool {
	return !t.Alone() || len(t.Before) > 0 && settled < t.number
}

// begin takes a term that is known now. The grant's own quorum and those before it
// that may not know of it: see cosign.Term.
func (l *ledger) begin(g *grant.Signed, me lattice.AuthorID, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &ackTerm{
		Term: cosign.Term{Quorum: cosign.Quorum{Set: g.AckSet, Min: int(g.Min)}},
		id:   g.ID, number: g.Term, leader: g.Leader, base: cosign.Held{Size: g.BaseSize, End: g.BaseOffset},
	}
	if n := len(l.terms); n > 0 && g.Kind != grant.Unclean {
		before := l.terms[n-1]
		t.Term = before.After(t.Quorum, l.mark.Term >= before.number)
	}
	if cutsBack(g.Kind) {
		l.cutBack(g.Term, t.base)
	}
	if g.Kind == grant.Promises {
		t.holds(t.leader, t.base) // it has it before it signs the grant
	}
	l.terms = append(l.terms, t)
	if !t.Alone() {
		if l.seated == nil {
			l.seated = map[lattice.AuthorID]bool{}
		}
		for _, a := range t.Set {
			l.seated[a] = true
		}
	}
	l.count(cosign.Held{}, lattice.Hash{}) // what the term before it had is its leader's, at least
	if len(l.terms) > keptTerms {
		l.terms = slices.Delete(l.terms, 0, 1)
	}
	if g.Leader != me {
		l.members = nil
		return
	}
	old := l.members
	l.members = map[lattice.AuthorID]*member{}
	for _, a := range g.AckSet {
		if a == me {
			continue
		}
		// A member that is new has a while to show itself.
		l.members[a] = &member{since: now}
		if m := old[a]; m != nil {
			l.members[a] = m
		}
	}
}

// cutBack takes back what was counted beyond the base of a term that begins before it.
func (l *ledger) cutBack(term int32, base cosign.Held) {
	for _, t := range l.terms {
		for by, h := range t.held {
			if h.Size > base.Size {
				t.held[by] = base
			}
		}
		for by, all := range t.beyond {
			t.beyond[by] = slices.DeleteFunc(all, func(a cosign.Ack) bool { return a.Size > base.Size })
		}
	}
	if l.mark.Term < term && l.mark.Size > base.Size {
		l.mark.Held = base
	}
}

// newest returns the term that rules; nil: none.
func (l *ledger) newest() *ackTerm {
	if len(l.terms) == 0 {
		return nil
	}
	return l.terms[len(l.terms)-1]
}

func (l *ledger) term(id lattice.Hash) *ackTerm {
	for i := len(l.terms) - 1; i >= 0; i-- {
		if l.terms[i].id == id {
			return l.terms[i]
		}
	}
	return nil
}

// take puts in an acknowledgement that was verified and compared with the log, or is of
// more than is here. false: it says nothing new.
func (l *ledger) take(a cosign.Ack, note []byte, here bool) bool {
	t := l.term(a.Grant)
	if t == nil {
		return false
	}
	news := t.sizes[a.By] < a.Size || t.notes[a.By] == nil
	if news {
		if t.notes == nil {
			t.notes, t.sizes = map[lattice.AuthorID][]byte{}, map[lattice.AuthorID]uint64{}
		}
		t.notes[a.By], t.sizes[a.By] = bytes.Clone(note), a.Size
	}
	if !here {
		return t.wait(a) || news
	}
	return t.holds(a.By, cosign.Held{Size: a.Size, End: a.End}) || news
}

func (t *ackTerm) holds(by lattice.AuthorID, h cosign.Held) bool {
	if was, ok := t.held[by]; ok && was.Size >= h.Size {
		return false
	}
	if t.held == nil {
		t.held = map[lattice.AuthorID]cosign.Held{}
	}
	t.held[by] = h
	return true
}

// wait keeps an acknowledgement of more than is here. The first ones stay, so that each
// is looked at in the end, however quickly others come.
func (t *ackTerm) wait(a cosign.Ack) bool {
	all := t.beyond[a.By]
	if n := len(all); n > 0 && all[n-1].Size >= a.Size {
		return false
	}
	if len(all) == keptBeyond {
		all = all[:keptBeyond-1]
	}
	if t.beyond == nil {
		t.beyond = map[lattice.AuthorID][]cosign.Ack{}
	}
	t.beyond[a.By] = append(all, a)
	return true
}

// dueBeyond takes out what waits for no more than size blocks.
func (l *ledger) dueBeyond(size uint64) []cosign.Ack {
	var due []cosign.Ack
	for _, t := range l.terms {
		for by, all := range t.beyond {
			n := 0
			for n < len(all) && all[n].Size <= size {
				n++
			}
			if n == 0 {
				continue
			}
			due = append(due, all[:n]...)
			if t.beyond[by] = slices.Clone(all[n:]); n == len(all) {
				delete(t.beyond, by)
			}
		}
	}
	return due
}

// count works out what is committed, of a log of which signed is the newest checkpoint
// here: the leader holds what it signed, and of an earlier term what the next builds on.
// It reports whether there is more than before.
func (l *ledger) count(signed cosign.Held, grant lattice.Hash) bool {
	grown := false
	for i, t := range l.terms {
		if t.id == grant {
			t.holds(t.leader, signed)
		}
		if i+1 < len(l.terms) {
			t.holds(t.leader, l.terms[i+1].base)
		}
		h, ok := t.Committed(t.held)
		if !ok || h.Size < l.mark.Size || h == l.mark.Held && t.number <= l.mark.Term {
			continue
		}
		l.mark = cosign.Mark{Term: max(l.mark.Term, t.number), Held: h}
		grown = true
	}
	return grown
}

// limit is the offset up to which readers may see what is here: never, if the leader's
// word is enough.
func (l *ledger) limit() int64 {
	t := l.newest()
	if t == nil || !t.several(l.mark.Term) {
		return never
	}
	return l.mark.End
}

// AckNote is an acknowledgement of a member's, as it goes to other nodes.
type AckNote struct {
	By   lattice.NodeID
	Note []byte // not to be changed
}

// notes returns the newest acknowledgement of each member in the newest term, by member.
func (l *ledger) notes() []AckNote {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.newest()
	if t == nil {
		return nil
	}
	var all []AckNote
	for a, note := range t.notes {
		all = append(all, AckNote{a, note})
	}
	slices.SortFunc(all, func(a, b AckNote) int { return bytes.Compare(a.By[:], b.By[:]) })
	return all
}

// follow has grown called when there are newer acknowledgements.
func (l *ledger) follow(grown func()) (cancel func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told == nil {
		l.told = map[int]func(){}
	}
	l.tells++
	n := l.tells
	l.told[n] = grown
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.told, n)
	}
}

// tell calls who follows. The lock is not held.
func (l *ledger) tell() {
	l.mu.Lock()
	var all []func()
	for _, f := range l.told {
		all = append(all, f)
	}
	l.mu.Unlock()
	for _, f := range all {
		f()
	}
}
