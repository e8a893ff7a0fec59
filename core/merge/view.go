package merge

import (
	"cmp"
	"slices"

	lattice "github.com/lattice-log/lattice"
)

// View is what one replica makes of a State.
type View struct {
	// Term rules now; nil for a log without terms.
	Term *Term
	// Target is what the log is heading for: the longest head of the term that
	// can be followed from here, or the term's base. If it lies beyond what is
	// here, blocks are to be fetched; a leader fetches them before it appends.
	Target Point
	// Readable is what readers may see of what is here.
	Readable Point
	// Committed is what enough of the ack set hold, whether it is here or not.
	Committed Point
	// Start is the greatest signed start offset within Readable. A caller never
	// moves its own start back.
	Start int64
	// Jump, if not nil, is a head that extends what is here but starts beyond it:
	// the blocks between were truncated. The caller may drop what it has and go on
	// from there; Expired offsets were never read.
	Jump    *Head
	Expired int64

	// Frozen means that the ruling term has a fork: nothing may be appended until
	// a new grant names a branch.
	Frozen bool
	// Forks are pairs of heads by which a writer is proven to have signed two
	// histories, in any term.
	Forks []Fork
	// Diverged means that what is here is proven to leave Target's history: what
	// lies beyond Readable is to be kept aside as stranded.
	Diverged bool
	// Refused are heads of the ruling term that contradict the term's base.
	Refused []Head
	// Unproven are heads of which it is not known how they relate to the target
	// or, when the term is older, to the term that rules: ask for proofs.
	Unproven []Head
	// Stranded are heads of older or losing terms with blocks that the ruling
	// term does not have.
	Stranded []Head
}

// Fork is evidence against a writer: two heads of one term, neither of which
// extends the other, and the largest point proven common to both.
type Fork struct {
	A, B   Head
	Common Point
}

// viewer collects a View.
type viewer struct {
	*knowledge
	s     State
	local Point
	line  []Term // ends with the ruling term
	base  Point  // of the ruling term
	grant lattice.Hash
	live  []Head // of the ruling term, on its base
	split []Fork // between live heads
	v     View
}

// View says what a replica that holds the log up to local, verified, makes of s.
// What local stands for must be certified: the replica keeps the head under which
// it verified its blocks.
func (s State) View(local Point) View {
	w := &viewer{knowledge: s.knowledge(), s: s, local: local, line: s.winning(), base: Empty()}
	if n := len(w.line); n > 0 {
		term := w.line[n-1]
		w.v.Term, w.base, w.grant = &term, term.Base, term.ID
	}
	w.sort()
	w.forks()
	w.target()
	w.readable()
	w.start()
	w.stranded()
	return w.v
}

// sort finds the heads of the ruling term that stand on its base.
func (w *viewer) sort() {
	for _, h := range w.s.Heads {
		switch {
		case h.Grant != w.grant:
		case w.prefix(w.base, h.Point):
			w.live = append(w.live, h)
		case w.conflict(w.base, h.Point):
			w.v.Refused = append(w.v.Refused, h)
		default:
			w.v.Unproven = append(w.v.Unproven, h)
		}
	}
}

func (w *viewer) forks() {
	for i, a := range w.s.Heads {
		for _, b := range w.s.Heads[i+1:] {
			if a.Grant != b.Grant || !w.conflict(a.Point, b.Point) {
				continue
			}
			f := Fork{a, b, w.common(a.Point, b.Point)}
			w.v.Forks = append(w.v.Forks, f)
			if slices.Contains(w.live, a) && slices.Contains(w.live, b) {
				w.split, w.v.Frozen = append(w.split, f), true
			}
		}
	}
}

// target chooses where the log is heading.
func (w *viewer) target() {
	w.v.Target = w.base
	if w.v.Frozen {
		w.v.Target = w.branch()
		w.v.Committed = w.committed(w.v.Target)
		return
	}
	for _, h := range w.live {
		if w.known(h.Point) && h.Point.compare(w.v.Target) > 0 {
			w.v.Target = h.Point
		}
	}
	if !w.known(w.v.Target) { // nothing of this term can be followed from here
		w.v.Target = w.longest()
	}
	for _, h := range w.live {
		if !w.known(h.Point) || !w.related(h.Point, w.v.Target) {
			w.v.Unproven = append(w.v.Unproven, h)
		}
	}
	w.v.Committed = w.committed(w.v.Target)
}

// known reports whether it is known how p relates to what is here.
func (w *viewer) known(p Point) bool { return w.related(p, w.local) || w.conflict(p, w.local) }

// longest returns the longest head of the ruling term. Without a fork it needs no
// more than its size to be the one to ask for.
func (w *viewer) longest() Point {
	best := w.base
	for _, h := range w.live {
		if h.Point.compare(best) > 0 {
			best = h.Point
		}
	}
	return best
}

