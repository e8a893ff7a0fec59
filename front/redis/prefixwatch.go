package redis

import (
	"context"
	"encoding/hex"
	"errors"
	"maps"
	"net"
	"slices"

	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/front/redis/resp"
)

// maxPrefixes is how many prefixes a connection may watch.
const maxPrefixes = 128

// prefixWatch is one LATTICE.WATCH. A goroutine reads the changes and queues them
// as messages, as long as the client takes them: what waits meanwhile is bounded by
// the watcher, and goes on from the logs when that is full.
type prefixWatch struct {
	c      *conn
	p      past
	k      dbKey // the database, and the prefix
	cancel context.CancelFunc
	done   chan struct{}

	w *keyval.Watcher // owned by run
}

// latticeWatch watches a prefix. The confirmation leaves before what it brings.
func latticeWatch(x *call) error {
	p, err := x.srv.past()
	if err != nil {
		return err
	}
	var from state.Frontier
	current := false
	switch {
	case len(x.args) == 2:
	case len(x.args) == 3 && x.is(2, "current"):
		current = true
	case len(x.args) == 4 && x.is(2, "from"):
		token, err := hex.DecodeString(string(x.args[3]))
		if err == nil {
			from, err = p.ParseToken(token)
		}
		if err != nil {
			return replyError("ERR FROM wants the resume of an earlier change of this store")
		}
	default:
		return errSyntax
	}
	c, k := x.c, dbKey{x.db, string(x.args[1])}
	if c.sess.prefixes[k] == nil {
		if len(c.sess.prefixes) >= maxPrefixes {
			return errorf("ERR a connection watches at most %d prefixes", maxPrefixes)
		}
		if err := c.charge(prefixBytes + len(k.key)); err != nil {
			return err
		}
	}
	w, err := p.Watch(mapNames[k.db], x.args[1], from)
	if err != nil {
		if c.sess.prefixes[k] == nil {
			c.extra -= prefixBytes + len(k.key)
		}
		if errors.Is(err, keyval.ErrPruned) || errors.Is(err, keyval.ErrUpset) {
			return errorf("ERR %s: LATTICE.WATCH prefix CURRENT", err)
		}
		return err
	}
	c.holdQueue()
	if old := c.sess.prefixes[k]; old != nil {
		old.stop()
	}
	if c.sess.prefixes == nil {
		c.sess.prefixes = map[dbKey]*prefixWatch{}
	}
	pw := &prefixWatch{c: c, p: p, k: k, done: make(chan struct{}), w: w}
	var ctx context.Context
	ctx, pw.cancel = context.WithCancel(c.ctx)
	c.sess.prefixes[k] = pw
	confirm(x.w, "lattice.watch", x.args[1], len(c.sess.prefixes))
	go pw.run(ctx, current, from != nil)
	return nil
}

// prefixBytes is what a watched prefix takes beside its name.
const prefixBytes = 4 << 10

// latticeUnwatch ends watches. What they brought leaves first.
func latticeUnwatch(x *call) error {
	c := x.c
	var keys []dbKey
	for _, prefix := range x.args[1:] {
		keys = append(keys, dbKey{x.db, string(prefix)})
	}
	if len(x.args) == 1 {
		keys = slices.Collect(maps.Keys(c.sess.prefixes))
	}
	for _, k := range keys {
		c.unwatchPrefix(k)
		c.absorbQueue()
		confirm(x.w, "lattice.unwatch", []byte(k.key), len(c.sess.prefixes))
	}
	if len(keys) == 0 {
		confirm(x.w, "lattice.unwatch", nil, 0)
	}
	return nil
}

func (c *conn) unwatchPrefix(k dbKey) {
	pw := c.sess.prefixes[k]
	if pw == nil {
		return
	}
	pw.stop()
	delete(c.sess.prefixes, k)
	c.extra -= prefixBytes + len(k.key)
}

// unwatchPrefixes ends all watches of the connection.
func (c *conn) unwatchPrefixes() {
	for k := range maps.Clone(c.sess.prefixes) {
		c.unwatchPrefix(k)
	}
}

// stop ends the watch, and returns when nothing more comes of it.
func (pw *prefixWatch) stop() {
	pw.cancel()
	<-pw.done
}

// run queues messages until the watch ends.
func (pw *prefixWatch) run(ctx context.Context, current, from bool) {
	defer close(pw.done)
	defer func() { pw.w.Close() }()
	err := pw.tell(ctx, current, from)
	if ctx.Err() != nil || err == nil {
		return
	}
	pw.send("lattice.end", func(w *resp.Writer) { w.BulkString(err.Error()) })
}

func (pw *prefixWatch) tell(ctx context.Context, current, from bool) error {
	if current {
		err := pw.p.Each(ctx, mapNames[pw.k.db], []byte(pw.k.key), func(c keyval.Change) error {
			return pw.change(ctx, c, false)
		})
		if err != nil {
			return err
		}
	}
	for behind := current || from; ; {
		c, ok, err := pw.w.Poll(ctx)
		switch {
		case errors.Is(err, keyval.ErrLagged):
			at := pw.w.Frontier()
			pw.w.Close()
			w, err := pw.p.Watch(mapNames[pw.k.db], []byte(pw.k.key), at)
			if err != nil {
				return err
			}
			pw.w, behind = w, true
			pw.send("lattice.lagged", func(w *resp.Writer) { w.BulkString(pw.resume()) })
		case err != nil:
			return err
		case ok:
			if err := pw.change(ctx, c, true); err != nil {
				return err
			}
		default:
			if behind {
				behind = false
				pw.send("lattice.caughtup", func(w *resp.Writer) { w.BulkString(pw.resume()) })
			}
			select {
			case <-pw.w.Ready():
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

func (pw *prefixWatch) resume() string { return hex.EncodeToString(pw.w.Token()) }

// change queues a change, once there is room; with resume, where to go on after it.
func (pw *prefixWatch) change(ctx context.Context, ch keyval.Change, resume bool) error {
	if !pw.c.roomToPush(ctx) {
		return net.ErrClosed
	}
	pw.send("lattice.change", func(w *resp.Writer) { writeFields(w, pw.fields(ch, resume)) })
	return nil
}

func (pw *prefixWatch) fields(ch keyval.Change, resume bool) []field {
	typ, value, hash, next := any(nil), any(nil), any(nil), any(nil)
	if !ch.Deleted {
		typ = typeNames[ch.Kind].String()
	}
	if ch.Kind == state.Register && len(ch.Value) <= pw.c.srv.cfg.MaxPushBytes/4 {
		value = ch.Value
	}
	if !ch.Entry.IsZero() {
		hash = ch.Entry.String()
	}
	if resume {
		next = pw.resume()
	}
	return []field{
		{"db", int64(pw.k.db)}, {"key", ch.Key}, {"deleted", ch.Deleted}, {"type", typ}, {"value", value}, {"conflicted", ch.Conflicted},
		{"author", ch.Order.Dot.Writer.Author.String()}, {"time", int64(ch.Order.Time >> 16)}, {"hash", hash}, {"resume", next},
	}
}

var typeNames = [state.Kinds]structs.Type{
	state.Register: structs.String, state.Field: structs.Hash, state.Member: structs.Set, state.Scored: structs.SortedSet, state.Element: structs.List,
}

// send queues a message: what, the prefix, and one value.
func (pw *prefixWatch) send(what string, value func(*resp.Writer)) {
	w := resp.NewWriter(nil, pw.c.pushRESP3.Load())
	w.Push(3)
	w.BulkString(what)
	w.BulkString(pw.k.key)
	value(&w)
	pw.c.push(w.Bytes())
}
