package flow

import (
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
)

// From says where a subscription begins.
type From struct {
	// Live: with what comes from now on, without a snapshot.
	Live bool
	// Cursor is where the client was. Empty: it has nothing, and gets a snapshot.
	Cursor string
}

// AnswerKind is one of the three answers to a subscription.
type AnswerKind uint8

// The answers.
const (
	Nothing AnswerKind = iota // nothing was missed
	Replay                    // what was missed follows
	Reset                     // forget what you have: a snapshot follows
)

func (k AnswerKind) String() string { return [...]string{"nothing_missed", "replay", "reset"}[k] }

// Answer says how a subscription goes on.
type Answer struct {
	Kind   AnswerKind
	Items  []*Item // of Replay
	Reason string  // of Reset: asked, other_topic, ahead, too_old, too_much, rebuilt, gap
	// Cursor is where a Reset or Nothing stands: what follows it will be offered.
	Cursor string
}

// aheadSlack is how far a cursor may be ahead of what this gateway has read, in records
// of one partition, and still be honest: the client comes from a faster gateway.
const aheadSlack = 1 << 20

// ErrAhead means a cursor that no gateway of this topic can have given.
var ErrAhead = lattice.E(lattice.Invalid, errors.New("the cursor lies far behind the topic's end"))

// Resume answers who begins to follow s. What is added to the feed later is not in
// the answer, and must be offered.
func (f *Feed) Resume(s Selector, from From) (Answer, error) {
	here := f.at()
	a := Answer{Cursor: here.Cursor(f.cfg.ID)}
	reset := func(reason string) (Answer, error) {
		a.Kind, a.Reason = Reset, reason
		return a, nil
	}
	switch {
	case from.Live:
		return a, nil
	case from.Cursor == "":
		return reset("asked")
	}
	feed, p, err := ParseCursor(from.Cursor)
	if err != nil {
		return Answer{}, err
	}
	if feed != f.cfg.ID {
		return reset("other_topic")
	}
	for i, n := range p {
		var read int64
		if i < len(f.read) {
			read = f.read[i]
		}
		if n > read+aheadSlack {
			return Answer{}, fmt.Errorf("%w: partition %d ends at %d", ErrAhead, i, read)
		}
	}
	switch {
	case !p.within(f.read):
		return reset("ahead")
	case !f.floor.within(p):
		return reset("too_old")
	}
	// Each by itself: what was passed on while another waited has the place of that one, which
	// the cursor can cover without covering it.
	for _, it := range f.recent[f.first:] {
		if p.has(it.Partition, it.Offset) || !it.matches(s) {
			continue
		}
		if it.Reset {
			return reset(it.Reason)
		}
		if a.Items = append(a.Items, it); len(a.Items) > f.cfg.Replay {
			a.Items = nil
			return reset("too_much")
		}
	}
	if len(a.Items) > 0 {
		a.Kind = Replay
	}
	return a, nil
}
