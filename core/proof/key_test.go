package proof

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/core/trie"
	"pgregory.net/rapid"
)

// rows is a state: a few keys of every type, with versions apart and expiry.
type rows map[string][]KeyRow // by "map/key"

var (
	annWriter = state.Writer{Author: seeded(1).Author(), Incarnation: 3}
	bobWriter = state.Writer{Author: seeded(2).Author(), Incarnation: 4}
)

func head(w state.Writer, seq uint64, value string) state.Head {
	return state.Head{Dot: state.Dot{Writer: w, Seq: seq}, Time: 1_700_000_000_000<<16 + seq, Payload: state.Payload{Bytes: []byte(value)}}
}

// row returns a row of heads, in their order.
func row(k state.Kind, sub string, heads ...state.Head) KeyRow {
	r := state.Row(nil)
	for _, h := range heads {
		r = r.Put(h, nil)
	}
	return KeyRow{Kind: k, Sub: []byte(sub), Row: r}
}

// stateTime is when the state of someRows is signed, in milliseconds since 1970.
const stateTime = 1_700_000_100_000

func expiry(at int64, cover ...state.Dot) KeyRow {
	var c state.Cites
	for _, d := range cover {
		c = c.Raise(d)
	}
	h := head(annWriter, 90, "")
	h.Payload = state.Expiring{At: at, Cover: c}.Payload()
	return row(state.Expiry, "", h)
}

func someRows() rows {
	score, err := state.ScoreOf(1.5)
	if err != nil {
		panic(err)
	}
	scored := head(annWriter, 30, "")
	scored.Payload = score.Payload()
	counted := head(bobWriter, 31, "")
	counted.Payload = state.Payload{Sum: &state.Subtotal{Count: 5}}
	return rows{
		"0/greeting": {row(state.Register, "", head(annWriter, 1, "hello"))},
		"0/":         {row(state.Register, "", head(annWriter, 2, ""))},
		"0/apart":    {row(state.Register, "", head(annWriter, 3, "ann's"), head(bobWriter, 9, "bob's"))},
		"0/count":    {row(state.Register, "", counted)},
		"0/hash":     {row(state.Field, "a", head(annWriter, 4, "1")), row(state.Field, "b", head(annWriter, 5, "2"), head(bobWriter, 6, "3"))},
		"1/set":      {row(state.Member, "x", head(annWriter, 6, "")), row(state.Member, "y", head(bobWriter, 7, ""))},
		"1/zset":     {row(state.Scored, "m", scored)},
		"1/list":     {row(state.Element, "\x80\x00\x00\x00\x00\x00\x00\x00\x01", head(annWriter, 8, "e"))},
		"0/types":    {row(state.Register, "", head(annWriter, 10, "text")), row(state.Member, "x", head(bobWriter, 11, ""))},
		"0/lives":    {row(state.Register, "", head(annWriter, 12, "v")), expiry(stateTime+1, state.Dot{Writer: annWriter, Seq: 12})},
		"0/expired":  {row(state.Register, "", head(annWriter, 13, "v")), expiry(stateTime, state.Dot{Writer: annWriter, Seq: 13})},
		"0/survives": {row(state.Register, "", head(annWriter, 14, "old"), head(bobWriter, 15, "new")), expiry(stateTime, state.Dot{Writer: annWriter, Seq: 14})},
	}
}

type treeStore map[trie.Place][]byte

func (t treeStore) Get(p trie.Place) ([]byte, error) { return t[p], nil }

// keyWorld is a store with a state, signed.
type keyWorld struct {
	genesis sigchain.Signed
	rows    rows
	tree    treeStore
	signer  identity.Key
	said    trie.Statement
}

