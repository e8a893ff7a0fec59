package keyval

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

// Resume tokens: a frontier as clients keep it, to watch on from there. Any node of
// the store takes it.
//
//	0  version   u8 = 1
//	1  store     the first 8 bytes of its id
//	9  frontier  in its canonical encoding (core/state), less the incarnations that
//	             are where the next one of their author in it begins
//
// An incarnation's first entry names the entry of the one before that it follows.
// So of an author whose node started a thousand times, a token nearly always holds
// one incarnation only.
const (
	tokenVersion = 1
	tokenStore   = 8
	tokenHead    = 1 + tokenStore
	// maxToken bounds a token in bytes.
	maxToken = 4 << 20
)

// ErrToken means bytes that are no resume token of this store. Kind Invalid.
var ErrToken = lattice.E(lattice.Invalid, errors.New("no resume token of this store"))

// Token encodes a frontier. It costs what writers there are; a Watcher's Token does not.
func (db *DB) Token(f state.Frontier) []byte {
	t := db.trailOf(f)
	return t.token(db)
}

// trail keeps the short form of a frontier that moves on: what a token holds.
type trail struct {
	at    state.Frontier
	short state.Frontier                // at, less what tokens leave out
	of    map[lattice.AuthorID][]uint64 // incarnations in at, ascending
}

// trailOf begins a trail at f, which it keeps.
func (db *DB) trailOf(f state.Frontier) *trail {
	t := &trail{at: f, short: make(state.Frontier, 1), of: map[lattice.AuthorID][]uint64{}}
	for _, w := range f.Writers() {
		t.of[w.Author] = append(t.of[w.Author], w.Incarnation)
	}
	for author, all := range t.of {
		for i := range all {
			t.shorten(db, author, i)
		}
	}
	return t
}

// move notes that a writer is at seq now.
func (t *trail) move(db *DB, w state.Writer, seq uint64) {
	known := t.at[w] > 0
	t.at[w] = seq
	i, _ := slices.BinarySearch(t.of[w.Author], w.Incarnation)
	if !known {
		t.of[w.Author] = slices.Insert(t.of[w.Author], i, w.Incarnation)
		if i > 0 {
			t.shorten(db, w.Author, i-1)
		}
	}
	t.shorten(db, w.Author, i)
}

// shorten leaves an author's i-th incarnation out of the short form if it is where the
// next one begins, and else has it there as it is.
func (t *trail) shorten(db *DB, author lattice.AuthorID, i int) {
	all := t.of[author]
	w := state.Writer{Author: author, Incarnation: all[i]}
	if i+1 < len(all) {
		if p := db.follows(state.Writer{Author: author, Incarnation: all[i+1]}); p.Incarnation == w.Incarnation && p.Seq == t.at[w] {
			delete(t.short, w)
			return
		}
	}
	t.short[w] = t.at[w]
}

func (t *trail) token(db *DB) []byte {
	b := make([]byte, 0, tokenHead+64*len(t.short))
	b = append(append(b, tokenVersion), db.store[:tokenStore]...)
	return t.short.AppendTo(b)
}

// ParseToken reads a token. Wraps ErrToken.
func (db *DB) ParseToken(b []byte) (state.Frontier, error) {
	switch {
	case len(b) < tokenHead || len(b) > maxToken:
		return nil, fmt.Errorf("%w: it has %d bytes", ErrToken, len(b))
	case b[0] != tokenVersion:
		return nil, fmt.Errorf("%w: version %d", ErrToken, b[0])
	case !bytes.Equal(b[1:tokenHead], db.store[:tokenStore]):
		return nil, fmt.Errorf("%w: it is of another store", ErrToken)
	}
	f, err := state.ParseFrontier(b[tokenHead:])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrToken, err)
	}
	// What was left out is found again where a log begins. Where that was pruned it
	// is not, and the watch then says so.
	for _, w := range f.Writers() {
		for p := db.follows(w); !p.IsZero() && p.Incarnation < w.Incarnation; p = db.follows(w) {
			w.Incarnation = p.Incarnation
			if _, there := f[w]; there {
				break
			}
			f[w] = p.Seq
		}
	}
	return f, nil
}

// follows returns what the first entry of an incarnation follows; zero when that
// is nothing, or the entry is not here.
func (db *DB) follows(w state.Writer) sigchain.Link {
	db.begunMu.Lock()
	p, known := db.begun[w]
	db.begunMu.Unlock()
	if known {
		return p
	}
	l := db.logs.get(w)
	if l == nil {
		return p
	}
	if first, last := l.Bounds(); first > 1 || last < 1 {
		return p
	}
	e, err := l.Read(1)
	if err != nil {
		return p
	}
	p = e.Prev
	db.begunMu.Lock()
	defer db.begunMu.Unlock()
	if db.begun == nil {
		db.begun = map[state.Writer]sigchain.Link{}
	}
	db.begun[w] = p
	return p
}
