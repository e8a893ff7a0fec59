package authorlog

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/storage/disk"
)

// TestGoldenNote: the bytes of the file, field by field.
func TestGoldenNote(t *testing.T) {
	const want = "4c4b" + // LK
		"01" + "00" + // version
		"00000005" + // length
		"6162630a0a" + // the note
		"49615c0f" // CRC-32C
	if got := hex.EncodeToString(EncodeNote([]byte("abc\n\n"))); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// FuzzNote checks, for any input: no panic; what is read encodes back to the exact
// bytes that it came from, and is no longer than may be kept.
func FuzzNote(f *testing.F) {
	f.Add(EncodeNote(nil))
	f.Add(EncodeNote([]byte("note")))
	f.Add(EncodeNote(make([]byte, MaxNote)))
	f.Add([]byte("LK\x01\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		note, err := DecodeNote(b)
		if err != nil {
			if !errors.Is(err, ErrNote) {
				t.Fatalf("another error: %v", err)
			}
			return
		}
		if len(note) > MaxNote || !bytes.Equal(EncodeNote(note), b) {
			t.Fatalf("%x comes back as %x", b, EncodeNote(note))
		}
	})
}

// received is a log of another author, with n entries, that this node holds.
func received(t *testing.T, fs disk.FS, inc uint64) *Log {
	t.Helper()
	o := options(fs, inc)
	o.Key = identity.FromSeed([32]byte{7})
	l, err := Open(o, DefaultSettings())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func noteOf(t *testing.T, all []sigchain.Signed, change func(*merkle.Checkpoint)) []byte {
	t.Helper()
	a := merkle.NewAppender(merkle.Range{})
	for _, s := range all {
		a.Append(nil, sigchain.Leaf(s).Hash())
	}
	c := merkle.Checkpoint{
		Origin: merkle.Origin(testStore, Name(state.Writer{Author: testKey.Author(), Incarnation: 7})),
		Size:   a.Size(), Root: a.Root(), End: int64(a.Size()), Incarnation: 7, Time: 1,
	}
	if change != nil {
		change(&c)
	}
	note, err := merkle.SignCheckpoint(testKey, c)
	if err != nil {
		t.Fatal(err)
	}
	return note
}

func certify(t *testing.T, l *Log, size uint64) {
	t.Helper()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.log.Certify(t.Context()); err != nil || l.log.Hashed() != size {
		t.Fatalf("%d are hashed, %v", l.log.Hashed(), err)
	}
}

// TestKeepNote: the newest checkpoint serves once all that it covers is here; until
// then the one before does. After a restart the newest is there again.
func TestKeepNote(t *testing.T) {
	fs := disk.NewMem()
	l := received(t, fs, 7)
	all := chainOf(t, sigchain.Link{}, 40, 50)
	seal := func(l *Log, after, upto, size, last uint64) {
		t.Helper()
		c, got, ok := l.Seal(after, upto)
		if ok != (size > 0) || ok && (c.Size != size || got != last) {
			t.Errorf("behind %d: %v, checkpoint of %d up to %d; want %d up to %d", after, ok, c.Size, got, size, last)
		}
	}
	if err := l.Append(all[:20]...); err != nil {
		t.Fatal(err)
	}
	certify(t, l, 20)
	seal(l, 0, 9, 0, 0)
	for _, n := range []int{10, 15, 40, 12} { // the last is older
		if err := l.KeepNote(noteOf(t, all[:n], nil)); err != nil {
			t.Fatal(err)
		}
	}
	seal(l, 0, 9, 15, 9)
	seal(l, 12, 20, 15, 15)
	seal(l, 15, 20, 0, 0) // by 40, of which not all is here
	if err := l.Append(all[20:]...); err != nil {
		t.Fatal(err)
	}
	certify(t, l, 40)
	seal(l, 15, 20, 40, 20)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = received(t, fs, 7)
	seal(l, 3, 40, 40, 40)
	c, _, _ := l.Seal(3, 40)
	left, proof, err := l.Extend(3, 8, c)
	if err != nil {
		t.Fatal(err)
	}
	r, err := merkle.NewRange(3, left)
	if err != nil {
		t.Fatal(err)
	}
	a := merkle.NewAppender(r)
	for _, s := range all[3:8] {
		a.Append(nil, sigchain.Leaf(s).Hash())
	}
	if err := merkle.VerifyConsistency(8, 40, proof, a.Root(), c.Root); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestKeepNoteRefuses: what is no checkpoint of the log's author about this log is
// not kept.
func TestKeepNoteRefuses(t *testing.T) {
	l := received(t, disk.NewMem(), 7)
	all := chainOf(t, sigchain.Link{}, 3, 5)
	good := noteOf(t, all, nil)
	other, err := merkle.SignCheckpoint(identity.FromSeed([32]byte{7}), merkle.Checkpoint{
		Origin: merkle.Origin(testStore, Name(l.Writer())), Size: 1, Root: lattice.Hash{1}, End: 1, Incarnation: 7,
	})
	if err != nil {
		t.Fatal(err)
	}
	for what, note := range map[string][]byte{
		"nothing":        nil,
		"bytes":          []byte("a note"),
		"another signer": other,
		"another log":    noteOf(t, all, func(c *merkle.Checkpoint) { c.Origin += "0" }),
		"another store":  noteOf(t, all, func(c *merkle.Checkpoint) { c.Origin = merkle.Origin(lattice.StoreID{1}, Name(l.Writer())) }),
		"too long":       append(bytes.Clone(good), bytes.Repeat([]byte("— a+b AAAAAAAA\n"), 400)...),
		"one byte off":   append(append(bytes.Clone(good[:40]), good[40]^1), good[41:]...),
	} {
		if err := l.KeepNote(note); lattice.KindOf(err) != lattice.Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := l.KeepNote(good); err != nil {
		t.Error(err)
	}
}

// TestNoteFaults fails each step of writing the file, lost, and kept but reported as
// failed, and cuts the power after each, keeping a part: what is read back is one of
// the checkpoints that were kept, or none.
func TestNoteFaults(t *testing.T) {
	all := chainOf(t, sigchain.Link{}, 30, 50)
	rng := rand.New(rand.NewPCG(2, 2))
	for at := 0; at < 16; at++ {
		for _, apply := range []bool{false, true} {
			fs := disk.NewMem()
			l := received(t, fs, 7)
			if err := l.Append(all...); err != nil {
				t.Fatal(err)
			}
			certify(t, l, 30)
			if err := l.KeepNote(noteOf(t, all[:10], nil)); err != nil {
				t.Fatal(err)
			}
			step := 0
			fs.SetFault(func(disk.Op) *disk.Fault {
				if step++; step == at {
					return &disk.Fault{Err: errors.New("broken disk"), Kept: apply}
				}
				return nil
			})
			err := l.KeepNote(noteOf(t, all[:20], nil))
			fs.SetFault(nil)
			if err != nil && lattice.KindOf(err) != lattice.Storage {
				t.Errorf("step %d: %v", at, err)
			}
			if c, _, ok := l.Seal(0, 5); !ok || c.Size != 20 {
				t.Errorf("step %d: in memory %v, %d", at, ok, c.Size)
			}
			for _, percent := range []int{0, 50, 100} {
				m := received(t, fs.CrashClone(percent, rng), 7)
				if c, _, ok := m.Seal(0, 5); ok && c.Size != 10 && c.Size != 20 {
					t.Errorf("step %d: read back a checkpoint of %d", at, c.Size)
				}
			}
		}
	}
}
