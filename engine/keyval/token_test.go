package keyval

import (
	"encoding/hex"
	"errors"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// TestTokens: a token says what the frontier says, however often the node started,
// and stays short.
func TestTokens(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	clock := tick.NewManual(testEpoch)
	fs := disk.NewMem()
	n := start(t, options(fs, 0, 2, clock))
	n.admit(1)
	other := start(t, options(disk.NewMem(), 1, 3, clock))
	other.receive(rng, n.entries())
	for inc := range uint64(40) {
		n.set("a", "1")
		other.set("b", "2")
		if inc%5 == 0 {
			n.receive(rng, other.entries())
		}
		f := n.Frontier()
		token := n.Token(f)
		got, err := n.ParseToken(token)
		if err != nil || !maps.Equal(got, f) {
			t.Fatalf("start %d: %v comes back as %v, %v", inc, f, got, err)
		}
		if len(token) > 160 {
			t.Fatalf("start %d: a token of %d bytes for %d writers", inc, len(token), len(f))
		}
		// In the middle of an incarnation before.
		ws := f.Writers()
		for i, w := range ws {
			if i+1 < len(ws) && ws[i+1].Author == w.Author {
				continue // nothing of the next one without all of it
			}
			part := maps.Clone(f)
			part[w]--
			if part[w] == 0 {
				delete(part, w)
			}
			if got, err := n.ParseToken(n.Token(part)); err != nil || !covers(got, part) || !covers(part, got) {
				t.Fatalf("start %d: %v comes back as %v, %v", inc, part, got, err)
			}
		}
		n.close()
		n = start(t, options(fs, 0, inc+10, clock))
	}
	n.close()
	other.close()
}

// TestTokenCost: what a watcher's token costs depends on what has moved, and not on how
// many writers there have been.
func TestTokenCost(t *testing.T) {
	cost := func(starts uint64) float64 {
		clock := tick.NewManual(testEpoch)
		fs := disk.NewMem()
		for inc := range starts {
			n := start(t, options(fs, 0, 2+inc, clock))
			n.set("a", "1")
			n.close()
		}
		n := start(t, options(fs, 0, 2+starts, clock))
		defer n.close()
		w, err := n.Watch("0", nil, nil)
		n.must(err)
		w.Token()
		return testing.AllocsPerRun(20, func() {
			n.set("a", "2")
			next(t, w, true)
			w.Token()
		})
	}
	if few, many := cost(2), cost(60); many > few+15 { // what the commit takes varies a little
		t.Errorf("%v allocations with 2 starts before, %v with 60", few, many)
	}
}

// TestTokenOfWhatCountedThen: who goes on from a token of before a fork was known, and
// was told what does not count any more, is told to begin anew: also after a restart,
// and by a node that knew of the fork when it heard the rest. A token of what still
// counts goes on.
func TestTokenOfWhatCountedThen(t *testing.T) {
	clock := tick.NewManual(testEpoch)
	fs := disk.NewMem()
	n := start(t, options(fs, 0, 2, clock))
	n.admit(1)
	now := uint64(testEpoch.UnixMilli())<<16 + 1000
	grant := n.tipsOf(0)
	one := foreign(t, 1, sigchain.Signed{}, now, grant, putOp(t, 1, "k", "before"))
	left := foreign(t, 1, one, now+1, nil, putOp(t, 1, "k", "left"))
	right := foreign(t, 1, one, now+2, nil, putOp(t, 1, "k", "right"))
	n.one(one)
	good := n.Token(n.Frontier())
	n.one(left)
	n.set("mine", "1")
	bad := n.Token(n.Frontier())
	n.one(right)
	if n.get("k") != "before" {
		t.Fatalf("k is %q", n.get("k"))
	}
	again := func(n *node, token []byte) (*Watcher, error) {
		f, err := n.ParseToken(token)
		n.must(err)
		return n.Watch("0", nil, f)
	}
	check := func(n *node) {
		t.Helper()
		if _, err := again(n, bad); !errors.Is(err, ErrUpset) {
			t.Errorf("from where the fork had counted: %v", err)
		}
		for what, token := range map[string][]byte{"before the fork": good, "now": n.Token(n.Frontier())} {
			if w, err := again(n, token); err != nil {
				t.Errorf("from %s: %v", what, err)
			} else {
				w.Close()
			}
		}
	}
	check(n)
	n.close()
	n.must(fs.RemoveAll("/store/state"))
	n = start(t, options(fs, 0, 3, clock))
	check(n)
	other := start(t, options(disk.NewMem(), 9, 4, clock))
	other.receive(rand.New(rand.NewPCG(1, 1)), n.entries())
	other.one(right)
	other.one(left)
	check(other)
	n.close()
	other.close()
}

func covers(a, b state.Frontier) bool {
	for w, seq := range b {
		if a[w] < seq {
			return false
		}
	}
	return true
}

// TestGoldenToken pins a token: clients keep them.
func TestGoldenToken(t *testing.T) {
	n := start(t, options(disk.NewMem(), 0, 2, tick.NewManual(testEpoch)))
	defer n.close()
	const want = "0131b5694b07240c33022bcd9a28369459cfd14a1dfe51886b9713d21bf6b8d10b1b2ea35a015714cec1010000000000000007ac02cee5a52cfc2fe268c666281c98a7d9c14950d43d930dc76847b73f5b9ac1b8e001000000000000000101"
	f := state.Frontier{{Author: keyOf(0).Author(), Incarnation: 1}: 1, {Author: keyOf(1).Author(), Incarnation: 7}: 300}
	if got := hex.EncodeToString(n.Token(f)); got != want {
		t.Errorf("now %s, frozen %s", got, want)
	}
	b, err := hex.DecodeString(want)
	n.must(err)
	if got, err := n.ParseToken(b); err != nil || !maps.Equal(got, f) {
		t.Errorf("the frozen one is %v, %v", got, err)
	}
}

// TestOtherTokens: what is no token of this store is refused.
func TestOtherTokens(t *testing.T) {
	n := start(t, options(disk.NewMem(), 0, 2, tick.NewManual(testEpoch)))
	defer n.close()
	good := n.Token(n.Frontier())
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 0xff
		f, err := n.ParseToken(bad)
		if err == nil && i < tokenHead {
			t.Errorf("byte %d changed: %v", i, f)
		}
		if err != nil && !errors.Is(err, ErrToken) {
			t.Errorf("byte %d changed: %v", i, err)
		}
		if _, err := n.ParseToken(good[:i]); !errors.Is(err, ErrToken) {
			t.Errorf("the first %d bytes: %v", i, err)
		}
	}
	if _, err := n.ParseToken(make([]byte, maxToken+1)); !errors.Is(err, ErrToken) {
		t.Errorf("too long: %v", err)
	}
}

// FuzzParseToken checks, for any bytes: no panic, no token that is not one.
func FuzzParseToken(f *testing.F) {
	n := start(f, options(disk.NewMem(), 0, 2, tick.NewManual(testEpoch)))
	f.Cleanup(n.close)
	f.Add(n.Token(n.Frontier()))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := n.ParseToken(b)
		if err != nil && !errors.Is(err, ErrToken) {
			t.Fatal(err)
		}
		if err == nil {
			if again, err := n.ParseToken(n.Token(got)); err != nil || !maps.Equal(got, again) {
				t.Fatalf("%v comes back as %v, %v", got, again, err)
			}
		}
	})
}
