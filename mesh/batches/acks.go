package batches

import (
	"bytes"
	"encoding/binary"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// Members acknowledge what they hold to the partition's leader, and all who follow it
// hear of that, so that they know how much is committed. Here that is notes which prove
// themselves (core/cosign): the machine carries the newest of each member, and verifies
// none.
//
// A note that is new here goes to the leader, to where the partition is followed and to
// those who follow it here; a new session begins with all there are. Of each member
// and partition only the newest waits to be sent, at a rate far below what the receiver
// takes.

// VersionAcks is the version of the messages that acknowledgements came with.
const VersionAcks = 2

// KindAcks is the kind of Acks.
const KindAcks Kind = 11

const (
	maxAcks     = 1024
	maxAckNote  = 2 << 10
	ackBytes    = 1 << 20 // a second, that are sent to a peer; it takes four times that
	ackTaken    = 4 * ackBytes
	ackBurst    = 16 << 20
	ackUnderway = 4096 // of one peer, that are not verified yet
	cameFrom    = 8    // notes of a partition of which it is known who told them
)

// Ack is a member's acknowledgement of a partition.
type Ack struct {
	Partition lattice.TopicPartition
	By        lattice.NodeID // not in a message: the note says
	Note      []byte
}

// Acks carries them.
type Acks struct{ All []Ack }

// Kind returns KindAcks.
func (Acks) Kind() Kind { return KindAcks }

func (m Acks) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.All)))
	for _, a := range m.All {
		b = binary.BigEndian.AppendUint16(appendPartition(b, a.Partition), uint16(len(a.Note)))
		b = append(b, a.Note...)
	}
	return b
}

func (r *reader) acks() Message {
	m := Acks{make([]Ack, r.Count(uint32(r.U16()), maxAcks, partitionSize+3))}
	for i := range m.All {
		m.All[i] = Ack{Partition: r.partition(), Note: r.Take(r.Count(uint32(r.U16()), maxAckNote, 1))}
		if len(m.All[i].Note) == 0 {
			r.Fail("an empty acknowledgement")
		}
	}
	if len(m.All) == 0 {
		r.Fail("it acknowledges nothing")
	}
	return m
}

// Heard is an acknowledgement for a partition's log, which verifies it. Its Note is the
// caller's.
type Heard struct {
	Peer lattice.NodeID
	Ack
}

// ackOf names a member's acknowledgement of a partition.
type ackOf struct {
	part lattice.TopicPartition
	by   lattice.NodeID
}

// acking is what a peer is told, and has told, of acknowledgements.
type acking struct {
	news     map[ackOf]bool // to be sent
	room     int            // bytes that may be sent now
	sent     int64          // when that was filled
	budget   int            // bytes that it may send
	filled   int64
	underway int // that it sent, and are being verified
}

// cameAck is a note, and who told it.
type cameAck struct {
	note []byte
	from lattice.NodeID
}

// Told says which acknowledgements of a partition this node has now: the newest of each
// member, verified.
func (r *Replica) Told(id lattice.TopicPartition, acks []Ack, nowMs int64) Effects {
	r.now = nowMs
	t := r.parts[id]
	if t == nil {
		return r.done()
	}
	now := make(map[lattice.NodeID][]byte, len(acks))
	for _, a := range acks {
		now[a.By] = a.Note
		if bytes.Equal(t.acks[a.By], a.Note) {
			continue
		}
		from := lattice.NodeID{}
		if i := slices.IndexFunc(t.came, func(c cameAck) bool { return bytes.Equal(c.note, a.Note) }); i >= 0 {
			from = t.came[i].from
		}
		for _, p := range r.peers {
			if p.id != from && p.id != a.By && (p.id == t.leader || p == t.source && from == lattice.NodeID{} || p == t.source && r.servesAck(t, from) || p.serving[id] != nil) {
				p.tellAck(ackOf{id, a.By})
			}
		}
	}
	if t.acks = now; len(now) == 0 {
		t.acks = nil
	}
	return r.done()
}

// servesAck reports whether a peer follows a partition here: what it told goes on.
func (r *Replica) servesAck(t *part, id lattice.NodeID) bool {
	p := r.peer(id)
	return p != nil && p.serving[t.id] != nil
}

