package proof

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/core/trie"
)

// KeyResult is what the verified proof of a key shows.
type KeyResult struct {
	What      string // one sentence for people
	Store     lattice.StoreID
	StoreName string
	Creator   lattice.AuthorID // of the store: everything rests on this key
	Author    lattice.AuthorID // signed the statement
	State     trie.Statement

	Map  string
	Key  []byte
	Rows []KeyRow // every one that the key has, ascending by kind and sub; none: there is no such key

	// What a plain read would have found at the statement's time.
	Kind       state.Kind // of the winning rows; 0: nothing
	Value      []byte     // of a register
	Conflicted bool       // versions stand beside each other
	Expires    time.Time  // when the winning expiry comes, or came; zero: never
}

// KeyRow is one row of a key.
type KeyRow struct {
	Kind state.Kind
	Sub  []byte
	Row  state.Row
	Live state.Row // without the heads that had expired at the statement's time
}

// VerifyKey checks the proof file of a key from its bytes alone. Errors wrap
// ErrFormat, ErrRefused or ErrUnsupported, and give the reason. The caller compares
// KeyResult.Store with the store that is meant.
func VerifyKey(b []byte) (KeyResult, error) {
	f, err := ParseKey(b)
	if err != nil {
		return KeyResult{}, err
	}
	return f.Verify()
}

// Verify checks what the file claims, as VerifyKey does.
func (f KeyFile) Verify() (KeyResult, error) {
	var base Result
	if err := base.store(File{Genesis: f.Genesis}); err != nil {
		return KeyResult{}, refuse("genesis entry", err)
	}
	r := KeyResult{Store: base.Store, StoreName: base.StoreName, Creator: base.Creator, Map: f.Map, Key: f.Key}
	if err := r.statement(f); err != nil {
		return KeyResult{}, refuse("statement of the state's root", err)
	}
	if err := r.rows(f); err != nil {
		return KeyResult{}, refuse("rows", err)
	}
	if err := r.read(); err != nil {
		return KeyResult{}, refuse("rows", err)
	}
	r.What = r.sentence()
	return r, nil
}

// statement is step 2.
func (r *KeyResult) statement(f KeyFile) (err error) {
	if r.State, r.Author, err = trie.OpenStatement(f.State); err != nil {
		return err
	}
	switch {
	case r.State.Store != r.Store:
		return fmt.Errorf("it is of store %s, not %s", r.State.Store.Short(), r.Store.Short())
	case r.Author != r.Creator:
		return fmt.Errorf("%w: %s signed it, the store was made by %s", ErrUnsupported, r.Author.Short(), r.Creator.Short())
	}
	return nil
}

// rows is step 3.
func (r *KeyResult) rows(f KeyFile) error {
	if len(f.Map) > state.MaxMap {
		return fmt.Errorf("a map's name of %d bytes: at most %d", len(f.Map), state.MaxMap)
	}
	tree, err := trie.ParseProof(f.Tree)
	if err != nil {
		return err
	}
	if !bytes.Equal(tree.AppendTo(nil), f.Tree) {
		return errors.New("the proof in the tree is not in the one form it has")
	}
	key := trie.KeyOf(f.Map, f.Key)
	if len(f.Rows) == 0 {
		return tree.NoKey(r.State.Root, key)
	}
	leaves := make([]trie.Leaf, len(f.Rows))
	r.Rows = make([]KeyRow, len(f.Rows))
	for i, b := range f.Rows {
		k, sub, row, canonical, err := parseRow(b)
		if err != nil {
			return err
		}
		if i > 0 && cmp.Or(cmp.Compare(r.Rows[i-1].Kind, k), bytes.Compare(r.Rows[i-1].Sub, sub)) >= 0 {
			return fmt.Errorf("row %d is out of order", i)
		}
		r.Rows[i] = KeyRow{Kind: k, Sub: sub, Row: row, Live: row}
		leaves[i] = trie.Leaf{Path: trie.PathIn(key, k, sub), Value: trie.ValueOf(canonical)}
	}
	slices.SortFunc(leaves, func(a, b trie.Leaf) int { return bytes.Compare(a.Path[:], b.Path[:]) })
	return tree.Rows(r.State.Root, key, leaves)
}

// read finds what a plain read at the statement's time comes to.
func (r *KeyResult) read() error {
	var gone state.Cites
	for _, x := range r.Rows {
		if x.Kind != state.Expiry {
			continue
		}
		e, err := state.ParseExpiring(x.Row.Last().Payload)
		if err != nil {
			return err
		}
		r.Expires = time.UnixMilli(e.At).UTC()
		if gone, err = x.Row.Expired(int64(r.State.Time >> 16)); err != nil {
			return err
		}
	}
	var best state.Order
	var kinds [state.Kinds]bool
	for i := range r.Rows {
		x := &r.Rows[i]
		if x.Live, _ = x.Row.End(gone); x.Kind == state.Expiry || len(x.Live) == 0 {
			continue
		}
		kinds[x.Kind] = true
		if o := x.Live.Last().Order(); o.Compare(best) > 0 {
			best, r.Kind = o, x.Kind
		}
		if k := x.Kind; k == state.Register || k == state.Field {
			all := x.Live.Resolve()
			r.Conflicted = r.Conflicted || len(all) > 1
			if k == state.Register {
				r.Value = all[0].Value
			}
		}
	}
	for k, there := range kinds {
		r.Conflicted = r.Conflicted || there && state.Kind(k) != r.Kind
	}
	if r.Kind != state.Register {
		r.Value = nil
	}
	return nil
}

// Items returns the live rows of the winning kind.
func (r *KeyResult) Items() []KeyRow {
	var out []KeyRow
	for _, x := range r.Rows {
		if x.Kind == r.Kind && len(x.Live) > 0 {
			out = append(out, x)
		}
	}
	return out
}

func (r *KeyResult) sentence() string {
	name := fmt.Sprintf("key %s of map %s", shown(r.Key), shown([]byte(r.Map)))
	conflict := ""
	if r.Conflicted {
		conflict = ", in conflict with other versions"
	}
	n := len(r.Items())
	switch r.Kind {
	case state.Register:
		return fmt.Sprintf("%s holds %s%s", name, shown(r.Value), conflict)
	case state.Field:
		return fmt.Sprintf("%s is a hash of %d fields%s", name, n, conflict)
	case state.Member:
		return fmt.Sprintf("%s is a set of %d members%s", name, n, conflict)
	case state.Scored:
		return fmt.Sprintf("%s is a sorted set of %d members%s", name, n, conflict)
	case state.Element:
		return fmt.Sprintf("%s is a list of %d elements%s", name, n, conflict)
	}
	if len(r.Rows) > 0 && !r.Expires.IsZero() {
		return fmt.Sprintf("there is no %s: it expired at %s", name, r.Expires.Format(time.RFC3339Nano))
	}
	return "there is no " + name
}

// shown quotes a key or value, cut short.
func shown(b []byte) string {
	const most = 120
	if len(b) > most {
		return fmt.Sprintf("%q... (%d bytes)", b[:most], len(b))
	}
	return fmt.Sprintf("%q", b)
}
