package authorlog

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/lattice-log/lattice/core/sigchain"
)

// TestGoldenFrame pins what stands before an entry. If it changes, the change is
// wrong, not the test.
func TestGoldenFrame(t *testing.T) {
	s := chainOf(t, sigchain.Link{}, 1, 3)[0]
	b := sigchain.AppendFrame(nil, s)
	want := "4c410100" + // LA, version, zero
		"000000dd" + // length of the entry
		"0000000000000001" + // sequence number
		"0000000000010000" + // hybrid time
		"119ca903" // crc
	if got := hex.EncodeToString(b[:headerSize]); got != want {
		t.Errorf("header %s, want %s", got, want)
	}
	if !bytes.Equal(b[headerSize:], s.Bytes()) {
		t.Error("what follows is not the entry")
	}
}

// FuzzFrame checks, for any input: no panic; what is taken for a frame is the
// frame of the entry in it, bit for bit.
func FuzzFrame(f *testing.F) {
	for _, n := range []int{0, 1, 300} {
		f.Add(sigchain.AppendFrame(nil, chainOf(f, sigchain.Link{}, 1, n)[0]))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, size, err := Codec{}.Header(b)
		if err == nil && (m.Base < 0 || m.Last != m.Base || size < headerSize) {
			t.Fatalf("header says %+v, %d bytes", m, size)
		}
		s, err := Unframe(b)
		if err != nil {
			return
		}
		if !bytes.Equal(sigchain.AppendFrame(nil, s), b) {
			t.Fatal("another frame of the same entry")
		}
	})
}
