package reconcile

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

func filled(b byte) (h lattice.Hash) {
	for i := range h {
		h[i] = b
	}
	return h
}

var goldenLog = state.Writer{Author: lattice.AuthorID(filled(0xa1)), Incarnation: 7}

// goldenMessages are messages of every kind.
func goldenMessages() []Message {
	tp := lattice.TopicPartition{Topic: lattice.TopicID(bytes.Repeat([]byte{0x70}, 16)), Partition: 3}
	items := []Item{
		forkItem(sigchain.Place{Author: goldenLog.Author, Incarnation: 7, Seq: 5}),
		{LogKey(goldenLog), 4, lattice.Hash{}},
		{PartitionKey(tp), 2, filled(0xd1)},
	}
	return []Message{
		Hello{1, 1, lattice.StoreID(filled(0x50)), lattice.NodeID(filled(0xa0)), 9, Root{filled(0xf0), 3}, 4 << 20},
		Ranges{Last: true, From: Bound{keyLog}, Ranges: []Range{
			{To: Bound{keyLog, 0xa1}, Mode: ModeEqual},
			{To: Bound{keyLog, 0xa2}, Mode: ModeDigest, Count: 17, Digest: [16]byte(bytes.Repeat([]byte{0xdd}, 16))},
			{To: Bound{keyPartition}, Mode: ModeItems},
			{Mode: ModeAnswer, Items: items[2:]},
		}},
		Offer{items},
		Want{[]Span{{goldenLog, 2, 4, 6}, {goldenLog, 9, 0, 7}}, []lattice.AuthorID{goldenLog.Author}, []lattice.TopicPartition{tp}},
		Blocks{goldenLog, 7, 2, [][]byte{[]byte("entry three"), []byte("entry four")}, []byte("note"), []lattice.Hash{filled(1)}, []lattice.Hash{filled(2), filled(3)}},
		Fork{[]byte("one"), []byte("other")},
		Statements{tp, []Statement{{StatementGrant, []byte("grant")}, {StatementHead, []byte("note")}}},
		Pruned{goldenLog, 100, Snapshot{filled(0x60), filled(0x61), 1 << 20}},
		Refuse{goldenLog, 4, Forged},
		Credit{65536},
		Frontier{Root{filled(0xf1), 4}},
		Bye{WrongStore},
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
			if bl, ok := m.(Blocks); ok && Size(bl) != len(b) {
				t.Errorf("blocks cost %d bytes of credit and are %d", Size(bl), len(b))
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
	f.Add(append(Encode(Want{Spans: []Span{{Log: state.Writer{Author: idOf("ann"), Incarnation: 1}}}}), Encode(Credit{5})...))
	f.Fuzz(func(t *testing.T, b []byte) {
		w := newWorld(t, "ann", "bob")
		a := w.node("ann").r
		bob := idOf("bob")
		a.Connect(bob, w.now)
		if _, err := a.Step(bob, Encode(Hello{1, 1, w.genesis.Home(), bob, 1, Root{}, 1 << 20}), w.now); err != nil {
			t.Fatal(err)
		}
		for len(b) >= HeaderSize {
			n, err := BodySize(b)
			if err != nil || n > len(b)-HeaderSize {
				n = len(b) - HeaderSize
			}
			e, err := a.Step(bob, b[:HeaderSize+n], w.now)
			b = b[HeaderSize+n:]
			if len(e.Store) > 0 {
				t.Fatal("nothing was wanted, and something is stored")
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

// TestNames checks that every kind and reason has a name of its own.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for r := Closing; r <= NotTaken; r++ {
		if n := r.String(); n == "" || seen[n] || strings.HasPrefix(n, "reason ") {
			t.Errorf("reason %d is called %q", r, n)
		} else {
			seen[n] = true
		}
	}
	for _, m := range goldenMessages() {
		if MaxBody(m.Kind()) == 0 {
			t.Errorf("%s has no bound", m.Kind())
		}
	}
	if MaxBody(0) != 0 || MaxBody(KindBye+1) != 0 {
		t.Error("kinds that do not exist have a body")
	}
}