// branch returns how far the log can be read in spite of a fork of the ruling
// term: to the point common to all its branches, or, if the committed points of
// the branches do not contradict each other, to the largest of them.
func (w *viewer) branch() Point {
	limit := w.split[0].Common
	var certified []Point
	for _, f := range w.split {
		if f.Common.Size < limit.Size {
			limit = f.Common
		}
		certified = append(certified, w.committed(f.A.Point), w.committed(f.B.Point))
	}
	best := limit
	for _, p := range certified {
		for _, q := range certified {
			if !w.related(p, q) {
				return limit
			}
		}
		if p.Size > best.Size {
			best = p
		}
	}
	return best
}

// committed returns the largest point on the way to p that enough of the ack set
// of some term in line hold.
func (w *viewer) committed(p Point) Point {
	best := Empty()
	for _, t := range w.line {
		if q := w.acked(t, p); q.compare(best) > 0 {
			best = q
		}
	}
	if len(w.line) == 0 && !w.v.Frozen {
		best = p // the writer of a log without terms is its whole ack set
	}
	return best
}

// acked returns the Min-th largest of the points on the way to p that the
// members of t's ack set hold: the leader by its heads, the others by their
// cosignatures. A leader that signed two branches counts on both.
func (w *viewer) acked(t Term, p Point) Point {
	held := map[lattice.AuthorID]Point{}
	holds := func(a lattice.AuthorID, upTo Point) {
		if !slices.Contains(t.AckSet, a) {
			return
		}
		for q := range w.down(upTo) { // who holds a log holds its prefixes
			if best, ok := held[a]; w.prefix(q, p) && (!ok || q.compare(best) > 0) {
				held[a] = q
			}
		}
	}
	for _, a := range w.s.Acks {
		if a.Grant == t.ID {
			holds(a.Author, a.Point)
		}
	}
	for _, h := range w.s.Heads {
		if h.Grant == t.ID {
			holds(t.Leader, h.Point)
		}
	}
	if t.Min < 1 || len(held) < t.Min {
		return Empty()
	}
	points := make([]Point, 0, len(held))
	for _, q := range held {
		points = append(points, q)
	}
	slices.SortFunc(points, func(a, b Point) int { return b.compare(a) })
	return points[t.Min-1]
}

// readable finds how much of what is here may be seen.
func (w *viewer) readable() {
	t, local := w.v.Target, w.local
	switch {
	case w.prefix(local, t):
		w.v.Readable = local
	case w.prefix(t, local):
		w.v.Readable = t // beyond a verified head bytes are provisional
		w.v.Diverged = w.v.Frozen || w.elsewhere(local)
	case w.conflict(t, local):
		w.v.Readable, w.v.Diverged = w.common(t, local), true
	default:
		w.v.Readable = w.certified()
	}
}

// elsewhere reports whether local is on a head of a term that does not rule, and
// beyond the ruling term's target.
func (w *viewer) elsewhere(local Point) bool {
	return slices.ContainsFunc(w.s.Heads, func(h Head) bool {
		return h.Grant != w.grant && w.prefix(local, h.Point) && local.Size > w.v.Target.Size
	})
}

// certified returns what can be read of local when its relation to the target is
// not known: what older heads in line, which are here, cover.
func (w *viewer) certified() Point {
	best := Empty()
	consider := func(p Point) {
		if w.conflict(p, w.v.Target) {
			return
		}
		if w.prefix(w.local, p) {
			p = w.local
		}
		if w.prefix(p, w.local) && p.Size > best.Size {
			best = p
		}
	}
	for _, t := range w.line {
		consider(t.Base)
	}
	for _, h := range w.s.Heads {
		if w.inLine(h.Grant) && !w.disputed(h) {
			consider(h.Point)
		}
	}
	return best
}

func (w *viewer) inLine(id lattice.Hash) bool {
	return id == w.grant || slices.ContainsFunc(w.line, func(t Term) bool { return t.ID == id })
}

func (w *viewer) disputed(h Head) bool {
	return slices.ContainsFunc(w.split, func(f Fork) bool { return f.A == h || f.B == h })
}

// start finds the start offset, and whether the log goes on beyond a gap.
func (w *viewer) start() {
	for _, h := range w.s.Heads {
		switch {
		case !w.inLine(h.Grant) || !w.related(h.Point, w.v.Readable):
		case h.Start <= w.v.Readable.End:
			w.v.Start = max(w.v.Start, h.Start)
		case w.v.Frozen || !w.prefix(h.Point, w.v.Target):
		case w.v.Diverged || w.prefix(w.local, w.v.Target):
			if w.v.Jump == nil || cmp.Or(cmp.Compare(h.Start, w.v.Jump.Start), h.compare(*w.v.Jump)) > 0 {
				jump := h
				w.v.Jump, w.v.Expired = &jump, h.Start-w.v.Readable.End
			}
		}
	}
}

// stranded lists what terms that do not rule have beyond the one that does.
func (w *viewer) stranded() {
	for _, h := range w.s.Heads {
		switch {
		case h.Grant == w.grant || w.prefix(h.Point, w.v.Target):
		case w.conflict(h.Point, w.v.Target) || w.prefix(w.base, h.Point):
			w.v.Stranded = append(w.v.Stranded, h)
		default:
			w.v.Unproven = append(w.v.Unproven, h)
		}
	}
}
