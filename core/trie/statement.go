package trie

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"golang.org/x/mod/sumdb/note"
)

// ErrStatement means that bytes are no signed statement of a state's root, of a
// version known here. Kind Corrupt.
var ErrStatement = lattice.E(lattice.Corrupt, errors.New("not a statement of a state's root"))

// MaxStatement bounds a signed statement in bytes.
const MaxStatement = 4 << 10

// Statement is what a node says of a store's state: that it has folded these
// entries, and came to this root. It is a C2SP signed note of exactly these lines:
//
//	lattice/<store id>/state
//	<entries: how many are folded>
//	<root, base64>
//	frontier <hash of the frontier, 64 hex>                      (core/state)
//	incarnation <of the signing node>
//	time <hybrid timestamp>
//
//	— lattice/<the node's key, 64 hex> <base64: key hash 4, Ed25519 signature 64>
//
// The first three lines are where a checkpoint of a log (core/merkle) has its own, so
// what reads those shows this one, and what checks notes checks it. But a state
// changes in place: a later root does not extend an earlier one, so there is nothing
// for a witness to check and cosign. Two statements of one frontier with
// different roots show that a signer lies, or that its program errs.
type Statement struct {
	Store       lattice.StoreID
	Entries     uint64       // how many the frontier covers
	Root        lattice.Hash // of the state tree
	Frontier    lattice.Hash // state.Frontier.Hash
	Incarnation uint64       // of the signing node
	Time        uint64       // hybrid timestamp (core/clock); expiry is judged by it
}

// statementLog is the name in the origin line, where a log's is.
const statementLog = "state"

// Body returns the text that is signed.
func (s Statement) Body() []byte {
	return fmt.Appendf(make([]byte, 0, 384), "lattice/%s/%s\n%d\n%s\nfrontier %s\nincarnation %d\ntime %d\n",
		s.Store, statementLog, s.Entries, base64.StdEncoding.EncodeToString(s.Root[:]), s.Frontier, s.Incarnation, s.Time)
}

// ParseStatement reads the text of a statement. What it accepts is exactly what
// Body returns. Wraps ErrStatement.
func ParseStatement(text []byte) (Statement, error) {
	var s Statement
	bad := func(line int, err error) (Statement, error) {
		return Statement{}, fmt.Errorf("%w: line %d: %w", ErrStatement, line, err)
	}
	if len(text) > MaxStatement {
		return s, fmt.Errorf("%w: %d bytes", ErrStatement, len(text))
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) != 7 || lines[6] != "" {
		return s, fmt.Errorf("%w: %d lines, want 6", ErrStatement, len(lines)-1)
	}
	id, ok := strings.CutSuffix(strings.TrimPrefix(lines[0], "lattice/"), "/"+statementLog)
	store, err := lattice.ParseStoreID(id)
	if err != nil || !ok {
		return bad(1, fmt.Errorf("%.100q, want lattice/<store>/%s", lines[0], statementLog))
	}
	s.Store = store
	if s.Entries, err = strconv.ParseUint(lines[1], 10, 64); err != nil {
		return bad(2, err)
	}
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err == nil && len(root) != len(s.Root) {
		err = fmt.Errorf("a root of %d bytes", len(root))
	}
	if err != nil {
		return bad(3, err)
	}
	s.Root = lattice.Hash(root)
	if s.Frontier, err = lattice.ParseHash(strings.TrimPrefix(lines[3], "frontier ")); err != nil {
		return bad(4, err)
	}
	if s.Incarnation, err = strconv.ParseUint(strings.TrimPrefix(lines[4], "incarnation "), 10, 64); err != nil {
		return bad(5, err)
	}
	if s.Time, err = strconv.ParseUint(strings.TrimPrefix(lines[5], "time "), 10, 64); err != nil {
		return bad(6, err)
	}
	// A missing label, a leading zero, upper-case hex and the like come back
	// otherwise than they came.
	if !bytes.Equal(s.Body(), text) {
		return Statement{}, fmt.Errorf("%w: not in the one form it has", ErrStatement)
	}
	return s, nil
}

// SignStatement returns s as a note signed by key.
func SignStatement(key identity.Key, s Statement) ([]byte, error) {
	return note.Sign(&note.Note{Text: string(s.Body())}, key.NoteSigner())
}

// OpenStatement reads a signed note, which must bear one signature, and returns
// who gave it. It accepts exactly one encoding: any changed byte is refused. Wraps
// ErrStatement, or identity.ErrSignature when the signature is not of this text.
func OpenStatement(signed []byte) (Statement, lattice.AuthorID, error) {
	var author lattice.AuthorID
	if len(signed) > MaxStatement {
		return Statement{}, author, fmt.Errorf("%w: %d bytes", ErrStatement, len(signed))
	}
	n, err := note.Open(signed, named{})
	var invalid *note.InvalidSignatureError
	var unverified *note.UnverifiedNoteError
	switch {
	case errors.As(err, &invalid), errors.As(err, &unverified):
		return Statement{}, author, fmt.Errorf("statement of a state's root: %w: %w", identity.ErrSignature, err)
	case err != nil:
		return Statement{}, author, fmt.Errorf("%w: %w", ErrStatement, err)
	case len(n.Sigs) != 1 || len(n.UnverifiedSigs) != 0:
		return Statement{}, author, fmt.Errorf("%w: it has %d signatures, want one", ErrStatement, len(n.Sigs)+len(n.UnverifiedSigs))
	}
	if author, err = identity.ParseNoteName(n.Sigs[0].Name); err != nil {
		return Statement{}, author, fmt.Errorf("%w: %w", ErrStatement, err)
	}
	// note.Open skips repeated lines and takes loose base64, so compare.
	if again, err := note.Sign(n); err != nil || !bytes.Equal(again, signed) {
		return Statement{}, author, fmt.Errorf("%w: not in the one form it has", ErrStatement)
	}
	if raw, err := base64.StdEncoding.Strict().DecodeString(n.Sigs[0].Base64); err != nil || base64.StdEncoding.EncodeToString(raw) != n.Sigs[0].Base64 {
		return Statement{}, author, fmt.Errorf("%w: loose base64", ErrStatement)
	}
	s, err := ParseStatement([]byte(n.Text))
	return s, author, err
}

// named finds the keys that are spelled out in the names of signatures.
type named struct{}

func (named) Verifier(name string, hash uint32) (note.Verifier, error) {
	a, err := identity.ParseNoteName(name)
	if err != nil {
		return nil, err
	}
	v := identity.NoteVerifier(a)
	if v.KeyHash() != hash {
		return nil, &note.UnknownVerifierError{Name: name, KeyHash: hash}
	}
	return v, nil
}
