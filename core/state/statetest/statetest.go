// Package statetest draws operations on state, and histories of several authors
// who write while they see more or less of each other. What it draws is what an
// honest author could write, in every type; tests add what a hostile one would.
package statetest

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/lattice-log/lattice/core/state"
	"pgregory.net/rapid"
)

// Few keys, so that writes meet.
var (
	keys   = []string{"a", "b"}
	subs   = []string{"x", "y"}
	values = []string{"", "1", "-7", "9223372036854775807", "text"}
	scores = []float64{-1, 0, 2.5}
)

// Type says which operations are drawn, beside deletes and expiry.
type Type string

const (
	Strings    Type = "strings"
	Counters   Type = "counters"
	Hashes     Type = "hashes"
	Sets       Type = "sets"
	SortedSets Type = "sorted sets"
	Lists      Type = "lists"
	Mixed      Type = "mixed" // all of them, on the same keys
)

// Types returns every Type.
func Types() []Type { return []Type{Strings, Counters, Hashes, Sets, SortedSets, Lists, Mixed} }

// draw is the writing of one operation.
type draw struct {
	t     *rapid.T
	s     *state.Space
	dot   state.Dot
	nowMs int64
}

// Op draws an operation of a type with dot d, by an author that sees s.
func Op(t *rapid.T, what Type, s *state.Space, d state.Dot, nowMs int64) state.Op {
	w := draw{t, s, d, nowMs}
	writes := map[Type][]func(key []byte) state.Op{
		Strings: {w.set}, Counters: {w.count, w.count, w.set}, Hashes: {w.setField, w.countField},
		Sets: {w.add}, SortedSets: {w.score}, Lists: {w.push},
		Mixed: {w.set, w.count, w.setField, w.countField, w.add, w.score, w.push},
	}[what]
	ends := []func(key []byte) state.Op{w.endRow, w.endRow, w.endKind, w.endKey, w.expire, w.persist}
	if rapid.IntRange(0, 9).Draw(t, "ends") > 5 {
		writes = ends
	}
	key := []byte(rapid.SampledFrom(keys).Draw(t, "key"))
	return writes[rapid.IntRange(0, len(writes)-1).Draw(t, "operation")](key)
}

func (w draw) sub() []byte { return []byte(rapid.SampledFrom(subs).Draw(w.t, "sub")) }

func register(key []byte) state.Address {
	return state.Address{Map: "0", Key: key, Kind: state.Register}
}

func (w draw) field(key []byte) state.Address {
	return state.Address{Map: "0", Key: key, Kind: state.Field, Sub: w.sub()}
}

// put puts a payload, instead of what is there or of a part of it, under the
// key's expiry or not.
func (w draw) put(a state.Address, p state.Payload) state.Op {
	op := &state.Put{Address: a, Payload: p, Supersedes: w.s.Row(a).Dots()}
	if rapid.IntRange(0, 3).Draw(w.t, "partly") == 0 {
		op.Supersedes = slices.DeleteFunc(op.Supersedes, func(state.Dot) bool { return rapid.Bool().Draw(w.t, "keep") })
	}
	if e := w.s.Row(expiryOf(a.Key)); len(e) > 0 && rapid.Bool().Draw(w.t, "under") {
		op.Under = e.Last().Dot
	}
	return op
}

func (w draw) value() state.Payload {
	return state.Payload{Bytes: []byte(rapid.SampledFrom(values).Draw(w.t, "value"))}
}

func (w draw) set(key []byte) state.Op { return w.put(register(key), w.value()) }

func (w draw) setField(key []byte) state.Op { return w.put(w.field(key), w.value()) }

func (w draw) add(key []byte) state.Op {
	return w.put(state.Address{Map: "0", Key: key, Kind: state.Member, Sub: w.sub()}, state.Payload{})
}

func (w draw) score(key []byte) state.Op {
	score, err := state.ScoreOf(rapid.SampledFrom(scores).Draw(w.t, "score"))
	if err != nil {
		w.t.Fatal(err)
	}
	return w.put(state.Address{Map: "0", Key: key, Kind: state.Scored, Sub: w.sub()}, score.Payload())
}

func (w draw) count(key []byte) state.Op { return w.increment(register(key)) }

