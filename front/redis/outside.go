package redis

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/structs"
)

// outside is what others than this front end did to the keys of its databases (the
// API, other nodes), on its way to clients that block, and to keyspace events. The
// state tells of it with its lock held; run passes it on. What nobody could hear of
// is dropped at once. Safe for concurrent use.
//
// The events are those that Redis's commands of the same effect have. A command
// that an operation came from is not known: what is put at an end of a list is
// rpush, what is taken out of one lrem.
type outside struct {
	srv  *Server
	wake chan struct{} // capacity 1: there is something

	turn sync.Mutex // held by whoever passes on
	lost atomic.Int64

	mu    sync.Mutex
	queue []outsideEvent
	bytes int
	any   bool // any key may have changed, beside those in queue
}

// outsideEvent says what was done to a key.
type outsideEvent struct {
	k     dbKey
	class notifyClass
	what  string // "": nothing that an event tells of
	// gone says that the key may be gone now, which is an event of its own.
	gone bool
}

// Of what others do, this much waits; beyond it events are lost, and counted.
const (
	outsideMax   = 16_384
	outsideBytes = 8 << 20
)

func (o *outside) init(s *Server) { o.srv, o.wake = s, make(chan struct{}, 1) }

// Changed implements keyval.Listener.
func (o *outside) Changed(ops []state.Op) {
	if o.srv.blocked.any.Load() == 0 && o.srv.settings.notify.Load() == 0 {
		return
	}
	var all []outsideEvent
	for _, op := range ops {
		if op == nil {
			continue
		}
		m, key := op.Target()
		db, ok := database(m)
		if !ok {
			continue
		}
		e := describe(op)
		if n := len(all); n > 0 && all[n-1].k.db == db && all[n-1].k.key == string(key) && all[n-1].what == e.what {
			all[n-1].gone = all[n-1].gone || e.gone
			continue // as one command with many members
		}
		e.k = dbKey{db, string(key)}
		all = append(all, e)
	}
	all = slices.DeleteFunc(all, func(e outsideEvent) bool {
		// A value that is set has no expiry any more, and that is no event.
		return e.what == "persist" && slices.ContainsFunc(all, func(x outsideEvent) bool { return x.k == e.k && x.what == "set" })
	})
	o.add(all)
}

// database returns the number of the database that a map is.
func database(m string) (int, bool) {
	if len(m) == 0 || len(m) > 2 || m[0] < '0' || m[0] > '9' {
		return 0, false
	}
	n, err := strconv.Atoi(m)
	return n, err == nil && n < Databases && mapNames[n] == m
}

// describe says what an operation is for Redis.
func describe(op state.Op) outsideEvent {
	switch op := op.(type) {
	case *state.Put:
		sum := op.Payload.Sum != nil
		switch k := op.Address.Kind; {
		case k == state.Register && sum:
			return outsideEvent{class: notifyString, what: "incrby"}
		case k == state.Register:
			return outsideEvent{class: notifyString, what: "set"}
		case k == state.Field && sum:
			return outsideEvent{class: notifyHash, what: "hincrby"}
		case k == state.Field:
			return outsideEvent{class: notifyHash, what: "hset"}
		case k == state.Member:
			return outsideEvent{class: notifySet, what: "sadd"}
		case k == state.Scored:
			return outsideEvent{class: notifyZset, what: "zadd"}
		case k == state.Element:
			return outsideEvent{class: notifyList, what: "rpush"}
		}
	case *state.Expire:
		return outsideEvent{class: notifyGeneric, what: "expire"}
	case *state.End:
		switch k := op.Address.Kind; {
		case op.Scope != state.ScopeKey && k == state.Expiry:
			return outsideEvent{class: notifyGeneric, what: "persist"}
		case op.Scope != state.ScopeRow:
		case k == state.Field:
			return outsideEvent{class: notifyHash, what: "hdel", gone: true}
		case k == state.Member:
			return outsideEvent{class: notifySet, what: "srem", gone: true}
		case k == state.Scored:
			return outsideEvent{class: notifyZset, what: "zrem", gone: true}
		case k == state.Element:
			return outsideEvent{class: notifyList, what: "lrem", gone: true}
		}
		return outsideEvent{gone: true}
	}
	return outsideEvent{}
}

func (o *outside) add(all []outsideEvent) {
	if len(all) == 0 {
		return
	}
	o.mu.Lock()
	for _, e := range all {
		if len(o.queue) >= outsideMax || o.bytes+len(e.k.key) > outsideBytes {
			o.any = true
			o.lost.Add(1)
			continue
		}
		o.queue = append(o.queue, e)
		o.bytes += len(e.k.key)
	}
	o.mu.Unlock()
	o.signal()
}

