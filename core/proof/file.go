// Package proof is the proof files: each one self-contained text that shows, to
// anyone who knows only a store's id, that a record is in a signed log, that a
// checkpoint is the writer's, or what a key holds. Checking one needs no node and
// no network.
//
// # Proof file of a record or a checkpoint, version 1
//
// Lines ended by a newline, each a word, one space and a value. Binary values
// are padded standard base64, numbers decimal without leading zeros. In this
// order:
//
//	lattice-proof-v1
//	kind <record | checkpoint>
//	genesis <the store's genesis entry>                       (core/sigchain)
//	topic <the entry that created the topic>                  (core/sigchain)
//	grant <a grant>               any number, oldest first    (core/grant)
//	checkpoint <the signed note, cosignatures with it>        (core/merkle)
//
// and for a record also
//
//	offset <of the record>
//	index <of the block's leaf>
//	leaf <the leaf record>                                    (core/merkle)
//	hash <inclusion proof>        any number, from the leaf up
//	batch <the record batch as it was stored>                 (core/record)
//
// and last
//
//	sum <SHA-256 of all bytes before this line, 64 hex>
//
// There is exactly one encoding, and the sum covers it: a file with any changed
// byte is refused. The sum guards against accident. Against a forger, who would
// write a new one, stand the signatures and hashes.
//
// # What is checked
//
//  1. The genesis entry is signed by its author. Its id is the store's id, its
//     author the store's creator.
//  2. The topic entry belongs to that store, is signed by the creator and
//     creates the topic. Its id gives the topic's id.
//  3. The first grant is signed by the creator. Each next one follows the one
//     before it, and is signed by the creator, or by the leader before: a seal, or
//     that leader's next term.
//     Without grants the creator is the writer.
//  4. The checkpoint is signed by the last grant's leader, in that grant's term
//     and incarnation, names it and a partition of the topic; all cosignatures
//     under it are genuine.
//  5. The leaf is in the checkpoint's tree at that index.
//  6. The batch is the one whose hash the leaf has, agrees with the leaf, and
//     matches its CRC.
//  7. The record is in the batch.
//
// A proof does not show that the record is still offered, that no other history
// was signed (compare checkpoints), or when it was written.
//
// Rights that rest on other evidence (members other than the creator, promises)
// are outside version 1: such a proof is refused as unsupported.
//
// # Proof file of a key, version 1
//
// Lines of the same form. A value that is empty is nothing after the space.
//
//	lattice-key-proof-v1
//	genesis <the store's genesis entry>                       (core/sigchain)
//	state <the signed statement of the state's root>          (core/trie)
//	map <the map's name>
//	key <the key>
//	row <a row of the key>        all of them, ascending by kind and sub
//	tree <the proof in the tree>                              (core/trie)
//	sum <SHA-256 of all bytes before this line, 64 hex>
//
// A row is its kind u8, the length of its sub uvarint, the sub, and the row in its
// canonical encoding (core/state): every head with its author, time and value, so
// versions in conflict and expiry are proven, too. No row: there is no such key.
//
// What is checked:
//
//  1. The genesis entry, as above.
//  2. The statement is of that store, and signed by its creator.
//  3. The rows are well-formed, and are all rows that the tree of that root has
//     under the key; or the tree has none under it.
//
// The signature says: this node had folded the entries that the frontier covers,
// and the state was this. It does not show that the state is still so, or that the
// node had been told everything that others wrote.
//
// # Rules for changing it
//
//   - A file that was ever written stays valid. If a case in TestGoldenBytes
//     changes, the design is wrong, not the test.
//   - A new line needs a new first line, and a row in docs/format/README.md.
package proof

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"

	lattice "github.com/lattice-log/lattice"
)

// Kind is what a proof file proves.
type Kind string

// The kinds of proofs.
const (
	Record     Kind = "record"
	Checkpoint Kind = "checkpoint"
)

const (
	magic = "lattice-proof-v1\n"
	// MaxSize bounds a proof file in bytes.
	MaxSize = 256 << 20
	// maxPath is the length of an inclusion proof in a tree of 2^64 leaves.
	maxPath = 64
)

// ErrFormat means that the bytes are no proof file of this version, or were
// changed: the sum does not match. Kind Corrupt.
var ErrFormat = lattice.E(lattice.Corrupt, errors.New("not a valid proof file"))