func buildKeys(all rows) *keyWorld {
	w := &keyWorld{rows: all, tree: treeStore{}, signer: seeded(1), genesis: build(nil).genesis}
	var leaves []trie.Leaf
	for name, rs := range all {
		m, key, _ := strings.Cut(name, "/")
		for _, r := range rs {
			leaves = append(leaves, trie.LeafOf(state.Address{Map: m, Key: []byte(key), Kind: r.Kind, Sub: r.Sub}, r.Row))
		}
	}
	root, puts, err := trie.Update(w.tree, leaves)
	if err != nil {
		panic(err)
	}
	for _, p := range puts {
		w.tree[p.Place] = p.Data
	}
	w.said = trie.Statement{Store: w.genesis.Home(), Entries: 15, Root: root, Frontier: lattice.Hash{5}, Incarnation: 3, Time: stateTime << 16}
	return w
}

func (w *keyWorld) file(name string) KeyFile {
	m, key, _ := strings.Cut(name, "/")
	f := KeyFile{Genesis: w.genesis.Bytes(), Map: m, Key: []byte(key), State: must(trie.SignStatement(w.signer, w.said))}
	for _, r := range w.rows[name] {
		f.Rows = append(f.Rows, AppendRow(nil, r.Kind, r.Sub, r.Row))
	}
	p, _, err := trie.ProveKey(w.tree, trie.KeyOf(m, []byte(key)))
	if err != nil {
		panic(err)
	}
	f.Tree = p.AppendTo(nil)
	return f
}

