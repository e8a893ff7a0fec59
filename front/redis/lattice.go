package redis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/front/redis/resp"
)

// What a merge means beyond what Redis can say.

func latticeCommands() family {
	return family{"lattice", []command{
		{name: "lattice.heads", arity: -2, flags: "noscript no_multi", specs: "RO access @1 0,1,0", since: "7.0.0", about: "all current versions of a key", do: latticeHeads,
			note: "`LATTICE.HEADS key [LIMIT n]`. For each head: type, item (field, member or position), value, author, time (ms), hash of the entry (null when it was pruned), whether it wins, and why."},
		{name: "lattice.history", arity: -2, flags: "noscript no_multi", specs: "RO access @1 0,1,0", since: "7.0.0", about: "what was done to a key, the newest first", do: latticeHistory,
			note: "`LATTICE.HISTORY key [LIMIT n]`, 100 unless said otherwise. For each operation: what, item, value, author, time (ms), hash. Reads the logs. Where entries were pruned, the last one is `pruned`, with the id of the snapshot as value and the time of the pruning: what they did is not known any more."},
		{name: "lattice.prove", arity: 2, flags: "noscript no_multi", specs: "RO access @1 0,1,0", since: "7.0.0", about: "a proof of what a key holds, or that there is none", do: latticeProve,
			note: "The text that `lattice proof key` prints; `lattice verify` checks it without the node. It waits for the writes before it. Into a file: `redis-cli -D \"\" LATTICE.PROVE key`, since redis-cli adds a line feed of its own."},
		{name: "lattice.watch", arity: -2, flags: "pubsub noscript no_multi", specs: "not_key @1 0,1,0", since: "7.0.0", about: "be told of changes of the keys that begin with a prefix", set: pubsubOK, do: latticeWatch,
			note: "`LATTICE.WATCH prefix`, or with CURRENT, or with FROM and a resume; in the database chosen. Confirmed as SUBSCRIBE is; a client of RESP2 is in its state then. Messages: `lattice.change`, prefix, and db, key, deleted, type, value (of strings, up to a quarter of MaxPushBytes), conflicted, author, time (ms), hash, resume; `lattice.caughtup` when CURRENT's keys, or what had changed since FROM, were told; `lattice.lagged` when the client fell behind: nothing is missing, the rest follows from the logs; `lattice.end` with the reason. At most 128 a connection."},
		{name: "lattice.unwatch", arity: -1, flags: "pubsub noscript no_multi", specs: "not_key @1 -1,1,0", since: "7.0.0", about: "be told no more, of some prefixes or of all", set: pubsubOK, do: latticeUnwatch},
	}}
}

// defaultHeads and mostHeads bound an answer.
const (
	defaultHeads = 100
	mostHeads    = 10_000
)

// latticeLimit reads LIMIT n.
func (x *call) latticeLimit() (int, error) {
	switch {
	case len(x.args) == 2:
		return defaultHeads, nil
	case len(x.args) != 4 || !x.is(2, "limit"):
		return 0, errSyntax
	}
	n, err := x.int(3)
	if err != nil {
		return 0, err
	}
	if n < 1 || n > mostHeads {
		return 0, errorf("ERR LIMIT must be between 1 and %d", mostHeads)
	}
	return int(n), nil
}

// past returns what the state knows of its past.
func (s *Server) past() (past, error) {
	if p, ok := s.state.(past); ok {
		return p, nil
	}
	return nil, replyError("ERR this state keeps no history")
}

func latticeHeads(x *call) error {
	limit, err := x.latticeLimit()
	if err != nil {
		return err
	}
	p, err := x.srv.past()
	if err != nil {
		return err
	}
	var heads []structs.Head
	t, err := x.srv.state.View(func(r structs.Rows) error {
		found, _, err := structs.In(r, mapNames[x.db]).Heads(x.args[1], limit)
		for _, h := range found {
			h.Item, h.Value = slices.Clone(h.Item), slices.Clone(h.Value)
			heads = append(heads, h)
		}
		return err
	})
	if err != nil {
		return err
	}
	if t != nil { // an entry has its hash once it is written
		if err := t.Wait(x.c.ctx); err != nil {
			return err
		}
	}
	x.w.Array(len(heads))
	for _, h := range heads {
		id, err := p.EntryID(h.Order.Dot.Writer, h.Order.Dot.Seq)
		if err != nil && lattice.KindOf(err) != lattice.NotFound {
			return err
		}
		writeFields(x.w, []field{
			{"type", h.Type.String()}, {"item", h.Item}, {"value", h.Value}, {"author", h.Order.Dot.Writer.Author.String()},
			{"time", int64(h.Order.Time >> 16)}, {"hash", hashOrNull(id, err)}, {"winner", h.Winner}, {"why", h.Why},
		})
	}
	return nil
}

