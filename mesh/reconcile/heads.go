package reconcile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/merge"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/mesh/wire"
)

// StatementKind is what a statement about a partition is. The numbers are in messages.
type StatementKind uint8

// The kinds of statements.
const (
	// StatementGrant is a term's grant (core/grant).
	StatementGrant StatementKind = 1
	// StatementHead is a checkpoint signed by the term's leader, with cosignatures
	// (core/merkle).
	StatementHead StatementKind = 2
	// StatementPrefix proves that one tree extends another:
	//	from: size u64, root 32, end u64 | to: the same | u8 n, n x hash
	StatementPrefix StatementKind = 3
)

// maxNotes bounds the checkpoints that are kept of a partition: one a term and those
// that carry cosignatures, of a handful of terms.
const maxNotes = 256

var (
	errNoGrant  = lattice.E(lattice.NotYet, errors.New("the grant of its term is not here"))
	errEntitled = lattice.E(lattice.Denied, errors.New("whoever signed it has no right to it"))
	errFull     = lattice.E(lattice.TooLarge, fmt.Errorf("more than %d checkpoints of one partition", maxNotes))
)

// PrefixStatement makes a statement of a consistency proof.
func PrefixStatement(from, to merge.Point, proof []lattice.Hash) Statement {
	return Statement{StatementPrefix, appendHashes(appendPoint(appendPoint(nil, from), to), proof)}
}

func appendPoint(b []byte, p merge.Point) []byte {
	b = append(binary.BigEndian.AppendUint64(b, p.Size), p.Root[:]...)
	return binary.BigEndian.AppendUint64(b, uint64(p.End))
}

// heads is what is known of a partition, with the bytes of each statement so that
// others can be told.
type heads struct {
	state    merge.State
	grants   map[lattice.Hash]grant.Signed
	notes    []note
	prefixes []prefix
	asked    map[[2]merge.Point]bool // proofs that the caller was asked for
}

type note struct {
	bytes []byte
	head  merge.Head
	acks  []merge.Ack
}

type prefix struct {
	bytes    []byte
	from, to merge.Point
	proven   merge.Prefix
}

func newHeads() *heads {
	return &heads{grants: map[lattice.Hash]grant.Signed{}, asked: map[[2]merge.Point]bool{}}
}

func (h *heads) clone() *heads {
	c := newHeads()
	for k, v := range h.grants {
		c.grants[k] = v
	}
	c.notes, c.prefixes, c.state = slices.Clone(h.notes), slices.Clone(h.prefixes), h.state
	return c
}

// add verifies a statement and joins it.
func (h *heads) add(c *Config, tp lattice.TopicPartition, s Statement) error {
	switch s.Kind {
	case StatementGrant:
		return h.addGrant(c, tp, s.Bytes)
	case StatementHead:
		return h.addNote(c, tp, s.Bytes)
	case StatementPrefix:
		return h.addPrefix(s.Bytes)
	}
	return lattice.E(lattice.Corrupt, fmt.Errorf("statement of kind %d", s.Kind))
}

func (h *heads) addGrant(c *Config, tp lattice.TopicPartition, b []byte) error {
	g, err := grant.Parse(b)
	switch {
	case err != nil:
		return err
	case h.grants[g.ID].ID == g.ID:
		return nil
	case g.Store != c.Store || g.Partition != tp:
		return lattice.E(lattice.Invalid, errors.New("a grant for another partition"))
	case c.Entitled == nil:
		return errEntitled
	}
	if err := g.Verify(); err != nil {
		return err
	}
	if err := c.Entitled(g); err != nil {
		return fmt.Errorf("%w: %w", errEntitled, err)
	}
	h.grants[g.ID] = g
	h.state = merge.Join(h.state, merge.New(merge.State{Terms: []merge.Term{merge.TermOf(g)}}))
	return nil
}