func (o *outside) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Remade implements keyval.Listener.
func (o *outside) Remade() {
	o.mu.Lock()
	o.any = true
	o.mu.Unlock()
	o.signal()
}

// run passes on until the server drains.
func (o *outside) run(ctx context.Context, draining <-chan struct{}) {
	for {
		select {
		case <-o.wake:
		case <-draining:
			return
		}
		if err := o.pass(ctx); err != nil {
			// Who waits goes on waiting; the next change, or the state once it is well
			// again, has them served.
			o.srv.log.Warn("redis: clients could not be told of what others wrote", slog.Any("err", err))
		}
	}
}

// pass tells of what is queued: events first, then those who wait for keys.
func (o *outside) pass(ctx context.Context) error {
	o.turn.Lock()
	defer o.turn.Unlock()
	o.mu.Lock()
	queue, whatever := o.queue, o.any
	o.queue, o.bytes, o.any = nil, 0, false
	o.mu.Unlock()
	if err := o.events(queue); err != nil {
		return err
	}
	keys := map[dbKey]struct{}{}
	for _, e := range queue {
		keys[e.k] = struct{}{}
	}
	return o.srv.blocked.serveOutside(ctx, o.srv, o.srv.blocked.wanted(keys, whatever))
}

// events sends keyspace events. Of keys that may be gone it looks whether they are.
func (o *outside) events(queue []outsideEvent) error {
	on := notifyClass(o.srv.settings.notify.Load())
	if on == 0 || len(queue) == 0 {
		return nil
	}
	gone := map[dbKey]bool{}
	_, err := o.srv.state.View(func(r structs.Rows) error {
		for _, e := range queue {
			if !e.gone {
				continue
			}
			typ, err := structs.In(r, mapNames[e.k.db]).Type([]byte(e.k.key))
			if err != nil {
				return err
			}
			gone[e.k] = typ == structs.None
		}
		return nil
	})
	if err != nil {
		return err
	}
	last := map[dbKey]int{}
	for i, e := range queue {
		last[e.k] = i
	}
	var all []event
	for i, e := range queue {
		if on&e.class != 0 && e.what != "" {
			all = appendEvents(all, on, e.k.db, e.what, []byte(e.k.key))
		}
		if gone[e.k] && last[e.k] == i && on&notifyGeneric != 0 {
			all = appendEvents(all, on, e.k.db, "del", []byte(e.k.key))
		}
	}
	for _, e := range all {
		o.srv.pubsub.send(e)
	}
	return nil
}

// wanted returns those of the keys that somebody waits for; all that anybody waits
// for, if any may have changed.
func (b *blocked) wanted(keys map[dbKey]struct{}, whatever bool) []dbKey {
	if b.any.Load() == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := map[dbKey]struct{}{}
	var out []dbKey
	for at := range b.byKey {
		_, changed := keys[at.dbKey]
		if _, known := seen[at.dbKey]; known || !changed && !whatever {
			continue
		}
		seen[at.dbKey] = struct{}{}
		out = append(out, at.dbKey)
	}
	slices.SortFunc(out, func(a, b dbKey) int {
		if a.db != b.db {
			return a.db - b.db
		}
		return slices.Compare([]byte(a.key), []byte(b.key))
	})
	return out
}

// serveOutside serves those who wait for keys that others changed, in a
// transaction of its own.
func (b *blocked) serveOutside(ctx context.Context, s *Server, keys []dbKey) error {
	if len(keys) == 0 {
		return nil
	}
	var fx effects
	t, err := s.state.Update(func(rows structs.Rows) error {
		fx.reset()
		fx.touched = append(fx.touched, keys...)
		x := call{srv: s, rows: rows, now: s.cfg.Clock.Now(), fx: &fx, inExec: true}
		if err := b.serve(&x, 0); err != nil {
			return err
		}
		if len(fx.events) > 0 {
			fx.out = s.outbox.add(fx.events)
		}
		return nil
	})
	if err != nil {
		fx.out.drop(s)
		b.putBack(fx.served)
		return err
	}
	s.stats.dirty.Add(fx.changes)
	b.resolve(fx.served, t)
	if fx.out == nil {
		return nil
	}
	fx.out.commit(s)
	if t != nil {
		err = t.Wait(ctx)
	}
	fx.out.settle(s, err)
	return err
}