// File is what a proof file holds. See the package comment.
type File struct {
	Kind       Kind
	Genesis    []byte
	Topic      []byte
	Grants     [][]byte // oldest first; the last is the one the checkpoint names
	Checkpoint []byte

	// For a record.
	Offset int64
	Index  uint64
	Leaf   []byte
	Path   []lattice.Hash // from the leaf up
	Batch  []byte
}

// Encode returns the file's bytes. It checks nothing: Verify does.
func (f File) Encode() []byte {
	size := 4096 + len(f.Batch)*4/3
	b := append(make([]byte, 0, size), magic...)
	b = fmt.Appendf(b, "kind %s\n", f.Kind)
	b = appendBinary(b, "genesis", f.Genesis)
	b = appendBinary(b, "topic", f.Topic)
	for _, g := range f.Grants {
		b = appendBinary(b, "grant", g)
	}
	b = appendBinary(b, "checkpoint", f.Checkpoint)
	if f.Kind == Record {
		b = fmt.Appendf(b, "offset %d\nindex %d\n", f.Offset, f.Index)
		b = appendBinary(b, "leaf", f.Leaf)
		for _, h := range f.Path {
			b = appendBinary(b, "hash", h[:])
		}
		b = appendBinary(b, "batch", f.Batch)
	}
	return fmt.Appendf(b, "sum %x\n", sha256.Sum256(b))
}

func appendBinary(b []byte, word string, value []byte) []byte {
	b = append(append(b, word...), ' ')
	return append(base64.StdEncoding.AppendEncode(b, value), '\n')
}

// Parse reads a proof file: its form and sum, not what it claims. What it
// accepts is exactly what Encode returns. Wraps ErrFormat.
func Parse(b []byte) (File, error) {
	if len(b) > MaxSize {
		return File{}, fmt.Errorf("%w: %d bytes, at most %d", ErrFormat, len(b), MaxSize)
	}
	rest, ok := bytes.CutPrefix(b, []byte(magic))
	if !ok {
		return File{}, fmt.Errorf("%w: the first line is not %q", ErrFormat, magic[:len(magic)-1])
	}
	r := reader{rest: rest}
	var f File
	f.Kind = Kind(r.value("kind"))
	if f.Kind != Record && f.Kind != Checkpoint {
		r.fail("kind %.20q", f.Kind)
	}
	f.Genesis, f.Topic = r.binary("genesis"), r.binary("topic")
	for r.has("grant") {
		f.Grants = append(f.Grants, r.binary("grant"))
	}
	f.Checkpoint = r.binary("checkpoint")
	if f.Kind == Record {
		f.Offset, f.Index = int64(r.number("offset", 63)), r.number("index", 64)
		f.Leaf = r.binary("leaf")
		for r.has("hash") && len(f.Path) < maxPath {
			f.Path = append(f.Path, r.hash())
		}
		f.Batch = r.binary("batch")
	}
	if err := r.end(b); err != nil {
		return File{}, err
	}
	return f, nil
}

// reader takes lines from rest. After the first thing wrong, err is set and
// everything reads as empty.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %w", ErrFormat, fmt.Errorf(format, args...))
	}
}

func (r *reader) has(word string) bool {
	return r.err == nil && bytes.HasPrefix(r.rest, []byte(word+" "))
}

// value takes the next line, which must begin with word.
func (r *reader) value(word string) []byte {
	if r.err != nil {
		return nil
	}
	line, rest, ok := bytes.Cut(r.rest, []byte("\n"))
	value, ok2 := bytes.CutPrefix(line, []byte(word+" "))
	if !ok || !ok2 {
		r.fail("there is no line %q where it belongs", word)
		return nil
	}
	r.rest = rest
	return value
}

func (r *reader) binary(word string) []byte {
	text := r.value(word)
	if r.err != nil {
		return nil
	}
	b := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Strict().Decode(b, text)
	// Decode skips carriage returns, which shows in the length.
	if err != nil || base64.StdEncoding.EncodedLen(n) != len(text) || n == 0 {
		r.fail("line %q is not base64", word)
		return nil
	}
	return b[:n:n]
}

func (r *reader) hash() lattice.Hash {
	b := r.binary("hash")
	if len(b) != len(lattice.Hash{}) {
		r.fail("a hash of %d bytes", len(b))
		return lattice.Hash{}
	}
	return lattice.Hash(b)
}

func (r *reader) number(word string, bits int) uint64 {
	text := string(r.value(word))
	n, err := strconv.ParseUint(text, 10, bits)
	if err != nil || strconv.FormatUint(n, 10) != text {
		r.fail("line %q: %.30q is no number", word, text)
	}
	return n
}