func (h *heads) addNote(c *Config, tp lattice.TopicPartition, b []byte) error {
	if slices.ContainsFunc(h.notes, func(n note) bool { return bytes.Equal(n.bytes, b) }) {
		return nil
	}
	// The text says which term, and the term's grant who signs.
	text, _, _ := bytes.Cut(b, []byte("\n\n"))
	claim, err := merkle.ParseBody(append(bytes.Clone(text), '\n'))
	if err != nil {
		return err
	}
	g, ok := h.grants[claim.Grant]
	if !ok {
		return errNoGrant
	}
	cp, cosigned, err := merkle.OpenCosigned(b, g.Leader)
	switch {
	case err != nil:
		return err
	case cp.Origin != merkle.Origin(c.Store, tp.String()) || cp.Term != g.Term:
		return lattice.E(lattice.Invalid, errors.New("a checkpoint of another log or term"))
	case len(h.notes) >= maxNotes:
		return errFull
	}
	n := note{bytes: b, head: merge.HeadOf(cp, g.Leader)}
	for _, x := range cosigned {
		if slices.Contains(g.AckSet, x.Author) {
			n.acks = append(n.acks, merge.Ack{Author: x.Author, Grant: g.ID, Point: n.head.Point})
		}
	}
	h.notes = append(h.notes, n)
	h.join()
	return nil
}

func (h *heads) addPrefix(b []byte) error {
	r := wire.Reader{Rest: b}
	from := merge.Point{Size: r.U64(), Root: r.Hash(), End: int64(r.U64())}
	to := merge.Point{Size: r.U64(), Root: r.Hash(), End: int64(r.U64())}
	proof := r.Hashes(maxHashes)
	if r.Why != "" || len(r.Rest) != 0 {
		return lattice.E(lattice.Corrupt, errors.New("malformed proof of a prefix"))
	}
	if slices.ContainsFunc(h.prefixes, func(p prefix) bool { return p.from == from && p.to == to }) {
		return nil
	}
	p, err := merge.Prove(from, to, proof)
	if err != nil {
		return err
	}
	h.prefixes = append(h.prefixes, prefix{bytes.Clone(b), from, to, p})
	h.join()
	return nil
}

// join makes the state of all statements, and drops those that it does not need.
func (h *heads) join() {
	s := merge.State{Terms: h.state.Terms}
	for _, n := range h.notes {
		s.Heads, s.Acks = append(s.Heads, n.head), append(s.Acks, n.acks...)
	}
	for _, p := range h.prefixes {
		s.Prefixes = append(s.Prefixes, p.proven)
	}
	h.state = merge.New(s)
	h.notes = slices.DeleteFunc(h.notes, func(n note) bool {
		return !slices.Contains(h.state.Heads, n.head) && !slices.ContainsFunc(n.acks, func(a merge.Ack) bool { return slices.Contains(h.state.Acks, a) })
	})
	h.notes = slices.DeleteFunc(h.notes, func(n note) bool { // another has all that it says, and more
		return slices.ContainsFunc(h.notes, func(o note) bool {
			return o.head == n.head && len(o.acks) > len(n.acks) && !slices.ContainsFunc(n.acks, func(a merge.Ack) bool { return !slices.Contains(o.acks, a) })
		})
	})
	live := map[merge.Point]bool{}
	for _, x := range h.state.Heads {
		live[x.Point] = true
	}
	for _, x := range h.state.Acks {
		live[x.Point] = true
	}
	for _, x := range h.state.Terms {
		live[x.Base] = true
	}
	h.prefixes = slices.DeleteFunc(h.prefixes, func(p prefix) bool { return !live[p.from] && !live[p.to] })
	if n := len(h.prefixes) - maxNotes; n > 0 {
		h.prefixes = slices.Delete(h.prefixes, 0, n)
	}
}

// statements returns all that others need to come to the same state, in parts that
// fit into messages; grants come first.
func (h *heads) statements() [][]Statement {
	var out [][]Statement
	size := maxControl
	add := func(k StatementKind, b []byte) {
		if len(b) > maxControl/2 {
			return // no message holds it
		}
		if size += 5 + len(b); size > maxControl/2 || len(out[len(out)-1]) == maxStates {
			out, size = append(out, nil), 5+len(b)
		}
		out[len(out)-1] = append(out[len(out)-1], Statement{k, b})
	}
	for _, t := range h.state.Terms {
		add(StatementGrant, h.grants[t.ID].Bytes())
	}
	for _, n := range h.notes {
		add(StatementHead, n.bytes)
	}
	for _, p := range h.prefixes {
		add(StatementPrefix, p.bytes)
	}
	return out
}

const statementsDomain = "lattice/statements/v1\x00"

