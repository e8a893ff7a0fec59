package head

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/segment"
)

func slot(seq uint64) Slot {
	s := Slot{
		Seq: seq, Pos: segment.Pos{Segment: int64(seq) * 10, At: int64(seq) * 1000}, Next: int64(seq)*10 + 7, Start: int64(seq), Term: int32(seq),
		Body: []byte(fmt.Sprintf("checkpoint %d\n", seq)), Edge: []lattice.Hash{},
	}
	for i := range seq % 5 {
		s.Edge = append(s.Edge, lattice.Hash{byte(seq), byte(i)})
	}
	return s
}

func mustOpen(t *testing.T, fs disk.FS) (*File, State) {
	t.Helper()
	f, st, err := Open(fs, "/head")
	if err != nil {
		t.Fatal(err)
	}
	return f, st
}

func TestWriteAndOpen(t *testing.T) {
	fs := disk.NewMem()
	f, st := mustOpen(t, fs)
	if st.OK || st.Damaged != nil {
		t.Fatalf("a new file: %+v", st)
	}
	for seq := uint64(1); seq < 12; seq++ {
		want := slot(seq)
		got, err := f.Write(want)
		if err != nil || got != seq {
			t.Fatalf("write: %d, %v", got, err)
		}
		if st, err := f.Load(); err != nil || !reflect.DeepEqual(st, State{Slot: want, OK: true}) {
			t.Fatalf("load: %+v, %v, want %+v", st, err, want)
		}
		if seq%3 == 0 { // some states never get their signature
			want.Note = fmt.Appendf(nil, "note %d", seq)
			if err := f.WriteNote(seq, want.Note); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.WriteNote(seq-1, []byte("late")); lattice.KindOf(err) != lattice.Conflict {
			t.Fatalf("a note for an old state: %v", err)
		}
		if f, st = mustOpen(t, fs); !reflect.DeepEqual(st, State{Slot: want, OK: true}) {
			t.Fatalf("open: %+v, want %+v", st, want)
		}
	}
	if _, err := f.Write(Slot{Body: make([]byte, MaxBody+1)}); lattice.KindOf(err) != lattice.TooLarge {
		t.Errorf("body too long: %v", err)
	}
	if _, err := f.Write(Slot{Edge: make([]lattice.Hash, MaxEdge+1)}); lattice.KindOf(err) != lattice.TooLarge {
		t.Errorf("edge too long: %v", err)
	}
	if err := f.WriteNote(11, make([]byte, MaxNote+1)); lattice.KindOf(err) != lattice.TooLarge {
		t.Errorf("note too long: %v", err)
	}
	full := Slot{Body: bytes.Repeat([]byte("b"), MaxBody), Edge: make([]lattice.Hash, MaxEdge)}
	if seq, err := f.Write(full); err != nil {
		t.Error(err)
	} else if err := f.WriteNote(seq, bytes.Repeat([]byte("n"), MaxNote)); err != nil {
		t.Error(err)
	}
	if _, st = mustOpen(t, fs); len(st.Slot.Body) != MaxBody || len(st.Slot.Edge) != MaxEdge || len(st.Slot.Note) != MaxNote {
		t.Errorf("a full slot: %+v", st)
	}
}

// TestGoldenBytes holds the format. If it fails, the format changed, which needs a
// new version.
func TestGoldenBytes(t *testing.T) {
	s := Slot{
		Seq: 0x0102, Pos: segment.Pos{Segment: 3, At: 4}, Next: 5, Start: 2, Term: 6, Body: []byte("body"),
		Edge: []lattice.Hash{{0xaa}}, Note: []byte("note"),
	}
	b, err := Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	durable := "4c480100" + // "LH", version
		"0000000000000102" + "0000000000000003" + "0000000000000004" + // seq, segment, at
		"0000000000000005" + "0000000000000002" + "00000006" + // next, start, term
		"00000004" + "00000001" + "626f6479" + // lengths, body
		"aa" + fmt.Sprintf("%062d", 0) + "b7fb60c9" // edge, checksum
	note := "4c530100" + "0000000000000102" + "00000004" + "6e6f7465" + "c7e2a5b0"
	if got := hex.EncodeToString(b[:len(durable)/2]); got != durable {
		t.Errorf("durable part\n%s\nwant\n%s", got, durable)
	}
	if got := hex.EncodeToString(b[noteAt : noteAt+len(note)/2]); got != note {
		t.Errorf("note\n%s\nwant\n%s", got, note)
	}
	if !isZero(b[len(durable)/2:noteAt]) || !isZero(b[noteAt+len(note)/2:]) || len(b) != SlotSize {
		t.Error("the rest is not zeros")
	}
}

// TestEveryByte damages each byte of the newest slot: the one before is returned,
// and the damage reported. Damage to the note only loses the note.
func TestEveryByte(t *testing.T) {
	fs := disk.NewMem()
	f, _ := mustOpen(t, fs)
	for seq := uint64(1); seq <= 2; seq++ {
		if _, err := f.Write(slot(seq)); err != nil {
			t.Fatal(err)
		}
		if err := f.WriteNote(seq, []byte("signed")); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := disk.ReadFile(fs, "/head")
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(whole, []byte("checkpoint 2")) / SlotSize * SlotSize
	for i := range SlotSize {
		b := bytes.Clone(whole)
		b[at+i] ^= 0xff
		st := (&File{live: -1}).load(b)
		switch {
		case !st.OK:
			t.Fatalf("byte %d: no slot", i)
		case i < noteAt && (st.Slot.Seq != 1 || lattice.KindOf(st.Damaged) != lattice.Corrupt):
			t.Fatalf("byte %d: slot %d, damage %v", i, st.Slot.Seq, st.Damaged)
		case i >= noteAt && (st.Slot.Seq != 2 || st.Damaged != nil):
			t.Fatalf("byte %d: slot %d, damage %v", i, st.Slot.Seq, st.Damaged)
		case i >= noteAt && i < noteAt+noteFixed+6+crcSize && st.Slot.Note != nil:
			t.Fatalf("byte %d: note %q", i, st.Slot.Note)
		}
	}
	for n := range FileSize {
		st := (&File{live: -1}).load(append(bytes.Clone(whole[:n]), make([]byte, FileSize-n)...))
		if !st.OK && n >= SlotSize {
			t.Fatalf("cut at %d: %+v", n, st)
		}
	}
}

// TestWriteAfterDamage: the next write goes over the damaged slot, never over the
// good one, and is newer than what was damaged.
func TestWriteAfterDamage(t *testing.T) {
	for damaged := range 2 {
		fs := disk.NewMem()
		f, _ := mustOpen(t, fs)
		for seq := uint64(1); seq <= 4; seq++ {
			if _, err := f.Write(slot(seq)); err != nil {
				t.Fatal(err)
			}
		}
		h, err := fs.OpenReadWrite("/head", disk.Category)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteAt([]byte{0xff}, int64(damaged*SlotSize+20)); err != nil {
			t.Fatal(err)
		}
		_ = h.Close()
		f, st := mustOpen(t, fs)
		if !st.OK || st.Damaged == nil {
			t.Fatalf("%+v", st)
		}
		good := st.Slot
		fs.SetFault(func(op disk.Op) *disk.Fault {
			if op.Kind == disk.OpWrite {
				return &disk.Fault{Short: 100}
			}
			return nil
		})
		if _, err := f.Write(slot(9)); lattice.KindOf(err) != lattice.Storage {
			t.Fatal(err)
		}
		fs.SetFault(nil)
		if _, st := mustOpen(t, fs); !reflect.DeepEqual(st.Slot, good) {
			t.Fatalf("a torn write took %+v, now %+v", good, st.Slot)
		}
		seq, err := f.Write(slot(9))
		if err != nil || seq <= 4 {
			t.Fatal(seq, err)
		}
		if _, st := mustOpen(t, fs); st.Slot.Seq != seq || st.Damaged != nil {
			t.Fatalf("after writing: %+v", st)
		}
	}
}

// TestFaults: through writes that fail at any step, applied or not, and crashes
// that keep any pages, the head read back is the last one reported as written, or
// one that was being written after it.
func TestFaults(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 2))
		fs := disk.NewMem()
		f, _ := mustOpen(t, fs)
		var good, tried uint64
		for range 30 {
			fs.SetFault(func(op disk.Op) *disk.Fault {
				if op.Kind.Changes() && rng.IntN(4) == 0 {
					return &disk.Fault{Kept: rng.IntN(2) == 0, Short: rng.Int64N(SlotSize)}
				}
				return nil
			})
			want := slot(tried + 1)
			seq, err := f.Write(want)
			tried = f.seq
			if err == nil {
				good = seq
				_ = f.WriteNote(seq, fmt.Appendf(nil, "note %d", seq))
			}
			fs.SetFault(nil)
			if rng.IntN(3) > 0 {
				continue
			}
			if rng.IntN(2) == 0 {
				fs = fs.CrashClone(rng.IntN(3)*50, rng)
			}
			var st State
			f, st = mustOpen(t, fs)
			if good > 0 && !st.OK || st.OK && (st.Slot.Seq < good || st.Slot.Seq > tried) {
				t.Fatalf("seed %d: state %+v, written %d, tried %d", seed, st, good, tried)
			}
			if n := st.Slot.Note; n != nil && string(n) != fmt.Sprintf("note %d", st.Slot.Seq) {
				t.Fatalf("seed %d: head %d has the note %q", seed, st.Slot.Seq, n)
			}
			good, tried = st.Slot.Seq, max(f.seq, st.Slot.Seq)
		}
	}
}

// FuzzDecode checks, for any input: no panic; what decodes and has all of its note
// encodes to the same durable part; errors are of Kind Corrupt.
func FuzzDecode(f *testing.F) {
	for seq := uint64(1); seq < 5; seq++ {
		s := slot(seq)
		s.Note = []byte("note")
		b, err := Encode(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(make([]byte, SlotSize))
	f.Add([]byte("LH"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < SlotSize {
			b = append(b, make([]byte, SlotSize-len(b))...)
		}
		s, err := Decode(b)
		if err != nil {
			if !errors.Is(err, errEmpty) && lattice.KindOf(err) != lattice.Corrupt {
				t.Fatalf("kind of %v", err)
			}
			return
		}
		again, err := Encode(s)
		if err != nil || !bytes.Equal(again[:noteAt], b[:noteAt]) {
			t.Fatalf("%+v encodes differently: %v", s, err)
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	f, _, err := Open(disk.OS(), b.TempDir()+"/head")
	if err != nil {
		b.Fatal(err)
	}
	s := slot(4)
	for b.Loop() {
		if _, err := f.Write(s); err != nil {
			b.Fatal(err)
		}
	}
}
