package keyval

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/storage/disk"
)

// TestStaging: a snapshot that comes in pieces, broken off and cut at any byte, goes
// on where it is whole, and is imported as if it had come at once.
func TestStaging(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	a, b, _ := twoNodes(t)
	a.changes(rng, 30)
	k := a.snapshot()
	file := a.file(k)
	for range 20 {
		fs := disk.NewMem()
		in := Staging{FS: fs, Dir: "/in"}
		for at, tries := int64(0), 0; at < int64(len(file)); tries++ {
			n := min(1+rng.Int64N(3000), int64(len(file))-at)
			if err := in.Append(k.ID, at, file[at:at+n], at+n == int64(len(file))); err != nil {
				t.Fatal(err)
			}
			at += n
			if tries < 20 && rng.IntN(3) == 0 { // broken off, and some of it lost or spoiled
				cut := rng.Int64N(at) + 1
				if err := fs.Truncate(in.Path(k.ID), cut); err != nil {
					t.Fatal(err)
				}
				if rng.IntN(3) == 0 {
					if err := in.Append(k.ID, cut-1, []byte{file[cut-1] ^ 1}, false); err != nil {
						t.Fatal(err)
					}
				}
				have, err := in.Received(k.ID)
				if err != nil || have > cut {
					t.Fatalf("%d of %d bytes, %v", have, cut, err)
				}
				at = have
			}
		}
		got, err := disk.ReadFile(fs, in.Path(k.ID))
		if err != nil || !bytes.Equal(got, file) {
			t.Fatalf("%d bytes came, %d were sent: %v", len(got), len(file), err)
		}
		v, err := Verify(context.Background(), fs, in.Path(k.ID), "/scratch")
		if err != nil || v.Seal.Sum != k.ID || v.Member != roster.Owner {
			t.Fatalf("%+v, %v", v.Seal, err)
		}
		if err := in.Drop(k.ID); err != nil {
			t.Fatal(err)
		}
		if have, err := in.Received(k.ID); err != nil || have != 0 {
			t.Fatal(have, err)
		}
	}
	if have, err := (Staging{FS: disk.NewMem(), Dir: "/in"}).Received(lattice.Hash{1}); err != nil || have != 0 {
		t.Fatal(have, err)
	}
	a.close()
	b.close()
}
