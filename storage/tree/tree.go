// Package tree keeps what a log's Merkle tree needs on disk: the leaf records of
// the blocks that are here, the hashes of the tree's upper levels for ever, and
// the compact range of what was dropped.
//
// Three kinds of file, all numbers big-endian. Beside each segment file, one with
// a 64-byte record for each of its blocks, whose content is the caller's:
//
//	00000000000000000000.leaves
//	0      2     3      4        12       20           60    64        128
//	+------+-----+------+--------+--------+------------+-----+---------+----
//	| "LL" | ver | zero | first  | base   | zeros      | crc | record  | ...
//	+------+-----+------+--------+--------+------------+-----+---------+----
//	  magic  1            u64 index i64 offset           crc32c of the 60 bytes before
//
// For each of the tree levels 8, 16, 24 and 32, the hashes of all its complete
// subtrees in order, 32 bytes each:
//
//	tree.08, tree.16, tree.24, tree.32
//	0      2     3       4            28    32       64
//	+------+-----+-------+------------+-----+--------+----
//	| "LT" | ver | level | zeros      | crc | hash   | ...
//	+------+-----+-------+------------+-----+--------+----
//
// And for the dropped prefix, replaced as a whole:
//
//	prefix
//	0      2     3      4        12        16        16+32n
//	+------+-----+------+--------+---------+---------+-----+
//	| "LP" | ver | zero | leaves | n       | hashes  | crc |
//	+------+-----+------+--------+---------+---------+-----+
//	  magic  1            u64      u32       n x 32    crc32c of all before
//
// Leaves and levels are written without a sync, since they can be made again from
// the blocks; Sync makes them durable. So after a crash the records that no Sync
// covered may be missing, or zeros: the caller compares them with the blocks, or
// with a root, before it believes them. The prefix cannot be made again, and is
// durable when WritePrefix returns.
//
// No file stays open between calls. Methods may be called concurrently.
//
// # Rules for changing it
//
// A new field needs a new version, which this version refuses as damage, and a row
// in docs/format/README.md.
package tree

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
)

const (
	// RecordSize is the size of a leaf record.
	RecordSize = 64
	// MaxHashes is how many hashes a prefix can have.
	MaxHashes = 64

	hashSize   = len(lattice.Hash{})
	crcSize    = 4
	version    = 1
	prefixName = "prefix"
	prefixHead = 16
)

// Prefix is the compact range of the first leaves of a tree.
type Prefix struct {
	Leaves uint64
	Hashes []lattice.Hash // the subtrees of Leaves, largest first
}

// WritePrefix replaces the prefix in dir, durably.
func WritePrefix(fs vfs.FS, dir string, p Prefix) error {
	b, err := EncodePrefix(p)
	if err != nil {
		return err
	}
	if err := disk.WriteFile(fs, fs.PathJoin(dir, prefixName), b); err != nil {
		return storage("write the prefix of %d leaves: %w", p.Leaves, err)
	}
	return nil
}

// ReadPrefix returns the prefix in dir; without the file, that of no leaves. A
// damaged file is an error of Kind Corrupt.
func ReadPrefix(fs vfs.FS, dir string) (Prefix, error) {
	b, err := disk.ReadFile(fs, fs.PathJoin(dir, prefixName))
	if disk.IsNotExist(err) {
		return Prefix{}, nil
	}
	if err != nil {
		return Prefix{}, storage("read the prefix: %w", err)
	}
	return DecodePrefix(b)
}

// EncodePrefix returns the bytes of a prefix file.
func EncodePrefix(p Prefix) ([]byte, error) {
	if len(p.Hashes) > MaxHashes {
		return nil, lattice.E(lattice.TooLarge, fmt.Errorf("prefix of %d hashes, at most %d fit", len(p.Hashes), MaxHashes))
	}
	u := binary.BigEndian
	b := append(make([]byte, 0, prefixHead+len(p.Hashes)*hashSize+crcSize), 'L', 'P', version, 0)
	b = u.AppendUint64(b, p.Leaves)
	b = u.AppendUint32(b, uint32(len(p.Hashes)))
	for _, h := range p.Hashes {
		b = append(b, h[:]...)
	}
	return u.AppendUint32(b, checksum(b)), nil
}

// DecodePrefix reads the bytes of a prefix file. Kind Corrupt.
func DecodePrefix(b []byte) (Prefix, error) {
	u := binary.BigEndian
	if len(b) < prefixHead+crcSize || b[0] != 'L' || b[1] != 'P' || b[2] != version || b[3] != 0 {
		return Prefix{}, corrupt("prefix: no header in %d bytes", len(b))
	}
	n := u.Uint32(b[12:])
	if n > MaxHashes || len(b) != prefixHead+int(n)*hashSize+crcSize {
		return Prefix{}, corrupt("prefix: %d hashes in %d bytes", n, len(b))
	}
	end := len(b) - crcSize
	if u.Uint32(b[end:]) != checksum(b[:end]) {
		return Prefix{}, corrupt("prefix: wrong checksum")
	}
	p := Prefix{Leaves: u.Uint64(b[4:])}
	for at := prefixHead; at < end; at += hashSize {
		p.Hashes = append(p.Hashes, lattice.Hash(b[at:at+hashSize]))
	}
	return p, nil
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

func corrupt(format string, args ...any) error {
	return lattice.E(lattice.Corrupt, fmt.Errorf(format, args...))
}

func storage(format string, args ...any) error {
	return lattice.E(lattice.Storage, fmt.Errorf(format, args...))
}

// update opens a file for writing, calls f with it, and closes it.
func update(fs vfs.FS, name string, f func(vfs.File) error) error {
	file, err := fs.OpenReadWrite(name, disk.Category)
	if err != nil {
		return err
	}
	return errors.Join(f(file), file.Close())
}

// create writes a new file in the place of what was there, without a sync.
func create(fs vfs.FS, name string, b []byte) error {
	f, err := fs.Create(name, disk.Category)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// readAt reads len(b) bytes at a position. A shorter file is Corrupt.
func readAt(fs vfs.FS, name string, b []byte, at int64) error {
	f, err := fs.Open(name)
	if err != nil {
		return storage("open %s: %w", name, err)
	}
	n, err := f.ReadAt(b, at)
	_ = f.Close()
	switch {
	case n == len(b):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return corrupt("%s ends at %d, want %d", name, at+int64(n), at+int64(len(b)))
	}
	return storage("read %s at %d: %w", name, at, err)
}