// item returns what a partition is in the frontier: heads, cosignatures and terms,
// as they are after the join, and so the same wherever the same is known. Proofs are
// left out: who has dropped a head does not need the proof that it could.
func (h *heads) item(tp lattice.TopicPartition) Item {
	sum := sha256.New()
	sum.Write([]byte(statementsDomain))
	n := uint64(0)
	for _, t := range h.state.Terms {
		sum.Write(append([]byte{byte(StatementGrant)}, t.ID[:]...))
		n++
	}
	for _, x := range h.state.Heads {
		sum.Write(append([]byte{byte(StatementHead)}, x.ID[:]...))
		n++
	}
	for _, a := range h.state.Acks {
		sum.Write(appendPoint(append(append([]byte{0}, a.Grant[:]...), a.Author[:]...), a.Point))
		n++
	}
	return Item{PartitionKey(tp), n, lattice.Hash(sum.Sum(nil))}
}

// known joins what is durable here.
func (r *Replica) known(s Statements) error {
	h := r.parts[s.Partition]
	if h == nil {
		h = newHeads()
	}
	var first error
	for _, x := range s.All {
		if err := h.add(&r.c, s.Partition, x); err != nil && first == nil {
			first = err
		}
	}
	if len(h.state.Terms) > 0 {
		r.parts[s.Partition] = h
		r.front.set(h.item(s.Partition))
	}
	return first
}

// Learned says what this node knows of a partition, durably: its own grants,
// checkpoints, cosignatures, and proofs as Effects.Prove asked for. What does not
// verify is left out, and is the error.
func (r *Replica) Learned(s Statements, nowMs int64) (Effects, error) {
	r.now = nowMs
	err := r.known(s)
	r.spread(s.Partition, nil)
	return r.done(), err
}

// spread tells of a partition of which something new is known.
func (r *Replica) spread(tp lattice.TopicPartition, from *peer) {
	h, k := r.parts[tp], PartitionKey(tp)
	if h == nil {
		return
	}
	for _, p := range r.peers {
		if p != from && p.greeted {
			p.news = append(p.news, k)
		}
	}
	r.prove(tp, h)
}

// prove asks for proofs of how the heads of a partition are related.
func (r *Replica) prove(tp lattice.TopicPartition, h *heads) {
	for i, a := range h.state.Heads {
		for _, b := range h.state.Heads[i+1:] {
			from, to := a.Point, b.Point
			if from.Size > to.Size {
				from, to = to, from
			}
			pair := [2]merge.Point{from, to}
			known := slices.ContainsFunc(h.prefixes, func(p prefix) bool { return p.from == from && p.to == to })
			if from.Size == to.Size || known || h.asked[pair] {
				continue
			}
			h.asked[pair] = true
			r.eff.Prove = append(r.eff.Prove, Prove{tp, from, to})
		}
	}
}

// Prove asks for the proof that one tree of a partition extends another. If it can
// be made here, it is handed to Learned as a PrefixStatement; if not, it is asked for
// again after Config.CompareMs.
type Prove struct {
	Partition lattice.TopicPartition
	From, To  merge.Point
}

// statements takes what a peer knows of a partition.
func (r *Replica) statements(p *peer, m Statements) {
	h, k := r.parts[m.Partition], PartitionKey(m.Partition)
	if h == nil {
		h = newHeads()
	}
	had := h.item(m.Partition)
	was := len(h.prefixes)
	h = h.clone()
	good, bad := Statements{Partition: m.Partition}, false
	for _, s := range m.All {
		err := h.add(&r.c, m.Partition, s)
		if err == nil {
			good.All = append(good.All, s)
			continue
		}
		reason := reasonOf(err)
		switch {
		case errors.Is(err, errEntitled), errors.Is(err, errNoGrant):
			reason = NotEntitled
		case errors.Is(err, merkle.ErrProof), errors.Is(err, merge.ErrContradiction):
			reason = Unproven
		case lattice.KindOf(err) == lattice.Corrupt && reason == NotTaken:
			reason = Malformed
		}
		r.refuse(p, state.Writer{}, 0, reason, fmt.Errorf("statement about %s: %w", m.Partition, err))
		r.keepOff(p, k)
		bad = true
	}
	if bad {
		p.strikes++
	}
	if item := h.item(m.Partition); item == had && len(h.prefixes) <= was {
		return
	}
	id := r.nextID()
	r.stores[id] = storing{peer: p, parts: &good}
	r.eff.Store = append(r.eff.Store, Store{ID: id, Peer: p.id, Statements: &good})
}

// Partition returns what is known of a partition's heads.
func (r *Replica) Partition(tp lattice.TopicPartition) merge.State {
	if h := r.parts[tp]; h != nil {
		return h.state
	}
	return merge.State{}
}
