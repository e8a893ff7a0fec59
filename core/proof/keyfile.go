package proof

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/lattice-log/lattice/core/state"
)

const keyMagic = "lattice-key-proof-v1\n"

// KeyFile is what the proof file of a key holds. See the package comment.
type KeyFile struct {
	Genesis []byte
	State   []byte // the signed statement
	Map     string
	Key     []byte
	Rows    [][]byte // encoded by AppendRow, ascending by kind and sub
	Tree    []byte   // a trie.Proof
}

// IsKey reports whether a proof file is of a key, by its first line.
func IsKey(b []byte) bool { return bytes.HasPrefix(b, []byte(keyMagic)) }

// AppendRow encodes a row as a line of the file holds it.
func AppendRow(b []byte, k state.Kind, sub []byte, r state.Row) []byte {
	b = binary.AppendUvarint(append(b, byte(k)), uint64(len(sub)))
	return r.AppendTo(append(b, sub...))
}

// Encode returns the file's bytes. It checks nothing: Verify does.
func (f KeyFile) Encode() []byte {
	size := 4096 + len(f.Key)*4/3
	for _, r := range f.Rows {
		size += 8 + len(r)*4/3
	}
	b := append(make([]byte, 0, size), keyMagic...)
	b = appendBinary(b, "genesis", f.Genesis)
	b = appendBinary(b, "state", f.State)
	b = appendBinary(b, "map", []byte(f.Map))
	b = appendBinary(b, "key", f.Key)
	for _, r := range f.Rows {
		b = appendBinary(b, "row", r)
	}
	b = appendBinary(b, "tree", f.Tree)
	return fmt.Appendf(b, "sum %x\n", sha256.Sum256(b))
}

// ParseKey reads the proof file of a key: its form and sum, not what it claims.
// What it accepts is exactly what Encode returns. Wraps ErrFormat.
func ParseKey(b []byte) (KeyFile, error) {
	if len(b) > MaxSize {
		return KeyFile{}, fmt.Errorf("%w: %d bytes, at most %d", ErrFormat, len(b), MaxSize)
	}
	rest, ok := bytes.CutPrefix(b, []byte(keyMagic))
	if !ok {
		return KeyFile{}, fmt.Errorf("%w: the first line is not %q", ErrFormat, keyMagic[:len(keyMagic)-1])
	}
	r := reader{rest: rest}
	var f KeyFile
	f.Genesis, f.State = r.binary("genesis"), r.binary("state")
	f.Map, f.Key = string(r.bytes("map")), r.bytes("key")
	for r.has("row") {
		f.Rows = append(f.Rows, r.binary("row"))
	}
	f.Tree = r.binary("tree")
	return f, r.end(b)
}

// bytes is binary for a value that may be empty.
func (r *reader) bytes(word string) []byte {
	if line := []byte(word + " \n"); bytes.HasPrefix(r.rest, line) && r.err == nil {
		r.rest = r.rest[len(line):]
		return []byte{}
	}
	return r.binary(word)
}

// errChanged is the reason whatever else is wrong, too: what does not parse because a
// byte was changed was changed first of all.
var errChanged = fmt.Errorf("%w: its bytes were changed: they do not match the sum in the last line", ErrFormat)

// end reads the sum of the whole file, behind which nothing comes.
func (r *reader) end(file []byte) error {
	if r.err != nil {
		last := bytes.LastIndex(bytes.TrimSuffix(file, []byte("\n")), []byte("\n")) + 1
		if err := (&reader{rest: file[last:]}).sums(file[:last]); errors.Is(err, errChanged) {
			return err
		}
		return r.err
	}
	if err := r.sums(file[:len(file)-len(r.rest)]); err != nil {
		return err
	}
	if len(r.rest) != 0 {
		r.fail("%d bytes after the sum", len(r.rest))
	}
	return r.err
}

// sums takes the line with the sum of what stands before it.
func (r *reader) sums(covered []byte) error {
	if sum := fmt.Sprintf("%x", sha256.Sum256(covered)); string(r.value("sum")) != sum && r.err == nil {
		r.err = errChanged
	}
	return r.err
}

// parseRow reads what AppendRow wrote.
func parseRow(b []byte) (k state.Kind, sub []byte, row state.Row, canonical []byte, err error) {
	bad := func(err error) (state.Kind, []byte, state.Row, []byte, error) { return 0, nil, nil, nil, err }
	if len(b) < 2 {
		return bad(fmt.Errorf("a row of %d bytes", len(b)))
	}
	k = state.Kind(b[0])
	n, size := binary.Uvarint(b[1:])
	if size <= 0 || size > 1 && b[size] == 0 || n > uint64(len(b)-1-size) {
		return bad(errors.New("a row whose sub has no length"))
	}
	sub, canonical = b[1+size:1+size+int(n)], b[1+size+int(n):]
	if err := (state.Address{Kind: k, Sub: sub}).Check(); err != nil {
		return bad(err)
	}
	if row, err = state.ParseRow(canonical); err != nil {
		return bad(err)
	}
	if len(row) == 0 {
		return bad(fmt.Errorf("a row of %s without a head", k))
	}
	// Two encodings of one row would have two hashes, and one of them is in the tree.
	if !slices.Equal(row.AppendTo(nil), canonical) {
		return bad(fmt.Errorf("a row of %s is not in the one form it has", k))
	}
	return k, sub, row, canonical, nil
}
