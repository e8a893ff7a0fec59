package sigchain

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
)

func seeded(b byte) identity.Key { return identity.FromSeed([32]byte(bytes.Repeat([]byte{b}, 32))) }

func must[T any](t testing.TB, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// genesisEntry is the genesis entry of every golden case.
func genesisEntry(t testing.TB) Signed {
	op, err := Genesis{Name: "home", Random: [16]byte{0xa0, 0xa1, 15: 0xaf}}.Op()
	s, err2 := Sign(seeded(1), Entry{Incarnation: 7, Seq: 1, Time: 0x018bcfe568000000, Ops: []Op{must(t, op, err)}})
	return must(t, s, err2)
}

func topicEntry(t testing.TB) Signed {
	g := genesisEntry(t)
	op, err := CreateTopic{Name: "orders", Partitions: 3, Configs: []Config{{"cleanup.policy", "compact"}, {"retention.ms", "1000"}}}.Op()
	s, err2 := Sign(seeded(1), Entry{
		Store: lattice.StoreID(g.ID), Incarnation: 7, Seq: 2, Time: 0x018bcfe568000001, Prev: g.Link(),
		Ops: []Op{must(t, op, err)},
	})
	return must(t, s, err2)
}

// mergeEntry is by another author, opens its second incarnation and depends on
// both entries above; its operation is of a kind nobody knows yet.
func mergeEntry(t testing.TB) Signed {
	g, topic := genesisEntry(t), topicEntry(t)
	s, err := Sign(seeded(2), Entry{
		Store: lattice.StoreID(g.ID), Incarnation: 9, Seq: 1, Time: 0x018bcfe568010000,
		Prev:    Link{8, 41, lattice.Hash{1, 2, 3, 31: 4}},
		Parents: []Ref{topic.Ref(), g.Ref()},
		Ops:     []Op{{0xfffe, []byte("opaque")}, {0xfffe, nil}},
	})
	return must(t, s, err)
}

// TestGoldenBytes pins whole entries as they were first signed, with a line for
// each field. If a case changes, the design is wrong, not the test.
func TestGoldenBytes(t *testing.T) {
	for name, make := range map[string]func(testing.TB) Signed{
		"genesis": genesisEntry, "topic": topicEntry, "merge": mergeEntry,
	} {
		t.Run(name, func(t *testing.T) {
			s := make(t)
			text, err := os.ReadFile(filepath.Join("testdata", "v1", name+".txt"))
			if err != nil {
				t.Fatalf("%v; signed now: %x", err, s.Bytes())
			}
			var want []byte
			var id string
			for line := range strings.Lines(string(text)) {
				field, value, _ := strings.Cut(strings.TrimSpace(line), " ")
				if field == "id" {
					id = strings.TrimSpace(value)
					continue
				}
				b, err := hex.DecodeString(strings.ReplaceAll(value, " ", ""))
				want = append(want, must(t, b, err)...)
			}
			if !bytes.Equal(s.Bytes(), want) {
				t.Errorf("signed now:\n%x\nas frozen:\n%x", s.Bytes(), want)
			}
			old, err := Parse(want)
			if err != nil || old.ID.String() != id || old.Verify() != nil {
				t.Errorf("the frozen entry reads as id %s, %v, %v; want %s", old.ID, err, old.Verify(), id)
			}
		})
	}
}