func (w draw) countField(key []byte) state.Op { return w.increment(w.field(key)) }

func (w draw) increment(a state.Address) state.Op {
	return Increment(w.s, a, w.dot.Writer, rapid.SampledFrom([]int64{1, -3, 10, 1<<63 - 1}).Draw(w.t, "by"))
}

// Increment returns the increment of what s holds at a by a writer.
func Increment(s *state.Space, a state.Address, own state.Writer, by int64) *state.Put {
	row := s.Row(a)
	sum := state.Subtotal{Count: by}
	if all := row.Resolve(); len(all) > 0 {
		sum.Base, sum.From = all[0].Base, all[0].From
	}
	op := &state.Put{Address: a, Payload: state.Payload{Sum: &sum}}
	for _, h := range row {
		if h.Dot.Writer == own && h.Payload.Sum != nil && h.Payload.Sum.Base == sum.Base {
			sum.Count = state.AddSaturating(h.Payload.Sum.Count, by)
			op.Supersedes = append(op.Supersedes, h.Dot)
		}
	}
	return op
}

// push puts an element somewhere into the list.
func (w draw) push(key []byte) state.Op {
	var list [][]byte
	for a := range w.s.Rows {
		if a.Kind == state.Element && string(a.Key) == string(key) {
			list = append(list, a.Sub)
		}
	}
	i := rapid.IntRange(0, len(list)).Draw(w.t, "position")
	var lo, hi []byte
	if i > 0 {
		lo = list[i-1]
	}
	if i < len(list) {
		hi = list[i]
	}
	at := state.Address{Map: "0", Key: key, Kind: state.Element, Sub: state.Between(lo, hi, TagOf(w.dot.Writer))}
	return w.put(at, w.value())
}

// TagOf returns a writer's tag.
func TagOf(w state.Writer) state.Tag {
	h := sha256.Sum256(binary.BigEndian.AppendUint64(w.Author[:], w.Incarnation))
	return state.Tag(h[:8])
}

// endRow ends what is seen of one row: a set's member, a list's element, a value.
func (w draw) endRow(key []byte) state.Op {
	var rows []state.Address
	for a := range w.s.Rows {
		if string(a.Key) == string(key) && a.Kind != state.Expiry {
			rows = append(rows, a)
		}
	}
	if len(rows) == 0 {
		return w.endKey(key)
	}
	a := rapid.SampledFrom(rows).Draw(w.t, "row")
	return &state.End{Address: a, Scope: state.ScopeRow, Cites: w.s.Row(a).Cites()}
}

func (w draw) endKind(key []byte) state.Op {
	k := rapid.SampledFrom([]state.Kind{state.Field, state.Member, state.Scored, state.Element}).Draw(w.t, "kind")
	return &state.End{Address: state.Address{Map: "0", Key: key, Kind: k}, Scope: state.ScopeKind, Cites: Seen(w.s, key, k)}
}

func (w draw) endKey(key []byte) state.Op {
	return &state.End{Address: state.Address{Map: "0", Key: key}, Scope: state.ScopeKey, Cites: Seen(w.s, key, 0)}
}

func (w draw) expire(key []byte) state.Op {
	return &state.Expire{
		Map: "0", Key: key, Supersedes: w.s.Row(expiryOf(key)).Dots(),
		Expiring: state.Expiring{At: w.nowMs + rapid.Int64Range(-1, 1).Draw(w.t, "at"), Cover: Seen(w.s, key, 0)},
	}
}

func (w draw) persist(key []byte) state.Op {
	a := expiryOf(key)
	return &state.End{Address: a, Scope: state.ScopeRow, Cites: w.s.Row(a).Cites()}
}

func expiryOf(key []byte) state.Address {
	return state.Address{Map: "0", Key: key, Kind: state.Expiry}
}

// Seen returns the cites of all that s holds of a key, of one kind or, with kind
// 0, of all.
func Seen(s *state.Space, key []byte, k state.Kind) state.Cites {
	var c state.Cites
	for a, r := range s.Rows {
		if a.Map == "0" && string(a.Key) == string(key) && (k == 0 || a.Kind == k) {
			c = c.Join(r.Cites())
		}
	}
	return c
}
