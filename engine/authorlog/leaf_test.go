package authorlog

import (
	"crypto/sha256"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/sigchain"
)

// TestLeaf checks that what core/sigchain says a log's tree commits to is what the
// codec gives the tree, for a short entry and a long one.
func TestLeaf(t *testing.T) {
	for _, s := range append(chainOf(t, sigchain.Link{}, 2, 3), chainOf(t, sigchain.Link{}, 2, 5000)...) {
		b := sigchain.AppendFrame(nil, s)
		m, _, err := Codec{}.Header(b)
		if err != nil {
			t.Fatal(err)
		}
		want := merkle.Leaf{Base: m.Base, Last: m.Last, MaxTime: m.MaxTime, Epoch: m.Term, Length: uint32(len(b)), Sum: lattice.Hash(sha256.Sum256(b))}
		if got := sigchain.Leaf(s); got != want {
			t.Errorf("leaf %+v, want %+v", got, want)
		}
	}
}
