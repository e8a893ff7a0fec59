package redis

import (
	"maps"
	"slices"
	"sync"

	"github.com/lattice-log/lattice/front/redis/resp"
)

// pubsub knows who listens to what. Safe for concurrent use: a message is queued
// at all its receivers under the lock, so that all see messages in one order.
type pubsub struct {
	mu       sync.Mutex
	channels map[string]map[*conn]struct{}
	patterns map[string]map[*conn]struct{}
	shards   map[string]map[*conn]struct{}
}

func (p *pubsub) init() {
	p.channels = map[string]map[*conn]struct{}{}
	p.patterns = map[string]map[*conn]struct{}{}
	p.shards = map[string]map[*conn]struct{}{}
}

// subscription is one of the three kinds: its words, and where it is kept.
type subscription struct {
	on, off string
	all     func(*pubsub) map[string]map[*conn]struct{}
	own     func(*session) *map[string]struct{}
	count   func(*session) int // what confirmations show
}

func normal(s *session) int { return len(s.channels) + len(s.patterns) }

func toChannels() subscription {
	return subscription{"subscribe", "unsubscribe",
		func(p *pubsub) map[string]map[*conn]struct{} { return p.channels },
		func(s *session) *map[string]struct{} { return &s.channels }, normal}
}

func toPatterns() subscription {
	return subscription{"psubscribe", "punsubscribe",
		func(p *pubsub) map[string]map[*conn]struct{} { return p.patterns },
		func(s *session) *map[string]struct{} { return &s.patterns }, normal}
}

func toShards() subscription {
	return subscription{"ssubscribe", "sunsubscribe",
		func(p *pubsub) map[string]map[*conn]struct{} { return p.shards },
		func(s *session) *map[string]struct{} { return &s.shards },
		func(s *session) int { return len(s.shards) }}
}

func pubsubCommands() family {
	return family{"pubsub", []command{
		{name: "subscribe", arity: -2, flags: "pubsub noscript loading stale", since: "2.0.0", about: "listen to channels",
			set: pubsubOK | confirms, do: subscribe(toChannels())},
		{name: "unsubscribe", arity: -1, flags: "pubsub noscript loading stale", since: "2.0.0", about: "stop listening to channels, or all",
			set: pubsubOK | confirms, do: unsubscribe(toChannels())},
		{name: "psubscribe", arity: -2, flags: "pubsub noscript loading stale", since: "2.0.0", about: "listen to channels that match patterns",
			set: pubsubOK | confirms, do: subscribe(toPatterns())},
		{name: "punsubscribe", arity: -1, flags: "pubsub noscript loading stale", since: "2.0.0", about: "stop listening to patterns, or all",
			set: pubsubOK | confirms, do: unsubscribe(toPatterns())},
		{name: "ssubscribe", arity: -2, flags: "pubsub noscript loading stale", specs: "not_key @1 -1,1,0", since: "7.0.0", about: "listen to shard channels",
			set: pubsubOK | confirms, do: subscribe(toShards())},
		{name: "sunsubscribe", arity: -1, flags: "pubsub noscript loading stale", specs: "not_key @1 -1,1,0", since: "7.0.0", about: "stop listening to shard channels, or all",
			set: pubsubOK | confirms, do: unsubscribe(toShards())},
		{name: "publish", arity: 3, flags: "pubsub loading stale fast", since: "2.0.0", about: "send a message to a channel", do: publish(false),
			note: "Reaches the clients of this node. A message behind a write in the same pipeline leaves when that is durable."},
		{name: "spublish", arity: 3, flags: "pubsub loading stale fast", specs: "not_key @1 0,1,0", since: "7.0.0", about: "send a message to a shard channel", do: publish(true)},
		{name: "pubsub", arity: -2, since: "2.8.0", about: "what is listened to", sub: []command{
			{name: "channels", arity: -2, flags: "pubsub loading stale", since: "2.8.0", about: "channels, of a pattern", do: pubsubChannels(toChannels())},
			{name: "shardchannels", arity: -2, flags: "pubsub loading stale", since: "7.0.0", about: "shard channels, of a pattern", do: pubsubChannels(toShards())},
			{name: "numsub", arity: -2, flags: "pubsub loading stale", since: "2.8.0", about: "listeners of channels", do: pubsubNumSub(toChannels())},
			{name: "shardnumsub", arity: -2, flags: "pubsub loading stale", since: "7.0.0", about: "listeners of shard channels", do: pubsubNumSub(toShards())},
			{name: "numpat", arity: 2, flags: "pubsub loading stale", since: "2.8.0", about: "number of patterns", do: pubsubNumPat},
			helpRow(),
		}},
	}}
}

// subscribe returns the handler of one kind. The confirmation is among the
// replies; what the subscription brings is held until it has left.
func subscribe(k subscription) func(*call) error {
	return func(x *call) error {
		c, p := x.c, &x.srv.pubsub
		c.holdQueue()
		for _, name := range x.args[1:] {
			own := k.own(&c.sess)
			if _, known := (*own)[string(name)]; !known {
				if err := c.charge(subscriptionBytes + len(name)); err != nil {
					return err
				}
			}
			p.mu.Lock()
			if *own == nil {
				*own = map[string]struct{}{}
			}
			(*own)[string(name)] = struct{}{}
			all := k.all(p)
			if all[string(name)] == nil {
				all[string(name)] = map[*conn]struct{}{}
			}
			all[string(name)][c] = struct{}{}
			p.mu.Unlock()
			confirm(x.w, k.on, name, k.count(&c.sess))
		}
		c.showSubscriptions()
		return nil
	}
}