func (p *peer) tellAck(a ackOf) {
	if p.acking.news == nil {
		p.acking.news = map[ackOf]bool{}
	}
	p.acking.news[a] = true
}

// tellAcks has a peer told all that there are of a partition.
func (p *peer) tellAcks(t *part) {
	for by := range t.acks {
		if by != p.id {
			p.tellAck(ackOf{t.id, by})
		}
	}
}

// greetAcks begins a session with all that there are.
func (r *Replica) greetAcks(p *peer) {
	for _, t := range r.parts {
		p.tellAcks(t)
	}
}

// flushAcks sends what is new, as far as there is room.
func (r *Replica) flushAcks(p *peer) {
	a := &p.acking
	if len(a.news) == 0 || p.version < VersionAcks {
		a.news = nil
		return
	}
	a.room = int(min(ackBytes, int64(a.room)+(r.now-a.sent)*ackBytes/1000))
	a.sent = r.now
	var m Acks
	size := 0
	for _, k := range sortedAcks(a.news) {
		if a.room <= 0 {
			break
		}
		delete(a.news, k)
		t := r.parts[k.part]
		if t == nil || t.acks[k.by] == nil {
			continue
		}
		m.All = append(m.All, Ack{Partition: k.part, Note: t.acks[k.by]})
		n := partitionSize + 2 + len(t.acks[k.by])
		a.room -= n
		if size += n; len(m.All) == maxAcks || size >= maxControl/4 {
			r.send(p, m)
			m, size = Acks{}, 0
		}
	}
	if len(m.All) > 0 {
		r.send(p, m)
	}
}

func sortedAcks(news map[ackOf]bool) []ackOf {
	all := make([]ackOf, 0, len(news))
	for k := range news {
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b ackOf) int {
		if c := comparePartitions(a.part, b.part); c != 0 {
			return c
		}
		return bytes.Compare(a.by[:], b.by[:])
	})
	return all
}

// hearAcks takes what a peer tells. What is known already costs nothing more.
func (r *Replica) hearAcks(p *peer, m Acks, size int) error {
	a := &p.acking
	a.budget = int(min(ackBurst, int64(a.budget)+(r.now-a.filled)*ackTaken/1000))
	a.filled = r.now
	if a.budget -= size; a.budget < 0 {
		return fault(reconcile.TooMuch, "it sends more than %d bytes of acknowledgements a second", ackTaken)
	}
	for _, x := range m.All {
		t := r.parts[x.Partition]
		if t == nil || t.hasAck(x.Note) {
			continue // when the partition is known, it is told again to who follows it
		}
		if a.underway++; a.underway > ackUnderway {
			return fault(reconcile.TooMuch, "it sends acknowledgements faster than they can be verified")
		}
		x.Note = bytes.Clone(x.Note)
		if len(t.came) == cameFrom {
			t.came = slices.Delete(t.came, 0, 1)
		}
		t.came = append(t.came, cameAck{x.Note, p.id})
		r.eff.Heard = append(r.eff.Heard, Heard{p.id, x})
	}
	return nil
}

func (t *part) hasAck(note []byte) bool {
	for _, known := range t.acks {
		if bytes.Equal(known, note) {
			return true
		}
	}
	return false
}

// AckTaken says what became of an acknowledgement that was heard. What the log took,
// Told tells.
func (r *Replica) AckTaken(from lattice.NodeID, id lattice.TopicPartition, err error, nowMs int64) Effects {
	r.now = nowMs
	p := r.peer(from)
	if p != nil && p.acking.underway > 0 {
		p.acking.underway--
	}
	if err == nil || lattice.KindOf(err) == lattice.NotYet {
		return r.done()
	}
	reason := reasonOf(err)
	switch lattice.KindOf(err) {
	case lattice.Fenced:
		reason = reconcile.OutOfTime // it came twice, or over a longer way: nobody's fault
	case lattice.Corrupt:
		reason = reconcile.Forged
	}
	if p == nil {
		r.counts[reason]++
		return r.done()
	}
	r.refuse(p, id, 0, reason, err)
	if reason != reconcile.OutOfTime && reason.Wrong() {
		p.strikes++
	}
	return r.done()
}
