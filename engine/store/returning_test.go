package store

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// put writes a key, durably.
func (m *member) put(key, value string) error {
	tk, err := m.State().Update(func(tx *keyval.Tx) error { return structs.In(tx, "0").Set([]byte(key), []byte(value), false) })
	if err == nil {
		err = tk.Wait(m.t.Context())
	}
	return err
}

// has checks the value of a key.
func (m *member) has(key, want string) {
	m.t.Helper()
	var v structs.Value
	tk, err := m.State().View(func(tx *keyval.Tx) (err error) { v, _, err = structs.In(tx, "0").Get([]byte(key)); return err })
	if err == nil {
		err = tk.Wait(m.t.Context())
	}
	if err != nil || string(v.Bytes) != want {
		m.t.Errorf("%s is %q, %v; want %q", key, v.Bytes, err, want)
	}
}

// take offers entries in order, and leaves out those of an author.
func (m *member) take(chains [][]sigchain.Signed, but lattice.AuthorID) {
	m.t.Helper()
	for range chains { // what one refuses, another lets in
		for _, c := range chains {
			if c[0].Author != but {
				_, err := m.State().Receive(c)
				m.must(err)
			}
		}
	}
}

// TestWhoLostItsDisk: a node that kept its key only, and joins again, is refused what it
// would write before it has got back what it wrote once, and what is acknowledged then
// counts everywhere.
func TestWhoLostItsDisk(t *testing.T) {
	r := rng(7)
	clock := tick.NewManual(time.UnixMilli(1_767_225_600_000))
	a := founder(t, "ann", clock)
	b := a.joiner("bob", roster.Writer)
	b.receive(r, a)
	b.must(b.put("before", "1"))
	b.must(b.put("shared", "b"))
	early := a.chains() // bob is admitted, and nothing of his is here
	a.receive(r, b)
	a.must(a.put("shared", "a"))

	token, _, err := a.Invite(t.Context(), roster.Writer, time.Hour, "/ip4/127.0.0.1/tcp/1")
	a.must(err)
	a.must(a.Redeem(t.Context(), token.Claim(keyOf("bob").Author())))
	clock.Advance(time.Second)
	lost := &member{mem: disk.NewMem()}
	cfg := memberConfig(t, lost.mem, "bob", clock)
	id, err := JoinBy(lost.mem, "/data/stores", a.Genesis(), JoinedRecord{a.Info().Node, token.ID()}, cfg.Logger)
	a.must(err)
	lost.begin(t, cfg, id)
	returning := func(what string) {
		t.Helper()
		if lost.Role() != roster.Writer {
			t.Fatalf("%s: it is %s", what, lost.Role())
		}
		if err := lost.put("in vain", "1"); !errors.Is(err, keyval.ErrReturning) || lattice.KindOf(err) != lattice.Unavailable {
			t.Fatalf("%s: it writes: %v", what, err)
		}
		if said, err := lost.State().Report(t.Context()); said || err != nil && !errors.Is(err, keyval.ErrReturning) {
			t.Fatalf("%s: it reports: %v", what, err)
		}
	}
	lost.take(early, b.Info().Node)
	returning("with its first admission")
	lost.take(a.chains(), b.Info().Node)
	returning("with entries that wait for its own")
	lost.restart()
	returning("after a restart")
	lost.receive(r, a)
	lost.must(lost.put("after", "2"))
	lost.must(lost.put("shared", "c"))
	a.receive(r, lost)
	for _, m := range []*member{a, lost} {
		m.has("before", "1")
		m.has("after", "2")
		m.has("shared", "c")
		m.has("in vain", "")
	}
}

// TestWhoBeganAnew: if a node has written before it could know that it had before, it
// writes nothing more that would count nowhere, says what to do, and can after a restart.
func TestWhoBeganAnew(t *testing.T) {
	r := rng(8)
	clock := tick.NewManual(time.UnixMilli(1_767_225_600_000))
	a := founder(t, "ann", clock)
	b := a.joiner("bob", roster.Writer)
	early := a.chains()
	b.receive(r, a)
	b.must(b.put("before", "1"))
	a.receive(r, b)
	clock.Advance(time.Second)
	lost := &member{mem: disk.NewMem()}
	cfg := memberConfig(t, lost.mem, "bob", clock)
	id, err := Join(lost.mem, "/data/stores", a.Genesis(), a.Info().Node, cfg.Logger)
	a.must(err)
	lost.begin(t, cfg, id)
	lost.take(early, b.Info().Node)
	lost.must(lost.put("in vain", "1")) // nothing tells it from a new member
	lost.receive(r, a)
	if err := lost.put("k", "2"); !errors.Is(err, keyval.ErrBegunAnew) {
		t.Fatalf("it writes what counts nowhere: %v", err)
	}
	lost.restart()
	lost.must(lost.put("k", "3"))
	a.receive(r, lost)
	for _, m := range []*member{a, lost} {
		m.has("before", "1")
		m.has("k", "3")
		m.has("in vain", "")
	}
}

// TestJoinedRecord pins how a store was joined, in both versions.
func TestJoinedRecord(t *testing.T) {
	inviter, invitation := lattice.NodeID{0xa1, 31: 0xaf}, lattice.Hash{0xb1, 31: 0xbf}
	for want, r := range map[string]JoinedRecord{
		"01a1" + strings.Repeat("00", 30) + "af":                                     {Inviter: inviter},
		"02a1" + strings.Repeat("00", 30) + "afb1" + strings.Repeat("00", 30) + "bf": {inviter, invitation},
	} {
		b := encodeJoined(r)
		if got, err := decodeJoined(b); hex.EncodeToString(b) != want || err != nil || got != r {
			t.Errorf("%x is read as %+v, %v; want %s", b, got, err, want)
		}
		for _, bad := range [][]byte{b[:len(b)-1], append(bytes.Clone(b), 0), append([]byte{3}, b[1:]...), nil} {
			if _, err := decodeJoined(bad); lattice.KindOf(err) != lattice.Corrupt {
				t.Errorf("%x: %v", bad, err)
			}
		}
	}
}