// subscriptionBytes is what a subscription takes beside its name.
const subscriptionBytes = 256

// unsubscribe returns the handler of one kind. What came before leaves first.
func unsubscribe(k subscription) func(*call) error {
	return func(x *call) error {
		c := x.c
		names := x.args[1:]
		if len(names) == 0 {
			for _, n := range slices.Sorted(maps.Keys(*k.own(&c.sess))) {
				names = append(names, []byte(n))
			}
		}
		for _, n := range names {
			x.srv.pubsub.remove(c, k, string(n))
			c.absorbQueue()
			confirm(x.w, k.off, n, k.count(&c.sess))
		}
		if len(names) == 0 {
			confirm(x.w, k.off, nil, k.count(&c.sess))
		}
		c.showSubscriptions()
		return nil
	}
}

// confirm writes what a client hears of its own subscriptions.
func confirm(w *resp.Writer, what string, name []byte, count int) {
	w.Push(3)
	w.BulkString(what)
	if name == nil {
		w.Null()
	} else {
		w.Bulk(name)
	}
	w.Int(int64(count))
}

// remove ends one subscription.
func (p *pubsub) remove(c *conn, k subscription, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := *k.own(&c.sess)
	if _, ok := own[name]; ok {
		c.extra -= subscriptionBytes + len(name)
	}
	delete(own, name)
	all := k.all(p)
	delete(all[name], c)
	if len(all[name]) == 0 {
		delete(all, name)
	}
}

// leave ends every subscription of a connection.
func (p *pubsub) leave(c *conn) {
	for _, k := range []subscription{toChannels(), toPatterns(), toShards()} {
		for name := range maps.Clone(*k.own(&c.sess)) {
			p.remove(c, k, name)
		}
	}
}

func (c *conn) showSubscriptions() {
	c.show(func(s *shown) {
		s.subs, s.patterns, s.shard = len(c.sess.channels), len(c.sess.patterns), len(c.sess.shards)
	})
}

// event is a message for whoever listens.
type event struct {
	channel, message []byte
	shard            bool
}

// send queues a message at everyone who listens, and returns how many that are.
func (p *pubsub) send(e event) (receivers int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	listeners, what := p.channels, "message"
	if e.shard {
		listeners, what = p.shards, "smessage"
	}
	if to := listeners[string(e.channel)]; len(to) > 0 {
		receivers += deliver(to, func(w *resp.Writer) {
			w.Push(3)
			w.BulkString(what)
			w.Bulk(e.channel)
			w.Bulk(e.message)
		})
	}
	if e.shard {
		return receivers
	}
	for pattern, to := range p.patterns {
		if !globMatch([]byte(pattern), e.channel, false) {
			continue
		}
		receivers += deliver(to, func(w *resp.Writer) {
			w.Push(4)
			w.BulkString("pmessage")
			w.BulkString(pattern)
			w.Bulk(e.channel)
			w.Bulk(e.message)
		})
	}
	return receivers
}

// receivers returns how many would get a message now.
func (p *pubsub) receivers(e event) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.shard {
		return len(p.shards[string(e.channel)])
	}
	n = len(p.channels[string(e.channel)])
	for pattern, to := range p.patterns {
		if globMatch([]byte(pattern), e.channel, false) {
			n += len(to)
		}
	}
	return n
}

// deliver queues a message, encoded once for each version of the protocol.
func deliver(to map[*conn]struct{}, encode func(*resp.Writer)) int {
	var encoded [2][]byte
	for c := range to {
		v := 0
		if c.pushRESP3.Load() {
			v = 1
		}
		if encoded[v] == nil {
			w := resp.NewWriter(nil, v == 1)
			encode(&w)
			encoded[v] = w.Bytes()
		}
		c.push(encoded[v])
	}
	return len(to)
}

// publish returns the handler of PUBLISH and SPUBLISH.
func publish(shard bool) func(*call) error {
	return func(x *call) error {
		e := event{x.args[1], x.args[2], shard}
		if !x.inExec && len(x.c.pending.tickets) == 0 {
			x.w.Int(int64(x.srv.pubsub.send(e)))
			return nil
		}
		// It may speak of a write that is not certain yet.
		x.w.Int(int64(x.srv.pubsub.receivers(e)))
		x.fx.events = append(x.fx.events, event{slices.Clone(e.channel), slices.Clone(e.message), shard})
		return nil
	}
}

func pubsubChannels(k subscription) func(*call) error {
	return func(x *call) error {
		if len(x.args) > 3 {
			return x.subSyntax()
		}
		p := &x.srv.pubsub
		p.mu.Lock()
		names := slices.Sorted(maps.Keys(k.all(p)))
		p.mu.Unlock()
		if len(x.args) == 3 {
			names = slices.DeleteFunc(names, func(n string) bool { return !globMatch(x.args[2], []byte(n), false) })
		}
		x.w.Array(len(names))
		for _, n := range names {
			x.w.BulkString(n)
		}
		return nil
	}
}

func pubsubNumSub(k subscription) func(*call) error {
	return func(x *call) error {
		p := &x.srv.pubsub
		p.mu.Lock()
		defer p.mu.Unlock()
		x.w.Array(2 * (len(x.args) - 2))
		for _, n := range x.args[2:] {
			x.w.Bulk(n)
			x.w.Int(int64(len(k.all(p)[string(n)])))
		}
		return nil
	}
}

func pubsubNumPat(x *call) error {
	x.srv.pubsub.mu.Lock()
	defer x.srv.pubsub.mu.Unlock()
	x.w.Int(int64(len(x.srv.pubsub.patterns)))
	return nil
}