func TestVerifyKey(t *testing.T) {
	w := buildKeys(someRows())
	for name, want := range map[string]string{
		"0/greeting": `key "greeting" of map "0" holds "hello"`,
		"0/":         `key "" of map "0" holds ""`,
		"0/apart":    `key "apart" of map "0" holds "bob's", in conflict with other versions`,
		"0/count":    `key "count" of map "0" holds "5"`,
		"0/hash":     `key "hash" of map "0" is a hash of 2 fields, in conflict with other versions`,
		"1/set":      `key "set" of map "1" is a set of 2 members`,
		"1/zset":     `key "zset" of map "1" is a sorted set of 1 members`,
		"1/list":     `key "list" of map "1" is a list of 1 elements`,
		"0/types":    `key "types" of map "0" is a set of 1 members, in conflict with other versions`,
		"0/lives":    `key "lives" of map "0" holds "v"`,
		"0/expired":  `there is no key "expired" of map "0": it expired at 2023-11-14T22:15:00Z`,
		"0/survives": `key "survives" of map "0" holds "new"`,
		"0/nothing":  `there is no key "nothing" of map "0"`,
		"/greeting":  `there is no key "greeting" of map ""`,
	} {
		r, err := VerifyKey(w.file(name).Encode())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if r.What != want {
			t.Errorf("%s: %s, want %s", name, r.What, want)
		}
		if r.Store != w.genesis.Home() || r.StoreName != "home" || r.Author != seeded(1).Author() || r.State != w.said || len(r.Rows) != len(w.rows[name]) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := must(VerifyKey(w.file("0/lives").Encode())); !r.Expires.Equal(time.UnixMilli(stateTime + 1)) {
		t.Errorf("expires %v", r.Expires)
	}
	r := must(VerifyKey(w.file("0/apart").Encode()))
	if len(r.Rows) != 1 || len(r.Rows[0].Row) != 2 || string(r.Value) != "bob's" || !r.Conflicted {
		t.Errorf("%+v", r)
	}
	empty := buildKeys(rows{})
	if r, err := VerifyKey(empty.file("0/x").Encode()); err != nil || r.Kind != 0 || len(r.Rows) != 0 {
		t.Errorf("of an empty state: %+v, %v", r, err)
	}
}

// TestGoldenKeyBytes pins whole files: what was written must verify for ever.
func TestGoldenKeyBytes(t *testing.T) {
	w := buildKeys(someRows())
	for name, key := range map[string]string{"key.proof": "0/hash", "absence.proof": "0/nothing"} {
		want, err := os.ReadFile(filepath.Join("testdata", "v1", name))
		if err != nil {
			t.Fatal(err)
		}
		if got := w.file(key).Encode(); !bytes.Equal(got, want) {
			t.Errorf("%s: now\n%s\nas frozen\n%s", name, got, want)
		}
		if _, err := VerifyKey(want); err != nil {
			t.Errorf("%s: the frozen file: %v", name, err)
		}
	}
}

// TestKeyAnyChangedByte: a file with any byte changed, cut or added is refused, as
// no proof file.
func TestKeyAnyChangedByte(t *testing.T) {
	w := buildKeys(someRows())
	for _, name := range []string{"0/survives", "0/nothing"} {
		b := w.file(name).Encode()
		for i := range b {
			for _, mask := range []byte{1, 2, 4, 8, 16, 32, 64, 128, 255} {
				b[i] ^= mask
				if _, err := VerifyKey(b); !errors.Is(err, ErrFormat) || lattice.KindOf(err) != lattice.Corrupt {
					t.Fatalf("%s: byte %d ^ %#x: %v", name, i, mask, err)
				}
				b[i] ^= mask
			}
			if _, err := VerifyKey(b[:i]); err == nil {
				t.Fatalf("%s: the first %d bytes are accepted", name, i)
			}
		}
		for _, more := range []string{"\n", "x", "sum 00\n", string(b)} {
			if _, err := VerifyKey(append(bytes.Clone(b), more...)); !errors.Is(err, ErrFormat) {
				t.Errorf("%s: %q after the end: %v", name, more, err)
			}
		}
	}
}

// TestKeyForger: whoever changes any byte of any value and writes a new sum is
// refused by the signatures and hashes, with the step that does.
func TestKeyForger(t *testing.T) {
	w := buildKeys(someRows())
	names := []string{"0/greeting", "0/apart", "0/hash", "1/set", "1/zset", "1/list", "0/types", "0/lives", "0/expired", "0/nothing", "0/"}
	rapid.Check(t, func(t *rapid.T) {
		f := w.file(rapid.SampledFrom(names).Draw(t, "key"))
		fields := map[string]*[]byte{"genesis": &f.Genesis, "state": &f.State, "tree": &f.Tree, "key": &f.Key}
		m := []byte(f.Map)
		fields["map"] = &m
		for i := range f.Rows {
			fields[fmt.Sprint("row ", i)] = &f.Rows[i]
		}
		var all []string
		for n, b := range fields {
			if len(*b) > 0 {
				all = append(all, n)
			}
		}
		slices.Sort(all)
		name := rapid.SampledFrom(all).Draw(t, "field")
		b := bytes.Clone(*fields[name])
		i := rapid.IntRange(0, len(b)-1).Draw(t, "byte")
		b[i] ^= byte(rapid.IntRange(1, 255).Draw(t, "mask"))
		*fields[name] = b
		f.Map = string(m)
		_, err := VerifyKey(f.Encode())
		if err == nil && len(f.Rows) == 0 && (name == "key" || name == "map") && w.rows[f.Map+"/"+string(f.Key)] == nil {
			return // it shows, rightly, that another key is not there either
		}
		if !errors.Is(err, ErrRefused) && !errors.Is(err, ErrUnsupported) {
			t.Fatalf("%s, byte %d: %v", name, i, err)
		}
		if step := err.Error(); !strings.Contains(step, "genesis entry") && !strings.Contains(step, "statement of the state's root") && !strings.Contains(step, "rows") {
			t.Fatalf("%s, byte %d: no step in %q", name, i, step)
		}
	})
}

// TestKeyLiar: the best that can be made of true parts is refused.
func TestKeyLiar(t *testing.T) {
	w := buildKeys(someRows())
	other := buildKeys(rows{"0/greeting": {row(state.Register, "", head(annWriter, 1, "bye"))}})
	for name, change := range map[string]func(f *KeyFile){
		"a row less":                  func(f *KeyFile) { f.Rows = f.Rows[1:] },
		"no rows":                     func(f *KeyFile) { f.Rows = nil },
		"a row twice":                 func(f *KeyFile) { f.Rows = append(f.Rows, f.Rows[1]) },
		"rows in another order":       func(f *KeyFile) { f.Rows[0], f.Rows[1] = f.Rows[1], f.Rows[0] },
		"another key's rows":          func(f *KeyFile) { f.Rows = w.file("0/greeting").Rows },
		"another key's proof":         func(f *KeyFile) { f.Tree = w.file("0/greeting").Tree },
		"the proof of an absence":     func(f *KeyFile) { f.Tree = w.file("0/nothing").Tree },
		"an absence":                  func(f *KeyFile) { f.Rows, f.Tree = nil, w.file("0/nothing").Tree },
		"another key":                 func(f *KeyFile) { f.Key = []byte("Hash") },
		"another map":                 func(f *KeyFile) { f.Map = "1" },
		"another state":               func(f *KeyFile) { f.State = other.file("0/greeting").State },
		"a map's name that is long":   func(f *KeyFile) { f.Map = strings.Repeat("x", 256) },
		"a row of nothing":            func(f *KeyFile) { f.Rows[0] = AppendRow(nil, state.Field, []byte("a"), nil) },
		"a row of no kind":            func(f *KeyFile) { f.Rows[0] = AppendRow(nil, 9, []byte("a"), w.rows["0/hash"][0].Row) },
		"another store's genesis":     func(f *KeyFile) { f.Genesis = w.otherGenesis() },
		"an entry that is no genesis": func(f *KeyFile) { f.Genesis = build(nil).topic.Bytes() },
	} {
		f := w.file("0/hash")
		change(&f)
		if _, err := VerifyKey(f.Encode()); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.signer = seeded(2)
	if _, err := VerifyKey(w.file("0/hash").Encode()); !errors.Is(err, ErrUnsupported) {
		t.Errorf("signed by another: %v", err)
	}
	w.signer, w.said.Store = seeded(1), lattice.StoreID{1}
	if _, err := VerifyKey(w.file("0/hash").Encode()); !errors.Is(err, ErrRefused) {
		t.Errorf("a statement of another store: %v", err)
	}
}

func (w *keyWorld) otherGenesis() []byte {
	e := must(sigchain.Sign(seeded(1), sigchain.Entry{Incarnation: 1, Seq: 1, Time: 1,
		Ops: []sigchain.Op{must(sigchain.Genesis{Name: "home", Random: [16]byte{8}}.Op())}}))
	return e.Bytes()
}

// TestKeyRandom: proofs of random states verify, and show what the state holds.
func TestKeyRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range 20 {
		all := rows{}
		for i := range rng.IntN(40) {
			rs := []KeyRow{}
			for j := range 1 + rng.IntN(4) {
				rs = append(rs, row(state.Field, fmt.Sprint(j), head(annWriter, uint64(100*i+j+1), fmt.Sprint(rng.IntN(100)))))
			}
			all[fmt.Sprintf("%d/k%d", rng.IntN(3), rng.IntN(60))] = rs
		}
		w := buildKeys(all)
		for m := range 3 {
			for i := range 60 {
				name := fmt.Sprintf("%d/k%d", m, i)
				r, err := VerifyKey(w.file(name).Encode())
				if err != nil || len(r.Rows) != len(all[name]) {
					t.Fatalf("%s: %d rows, want %d, %v", name, len(r.Rows), len(all[name]), err)
				}
			}
		}
	}
}

// FuzzVerifyKey checks, for any text, with the sum that it would need: no panic; what
// parses is what Encode writes; what is refused says why.
func FuzzVerifyKey(f *testing.F) {
	w := buildKeys(someRows())
	for name := range w.rows {
		f.Add(w.file(name).Encode())
	}
	f.Add(w.file("0/nothing").Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if i := bytes.LastIndex(b, []byte("sum ")); i > 0 { // else nothing that was changed gets far
			b = fmt.Appendf(bytes.Clone(b[:i]), "sum %x\n", sha256.Sum256(b[:i]))
		}
		file, err := ParseKey(b)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(file.Encode(), b) {
			t.Fatalf("%q comes back as %q", b, file.Encode())
		}
		if _, err := file.Verify(); err != nil && !errors.Is(err, ErrRefused) && !errors.Is(err, ErrUnsupported) {
			t.Fatal(err)
		}
	})
}