// hashOrNull is nil for an entry that is not here any more.
func hashOrNull(id lattice.Hash, err error) any {
	if err != nil {
		return nil
	}
	return id.String()
}

func latticeProve(x *call) error {
	p, err := x.srv.past()
	if err != nil {
		return err
	}
	file, err := p.ProveFile(x.c.ctx, mapNames[x.db], x.args[1])
	if err != nil {
		return err
	}
	x.w.Bulk(file)
	return nil
}

func latticeHistory(x *call) error {
	limit, err := x.latticeLimit()
	if err != nil {
		return err
	}
	p, err := x.srv.past()
	if err != nil {
		return err
	}
	var events [][]field
	size := 0
	err = p.History(x.c.ctx, mapNames[x.db], x.args[1], func(e keyval.Event) bool {
		f := eventFields(e)
		for _, v := range f {
			if b, ok := v.value.([]byte); ok {
				size += len(b)
			}
		}
		if size > x.srv.cfg.MaxReplyBytes {
			return false
		}
		events = append(events, f)
		return len(events) < limit
	})
	if err != nil {
		return err
	}
	if f, pruned := p.Floor(); pruned && len(events) < limit && size <= x.srv.cfg.MaxReplyBytes {
		events = append(events, floorFields(f))
	}
	x.w.Array(len(events))
	for _, f := range events {
		writeFields(x.w, f)
	}
	return nil
}

// floorFields tells that what was done before was pruned: to which snapshot, and when.
func floorFields(f keyval.Floor) []field {
	at := any(nil)
	if !f.Pruned.IsZero() {
		at = f.Pruned.UnixMilli()
	}
	return []field{{"what", "pruned"}, {"item", nil}, {"value", f.Snapshot.String()}, {"author", nil}, {"time", at}, {"hash", nil}}
}

// eventFields tells what an operation did.
func eventFields(e keyval.Event) []field {
	what, item, value := "", []byte(nil), any(nil)
	switch op := e.Op.(type) {
	case *state.Put:
		what, item = op.Address.Kind.String(), slices.Clone(op.Address.Sub)
		switch {
		case op.Payload.Sum != nil:
			what, value = "add", strconv.FormatInt(op.Payload.Sum.Count, 10)
		case op.Address.Kind == state.Scored:
			if s, err := state.ParseScore(op.Payload); err == nil {
				value = string(resp.AppendDouble(nil, s.Float()))
			}
		case op.Address.Kind != state.Member:
			value = slices.Clone(op.Payload.Bytes)
		}
	case *state.End:
		what = "delete"
		switch op.Scope {
		case state.ScopeKey:
		case state.ScopeRow:
			item = slices.Clone(op.Address.Sub)
			fallthrough
		default:
			what = "delete " + op.Address.Kind.String()
		}
	case *state.Expire:
		what, value = "expire", op.Expiring.At
	default:
		what = strings.TrimPrefix(fmt.Sprintf("%T", op), "*state.")
	}
	return []field{
		{"what", what}, {"item", item}, {"value", value}, {"author", e.Order.Dot.Writer.Author.String()},
		{"time", int64(e.Order.Time >> 16)}, {"hash", e.Entry.String()},
	}
}

// field is a named value of a reply.
type field struct {
	name  string
	value any // string, []byte, int64, bool, or nil
}

func writeFields(w *resp.Writer, fs []field) {
	w.Map(len(fs))
	for _, f := range fs {
		w.BulkString(f.name)
		switch v := f.value.(type) {
		case string:
			w.BulkString(v)
		case []byte:
			w.Bulk(v)
		case int64:
			w.Int(v)
		case bool:
			w.Bool(v)
		default:
			w.Null()
		}
	}
}
