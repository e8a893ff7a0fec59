package batches

import (
	"bytes"
	"fmt"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// acker is a replica of one partition that ann leads, which bob follows at ann, and cid at
// bob.
func acker(name string) *Replica {
	r := New(Config{Store: testStore, Node: idOf(name)}, []Have{{Partition: tpOf(1), Leader: idOf("ann")}}, startMs)
	return r
}

// greet connects a peer that speaks up to a version.
func greet(t *testing.T, r *Replica, name string, max uint16) Effects {
	t.Helper()
	r.Connect(idOf(name), startMs)
	e, err := r.Step(idOf(name), Encode(Hello{1, max, testStore, idOf(name), 1, r.Root(), 1000}), startMs)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// told returns the notes that a peer is sent.
func told(e Effects, name string) (out []string) {
	for _, s := range e.Send {
		if m, ok := s.Message.(Acks); ok && s.To == idOf(name) {
			for _, a := range m.All {
				out = append(out, string(a.Note))
			}
		}
	}
	return out
}

func noteOf(by, note string) Ack { return Ack{tpOf(1), idOf(by), []byte(note)} }

// TestAcksTravel: a relay tells its source what those who follow it acknowledge, and them
// what the source tells; nobody is told his own, or what he told; a new session begins
// with the newest.
func TestAcksTravel(t *testing.T) {
	b := acker("bob")
	greet(t, b, "ann", 2)
	greet(t, b, "cid", 2)
	if _, err := b.Step(idOf("cid"), Encode(Follows{[]Follow{{tpOf(1), 1, 0}}}), startMs); err != nil {
		t.Fatal(err)
	}
	hear := func(from, note string) Effects {
		t.Helper()
		e, err := b.Step(idOf(from), Encode(Acks{[]Ack{{Partition: tpOf(1), Note: []byte(note)}}}), startMs)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	if e := hear("cid", "c1"); len(e.Heard) != 1 || e.Heard[0].Peer != idOf("cid") || string(e.Heard[0].Note) != "c1" {
		t.Fatalf("%+v", e.Heard)
	}
	b.AckTaken(idOf("cid"), tpOf(1), nil, startMs)
	e := b.Told(tpOf(1), []Ack{noteOf("cid", "c1")}, startMs)
	if a, c := told(e, "ann"), told(e, "cid"); len(a) != 1 || a[0] != "c1" || len(c) != 0 {
		t.Errorf("ann is told %v, cid %v", a, c)
	}
	if e := hear("cid", "c1"); len(e.Heard) != 0 {
		t.Error("what is known is verified again")
	}
	hear("ann", "d1")
	e = b.Told(tpOf(1), []Ack{noteOf("cid", "c1"), noteOf("dan", "d1")}, startMs)
	if a, c := told(e, "ann"), told(e, "cid"); len(a) != 0 || len(c) != 1 || c[0] != "d1" {
		t.Errorf("ann is told %v, cid %v", a, c)
	}
	e = b.Told(tpOf(1), []Ack{noteOf("bob", "b1"), noteOf("cid", "c1"), noteOf("dan", "d1")}, startMs)
	if a, c := told(e, "ann"), told(e, "cid"); len(a) != 1 || len(c) != 1 {
		t.Errorf("of its own ann is told %v, cid %v", a, c)
	}
	if e := greet(t, b, "eve", 2); len(told(e, "eve")) != 3 {
		t.Errorf("a new session begins with %v", told(e, "eve"))
	}
}

// TestOlderPeersHearNone: a peer that speaks version 1 is sent no message of version 2.
func TestOlderPeersHearNone(t *testing.T) {
	b := acker("bob")
	b.Told(tpOf(1), []Ack{noteOf("bob", "b1")}, startMs)
	e := greet(t, b, "ann", 1)
	e2 := b.Told(tpOf(1), []Ack{noteOf("bob", "b2")}, startMs)
	for _, s := range append(e.Send, e2.Send...) {
		if Encode(s.Message)[2] != Version {
			t.Errorf("it is sent %+v", s.Message)
		}
	}
}

// TestAcksAreBounded: a peer that sends more than may be, or forged ones, is let go; old ones
// are counted and nobody's fault.
func TestAcksAreBounded(t *testing.T) {
	forged := lattice.E(lattice.Corrupt, fmt.Errorf("forged"))
	old := lattice.E(lattice.Fenced, fmt.Errorf("old"))
	for name, c := range map[string]struct {
		verdict error
		want    Reason
		gone    bool
	}{
		"forged": {forged, reconcile.Forged, true},
		"old":    {old, reconcile.OutOfTime, false},
		"early":  {lattice.E(lattice.NotYet, fmt.Errorf("early")), 0, false},
	} {
		b := acker("bob")
		greet(t, b, "ann", 2)
		gone := false
		for i := 0; i < 2*maxStrikes && !gone; i++ {
			m := Acks{[]Ack{{Partition: tpOf(1), Note: fmt.Append(nil, name, i)}}}
			if _, err := b.Step(idOf("ann"), Encode(m), startMs); err != nil {
				t.Fatal(err)
			}
			e := b.AckTaken(idOf("ann"), tpOf(1), c.verdict, startMs)
			gone = len(e.Drop) > 0
		}
		if gone != c.gone || c.want != 0 && b.Refusals()[c.want] == 0 || c.want == 0 && len(b.Refusals()) != 0 {
			t.Errorf("%s: gone %v, %v", name, gone, b.Refusals())
		}
	}
	for name, m := range map[string]Message{
		"not verified yet": Acks{slicesOfAcks(100, 10)},
		"bytes":            Acks{slicesOfAcks(maxAcks/4, maxAckNote)},
	} {
		b := acker("bob")
		greet(t, b, "ann", 2)
		var err error
		n := 0
		for ; n < 1000 && err == nil; n++ {
			for i := range m.(Acks).All {
				note := m.(Acks).All[i].Note
				copy(note, fmt.Append(nil, n, i))
			}
			_, err = b.Step(idOf("ann"), Encode(m), startMs)
		}
		if err == nil || b.Refusals()[reconcile.TooMuch] != 1 {
			t.Errorf("%s: after %d messages it may go on", name, n)
		}
	}
}

func slicesOfAcks(n, size int) []Ack {
	out := make([]Ack, n)
	for i := range out {
		out[i] = Ack{Partition: tpOf(1), Note: bytes.Repeat([]byte{'x'}, size)}
	}
	return out
}
