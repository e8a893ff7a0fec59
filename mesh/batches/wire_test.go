package batches

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/span"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

var rewrite = flag.Bool("rewrite", false, "write files in testdata that are not there yet")

// goldenMessages are messages of every kind.
func goldenMessages() []Message {
	tp := lattice.TopicPartition{Topic: lattice.TopicID(bytes.Repeat([]byte{0x70}, 16)), Partition: 3}
	after := tp
	after.Partition = 4
	items := []Item{{tp, 9, filled(0xd1)}, {after, 1, filled(0xd2)}}
	return []Message{
		Hello{1, 1, testStore, lattice.NodeID(filled(0xa0)), 9, Root{filled(0xf0), 3}, 4 << 20},
		Ranges{From: Bound{0x10}, Ranges: []Range{
			{To: Bound{0x20}, Mode: ModeEqual},
			{To: Bound{0x70}, Mode: ModeDigest, Count: 17, Digest: [16]byte(bytes.Repeat([]byte{0xdd}, 16))},
			{Mode: ModeItems, Items: items},
		}},
		Offer{items},
		Follows{[]Follow{{tp, 6, 9}, {after, 0, 0}}},
		Spans{Ask: 6, Size: 12, Span: span.Span{
			Partition: tp, From: 9, Batches: [][]byte{[]byte("batch nine"), []byte("batch ten")}, Grants: [][]byte{[]byte("grant")},
			Note: []byte("note"), Left: []lattice.Hash{filled(1), filled(2)}, Proof: []lattice.Hash{filled(3)},
		}},
		Ended{Partition: tp, Ask: 6, First: 100},
		Refuse{tp, 6, reconcile.Unproven},
		Credit{65536},
		Frontier{Root{filled(0xf1), 4}},
		Bye{reconcile.WrongStore},
		Acks{[]Ack{{Partition: tp, Note: []byte("ack")}, {Partition: after, Note: []byte("another")}}},
	}
}

// TestGolden pins the bytes of every kind of message. If a case changes, the design
// is wrong, not the test.
func TestGolden(t *testing.T) {
	for _, m := range goldenMessages() {
		t.Run(m.Kind().String(), func(t *testing.T) {
			b := Encode(m)
			file := filepath.Join("testdata", "v1", m.Kind().String()+".hex")
			got := lines(hex.EncodeToString(b))
			want, err := os.ReadFile(file)
			if os.IsNotExist(err) && *rewrite {
				err = os.WriteFile(file, []byte(got), 0o644)
				want = []byte(got)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("it is\n%swant\n%s", got, want)
			}
			again, err := Parse(b)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(again, m) {
				t.Errorf("parsed %+v, want %+v", again, m)
			}
			if s, ok := m.(Spans); ok && Size(s) != len(b) {
				t.Errorf("a span costs %d bytes of credit and is %d", Size(s), len(b))
			}
			for n := range b { // cut anywhere, it is no message
				short := bytes.Clone(b[:n])
				if n >= HeaderSize {
					short[4], short[5], short[6], short[7] = 0, 0, byte((n-HeaderSize)>>8), byte(n-HeaderSize)
				}
				if m, err := Parse(short); err == nil {
					t.Fatalf("%d of %d bytes are taken for %+v", n, len(b), m)
				} else if !errors.Is(err, ErrMessage) {
					t.Fatal(err)
				}
			}
		})
	}
}

func lines(s string) string {
	var b strings.Builder
	for len(s) > 64 {
		fmt.Fprintln(&b, s[:64])
		s = s[64:]
	}
	fmt.Fprintln(&b, s)
	return b.String()
}

// TestKinds checks that every kind has a bound and a name, and that nothing else has.
func TestKinds(t *testing.T) {
	for i, m := range goldenMessages() {
		if m.Kind() != Kind(i+1) || MaxBody(m.Kind()) == 0 || strings.HasPrefix(m.Kind().String(), "kind ") {
			t.Errorf("kind %d: %s, at most %d bytes", i+1, m.Kind(), MaxBody(m.Kind()))
		}
	}
	if MaxBody(0) != 0 || MaxBody(KindAcks+1) != 0 {
		t.Error("kinds that do not exist have a body")
	}
}

// FuzzParse checks, for any input: no panic, what parses encodes to the bytes it
// came from, and its body is no longer than its kind allows.
func FuzzParse(f *testing.F) {
	for _, m := range goldenMessages() {
		f.Add(Encode(m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			if !errors.Is(err, ErrMessage) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		if again := Encode(m); !bytes.Equal(again, b) {
			t.Fatalf("%x parses, and encodes to %x", b, again)
		}
		if len(b)-HeaderSize > MaxBody(m.Kind()) {
			t.Fatalf("%s of %d bytes", m.Kind(), len(b))
		}
	})
}

// FuzzStep gives a replica any messages after a hello: it does not panic, hands out
// nothing to store, and what it sends can be parsed.
func FuzzStep(f *testing.F) {
	for _, m := range goldenMessages() {
		f.Add(Encode(m))
	}
	f.Add(append(Encode(Follows{[]Follow{{tpOf(1), 1, 0}}}), Encode(Credit{5})...))
	f.Add(append(Encode(Offer{[]Item{{tpOf(2), 5, filled(1)}}}), Encode(Ended{tpOf(2), 1, 4, 0})...))
	f.Fuzz(func(t *testing.T, b []byte) {
		w := newWorld(t, "ann", "bob")
		a := w.node("ann")
		a.create(tpOf(1))
		a.append(tpOf(1), 3, 10)
		bob := idOf("bob")
		a.r.Changed(Have{Partition: tpOf(2), Leader: bob}, w.now)
		a.r.Connect(bob, w.now)
		if _, err := a.r.Step(bob, Encode(Hello{1, 1, testStore, bob, 1, Root{}, 1 << 20}), w.now); err != nil {
			t.Fatal(err)
		}
		for len(b) >= HeaderSize {
			n, err := BodySize(b)
			if err != nil || n > len(b)-HeaderSize {
				n = len(b) - HeaderSize
			}
			e, err := a.r.Step(bob, b[:HeaderSize+n], w.now)
			b = b[HeaderSize+n:]
			for _, x := range e.Receive {
				if x.Span.Partition != tpOf(2) {
					t.Fatal("what was not followed is stored")
				}
			}
			for _, s := range e.Send {
				if _, err := Parse(Encode(s.Message)); err != nil {
					t.Fatalf("it sends what is no message: %v", err)
				}
			}
			if err != nil {
				return
			}
		}
	})
}
