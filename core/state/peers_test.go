package state_test

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/core/state/statetest"
)

// mesh is peers that write apart and meet when told to.
type mesh struct {
	t       *testing.T
	history statetest.History
}

// peer is one writer with its own state.
type peer struct {
	*mesh
	*state.Space
	own   state.Writer
	clock uint64
}

func newMesh(t *testing.T) *mesh { return &mesh{t: t} }

// peer returns a peer by a letter. Each of its entries is one later than the last.
func (m *mesh) peer(name byte, clock uint64) *peer {
	return &peer{m, &state.Space{Frontier: state.Frontier{}}, state.Writer{Author: lattice.AuthorID{name}, Incarnation: 1}, clock}
}

// change makes an operation that sees what its peer has.
type change func(p *peer) state.Op

// write writes an entry of some operations, of which each sees those before it.
func (p *peer) write(changes ...change) {
	p.t.Helper()
	p.clock++
	e := statetest.Entry{Writer: p.own, Seq: p.Frontier[p.own] + 1, Time: p.clock, After: maps.Clone(p.Frontier)}
	for i, c := range changes {
		op := c(p)
		if enc, err := op.Encode(p.own); err != nil {
			p.t.Fatal(err)
		} else if _, err := state.ParseOp(enc, p.own); err != nil {
			p.t.Fatal(err)
		}
		p.Apply(op, state.Dot{Writer: p.own, Seq: e.Seq, Index: uint32(i)}, e.Time)
		e.Ops = append(e.Ops, op)
	}
	p.Pass(p.own, e.Seq)
	p.history = append(p.history, e)
}

// restart begins another incarnation.
func (p *peer) restart() { p.own.Incarnation++ }

// meet has peers learn all that any of them knows, by joining states and by
// folding entries, and checks that both come to the same.
func meet(peers ...*peer) {
	peers[0].t.Helper()
	all := state.Frontier{}
	for _, p := range peers {
		all = all.Join(p.Frontier)
	}
	for _, p := range peers {
		joined := p.Space
		for _, o := range peers {
			joined = joined.Join(o.Space)
		}
		folded := p.Space.Join(&state.Space{})
		p.history.Apply(folded, all)
		if !equal(joined, folded) {
			p.t.Fatalf("joined:\n%s\nfolded:\n%s", statetest.Text(joined), statetest.Text(folded))
		}
		defer func() { p.Space = folded }()
	}
}

func at(key string, k state.Kind, sub string) state.Address {
	a := state.Address{Map: "0", Key: []byte(key), Kind: k}
	if sub != "" {
		a.Sub = []byte(sub)
	}
	return a
}

func put(a state.Address, value string) change {
	return func(p *peer) state.Op {
		return &state.Put{Address: a, Payload: state.Payload{Bytes: []byte(value)}, Supersedes: p.Row(a).Dots()}
	}
}

func set(key, value string) change { return put(at(key, state.Register, ""), value) }

func hset(key, field, value string) change { return put(at(key, state.Field, field), value) }

func sadd(key, member string) change { return put(at(key, state.Member, member), "") }

func srem(key, member string) change { return endRow(at(key, state.Member, member)) }

func endRow(a state.Address) change {
	return func(p *peer) state.Op {
		return &state.End{Address: a, Scope: state.ScopeRow, Cites: p.Row(a).Cites()}
	}
}

func zadd(key, member string, score float64) change {
	return func(p *peer) state.Op {
		s, err := state.ScoreOf(score)
		if err != nil {
			p.t.Fatal(err)
		}
		return put(at(key, state.Scored, member), string(s.Payload().Bytes))(p)
	}
}

func incr(key string, by int64) change {
	return func(p *peer) state.Op {
		return statetest.Increment(p.Space, at(key, state.Register, ""), p.own, by)
	}
}

func hincr(key, field string, by int64) change {
	return func(p *peer) state.Op {
		return statetest.Increment(p.Space, at(key, state.Field, field), p.own, by)
	}
}

func del(key string) change {
	return func(p *peer) state.Op {
		return &state.End{Address: at(key, 0, ""), Scope: state.ScopeKey, Cites: statetest.Seen(p.Space, []byte(key), 0)}
	}
}

func expire(key string, at int64) change {
	return func(p *peer) state.Op {
		return &state.Expire{
			Map: "0", Key: []byte(key), Expiring: state.Expiring{At: at, Cover: statetest.Seen(p.Space, []byte(key), 0)},
			Supersedes: p.expiry(key).Dots(),
		}
	}
}

func persist(key string) change { return endRow(at(key, state.Expiry, "")) }

// under is a put that the key's expiry covers as well.
func under(key string, c change) change {
	return func(p *peer) state.Op {
		op := c(p).(*state.Put)
		op.Under = p.expiry(key).Last().Dot
		return op
	}
}

func rpush(key, value string) change {
	return func(p *peer) state.Op {
		var last []byte
		for _, a := range p.rows(key, state.Element, 0) {
			last = a.Sub
		}
		return put(state.Address{Map: "0", Key: []byte(key), Kind: state.Element, Sub: state.Between(last, nil, statetest.TagOf(p.own))}, value)(p)
	}
}

func lpop(key string) change {
	return func(p *peer) state.Op { return endRow(p.rows(key, state.Element, 0)[0])(p) }
}

func (p *peer) expiry(key string) state.Row { return p.Row(at(key, state.Expiry, "")) }

// rows returns the addresses of a key's rows of a kind that live at a time.
func (p *peer) rows(key string, k state.Kind, now int64) []state.Address {
	var all []state.Address
	for a := range p.Rows {
		if string(a.Key) == key && a.Kind == k && len(p.live(a, now)) > 0 {
			all = append(all, a)
		}
	}
	return all
}

// live returns the heads of a row that have not expired at a time.
func (p *peer) live(a state.Address, now int64) state.Row {
	gone, err := p.expiry(string(a.Key)).Expired(now)
	if err != nil {
		p.t.Fatal(err)
	}
	r, _ := p.Row(a).End(gone)
	return r
}

// read is a key as a person would write it down: of a register the value that a
// plain read returns and then the others; fields, members, scores, elements.
func (p *peer) read(key string, now int64) string {
	var out []string
	for a := range p.Rows {
		r := p.live(a, now)
		if string(a.Key) != key || len(r) == 0 {
			continue
		}
		var values []string
		for _, c := range r.Resolve() {
			values = append(values, string(c.Value))
		}
		v := strings.Join(values, "|")
		switch a.Kind {
		case state.Register:
			out = append(out, v)
		case state.Field:
			out = append(out, string(a.Sub)+":"+v)
		case state.Member:
			out = append(out, string(a.Sub))
		case state.Scored:
			s, err := state.ParseScore(r.Last().Payload)
			if err != nil {
				p.t.Fatal(err)
			}
			out = append(out, fmt.Sprintf("%s=%v", a.Sub, s.Float()))
		case state.Element:
			out = append(out, v)
		}
	}
	return strings.Join(out, " ")
}

// see checks what peers read of a key, and that they hold the same bytes.
func see(key, want string, peers ...*peer) {
	peers[0].t.Helper()
	seeAt(key, 0, want, peers...)
}

func seeAt(key string, now int64, want string, peers ...*peer) {
	peers[0].t.Helper()
	for _, p := range peers {
		if got := p.read(key, now); got != want {
			p.t.Errorf("%c reads %s as %q, want %q", p.own.Author[0], key, got, want)
		}
		if !bytes.Equal([]byte(statetest.Text(p.Space)), []byte(statetest.Text(peers[0].Space))) {
			p.t.Errorf("%c and %c hold different states", p.own.Author[0], peers[0].own.Author[0])
		}
	}
}
