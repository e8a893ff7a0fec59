package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var cases = map[string]func(*world){
	"strings": strs, "hashes": hashes, "sets": sets, "zsets": zsets, "lists": lists, "blocking": blocking,
	"transactions": transactions, "pubsub": pubsub, "events": events, "scan": scan, "pipeline": pipeline,
	"expiry": expiry, "resp3": resp3, "errors": errorReplies, "reconnect": reconnect,
}

func strs(w *world) {
	r, ctx := w.rdb, w.ctx
	value := "snow \u2603 \x00\xff\r\n"
	is("OK")(r.Set(ctx, "s", value, 0).Result())
	is(value)(r.Get(ctx, "s").Result())
	is(false)(r.SetNX(ctx, "s", "other", 0).Result())
	is(value)(r.GetSet(ctx, "s", "10").Result())
	is(int64(15))(r.IncrBy(ctx, "s", 5).Result())
	is(int64(14))(r.Decr(ctx, "s").Result())
	is(14.5)(r.IncrByFloat(ctx, "s", 0.5).Result())
	is(int64(6))(r.Append(ctx, "s", "ab").Result())
	is("5ab")(r.GetRange(ctx, "s", 3, -1).Result())
	is(int64(6))(r.SetRange(ctx, "s", 0, "99").Result())
	is("OK")(r.MSet(ctx, "a", "1", "b", "2").Result())
	is([]any{"1", nil, "2"})(r.MGet(ctx, "a", "none", "b").Result())
	is("1")(r.GetDel(ctx, "a").Result())
	is(int64(0))(r.SetBit(ctx, "bits", 7, 1).Result())
	is(int64(1))(r.BitCount(ctx, "bits", nil).Result())
	big := strings.Repeat("x", 1<<20)
	is("OK")(r.Set(ctx, "big", big, 0).Result())
	is(big)(r.Get(ctx, "big").Result())
	fails("redis: nil", r.Get(ctx, "none").Err())
}

func hashes(w *world) {
	r, ctx := w.rdb, w.ctx
	is(int64(2))(r.HSet(ctx, "h", map[string]any{"a": 1, "b": "two"}).Result())
	is(map[string]string{"a": "1", "b": "two"})(r.HGetAll(ctx, "h").Result())
	is(int64(4))(r.HIncrBy(ctx, "h", "a", 3).Result())
	is([]any{"4", nil})(r.HMGet(ctx, "h", "a", "none").Result())
	is(true)(r.HExists(ctx, "h", "b").Result())
	is(int64(1))(r.HDel(ctx, "h", "b", "none").Result())
	is([]string{"a"})(r.HKeys(ctx, "h").Result())
	is(int64(1))(r.HLen(ctx, "h").Result())
	is(false)(r.HSetNX(ctx, "h", "a", "x").Result())
	var into struct {
		A int `redis:"a"`
	}
	ok(r.HGetAll(ctx, "h").Scan(&into))
	that(into.A == 4, "scanned %+v", into)
}

func sets(w *world) {
	r, ctx := w.rdb, w.ctx
	is(int64(3))(r.SAdd(ctx, "s", "a", "b", "c").Result())
	is(int64(2))(r.SAdd(ctx, "t", "b", "d").Result())
	is(map[string]struct{}{"a": {}, "b": {}, "c": {}})(r.SMembersMap(ctx, "s").Result())
	is([]bool{true, false})(r.SMIsMember(ctx, "s", "a", "d").Result())
	is([]string{"b"})(r.SInter(ctx, "s", "t").Result())
	is(int64(4))(r.SUnionStore(ctx, "u", "s", "t").Result())
	is(true)(r.SMove(ctx, "s", "t", "c").Result())
	is(int64(1))(r.SRem(ctx, "s", "b").Result())
	is("a")(r.SPop(ctx, "s").Result())
	is(int64(0))(r.Exists(ctx, "s").Result())
}

func zsets(w *world) {
	r, ctx := w.rdb, w.ctx
	is(int64(3))(r.ZAdd(ctx, "z", redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 2.5, Member: "b"}, redis.Z{Score: 3, Member: "c"}).Result())
	is(2.5)(r.ZScore(ctx, "z", "b").Result())
	is(4.0)(r.ZIncrBy(ctx, "z", 3, "a").Result())
	is([]redis.Z{{Score: 2.5, Member: "b"}, {Score: 3, Member: "c"}, {Score: 4, Member: "a"}})(r.ZRangeWithScores(ctx, "z", 0, -1).Result())
	is([]string{"a", "c"})(r.ZRangeArgs(ctx, redis.ZRangeArgs{Key: "z", Start: "+inf", Stop: "(2.5", ByScore: true, Rev: true}).Result())
	is(int64(2))(r.ZRank(ctx, "z", "a").Result())
	is(int64(2))(r.ZCount(ctx, "z", "-inf", "3").Result())
	is([]redis.Z{{Score: 2.5, Member: "b"}})(r.ZPopMin(ctx, "z").Result())
	is(int64(1))(r.ZRemRangeByScore(ctx, "z", "4", "4").Result())
	is([]string{"c"})(r.ZRange(ctx, "z", 0, -1).Result())
}

func lists(w *world) {
	r, ctx := w.rdb, w.ctx
	is(int64(3))(r.RPush(ctx, "l", "a", "b", "c").Result())
	is(int64(4))(r.LPush(ctx, "l", "z").Result())
	is([]string{"z", "a", "b", "c"})(r.LRange(ctx, "l", 0, -1).Result())
	is("z")(r.LPop(ctx, "l").Result())
	is([]string{"c", "b"})(r.RPopCount(ctx, "l", 2).Result())
	is(int64(2))(r.LInsertBefore(ctx, "l", "a", "first").Result())
	is("OK")(r.LSet(ctx, "l", 1, "last").Result())
	is("last")(r.LMove(ctx, "l", "m", "RIGHT", "LEFT").Result())
	is(int64(0))(r.LPos(ctx, "m", "last", redis.LPosArgs{}).Result())
	is(int64(1))(r.LRem(ctx, "l", 0, "first").Result())
	is(int64(0))(r.LLen(ctx, "l").Result())
}

// blocked waits until the server holds so many clients.
func (w *world) blocked(n int) {
	until("clients are blocked", func() bool {
		info, err := w.rdb.Info(w.ctx, "clients").Result()
		return err == nil && strings.Contains(info, fmt.Sprintf("blocked_clients:%d\r\n", n))
	})
}

func blocking(w *world) {
	r, ctx := w.rdb, w.ctx
	waiter := w.open(3)
	defer waiter.Close()
	got := make(chan *redis.StringSliceCmd)
	go func() { got <- waiter.BLPop(ctx, limit, "first", "second") }()
	w.blocked(1)
	is(int64(1))(r.RPush(ctx, "second", "v").Result())
	is([]string{"second", "v"})((<-got).Result())
	is(int64(0))(r.Exists(ctx, "second").Result())

	moved := make(chan *redis.StringCmd)
	go func() { moved <- waiter.BLMove(ctx, "from", "to", "LEFT", "RIGHT", limit) }()
	w.blocked(1)
	is(int64(1))(r.LPush(ctx, "from", "m").Result())
	is("m")((<-moved).Result())
	is([]string{"m"})(r.LRange(ctx, "to", 0, -1).Result())

	least := make(chan *redis.ZWithKeyCmd)
	go func() { least <- waiter.BZPopMin(ctx, limit, "z") }()
	w.blocked(1)
	is(int64(1))(r.ZAdd(ctx, "z", redis.Z{Score: 1.5, Member: "one"}).Result())
	is(&redis.ZWithKey{Z: redis.Z{Score: 1.5, Member: "one"}, Key: "z"})((<-least).Result())
	fails("redis: nil", waiter.BLPop(ctx, 10*time.Millisecond, "never").Err())
}

func transactions(w *world) {
	r, ctx := w.rdb, w.ctx
	replies, err := r.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, "k", "1", 0)
		p.Incr(ctx, "k")
		p.RPush(ctx, "l", "a")
		return nil
	})
	ok(err)
	that(len(replies) == 3 && replies[1].(*redis.IntCmd).Val() == 2, "replies %v", replies)

	// Somebody else changes a watched key: nothing of it happens, then it is tried again.
	tries := 0
	add := func(tx *redis.Tx) error {
		n, err := tx.Get(ctx, "k").Int()
		if err != nil {
			return err
		}
		if tries++; tries == 1 {
			is("OK")(r.Set(ctx, "k", "40", 0).Result())
		}
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, "k", n+2, 0)
			return nil
		})
		return err
	}
	err = r.Watch(ctx, add, "k")
	that(errors.Is(err, redis.TxFailedErr), "a change in between: %v", err)
	ok(r.Watch(ctx, add, "k"))
	is("42")(r.Get(ctx, "k").Result())

	// A command that fails as it runs does not undo the others.
	_, err = r.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Incr(ctx, "l")
		p.Set(ctx, "after", "x", 0)
		return nil
	})
	fails("WRONGTYPE Operation against a key holding the wrong kind of value", err)
	is("x")(r.Get(ctx, "after").Result())
}

func pubsub(w *world) {
	r, ctx := w.rdb, w.ctx
	sub := r.Subscribe(ctx, "news")
	defer sub.Close()
	_, err := sub.Receive(ctx)
	ok(err)
	ok(sub.PSubscribe(ctx, "n?ws.*"))
	_, err = sub.Receive(ctx)
	ok(err)
	is(map[string]int64{"news": 1})(r.PubSubNumSub(ctx, "news").Result())
	is(int64(1))(r.PubSubNumPat(ctx).Result())
	is(int64(1))(r.Publish(ctx, "news", "hello").Result())
	is(int64(1))(r.Publish(ctx, "news.eu", "bonjour").Result())
	is(int64(0))(r.Publish(ctx, "other", "x").Result())
	is(&redis.Message{Channel: "news", Payload: "hello"})(sub.ReceiveMessage(ctx))
	is(&redis.Message{Channel: "news.eu", Pattern: "n?ws.*", Payload: "bonjour"})(sub.ReceiveMessage(ctx))
	ok(sub.Unsubscribe(ctx, "news"))
	until("nobody listens", func() bool { return r.PubSubNumSub(ctx, "news").Val()["news"] == 0 })
}

func events(w *world) {
	r, ctx := w.rdb, w.ctx
	is("OK")(r.ConfigSet(ctx, "notify-keyspace-events", "KEA").Result())
	defer r.ConfigSet(ctx, "notify-keyspace-events", "")
	sub := r.PSubscribe(ctx, "__keyevent@0__:*")
	defer sub.Close()
	_, err := sub.Receive(ctx)
	ok(err)
	is("OK")(r.Set(ctx, "k", "v", 30*time.Millisecond).Result())
	is(int64(1))(r.LPush(ctx, "l", "x").Result())
	is(int64(1))(r.Del(ctx, "l").Result())
	want := map[string]string{"set": "k", "expire": "k", "lpush": "l", "del": "l", "expired": "k"}
	for len(want) > 0 {
		m, err := sub.ReceiveMessage(ctx)
		ok(err)
		event := strings.TrimPrefix(m.Channel, "__keyevent@0__:")
		that(want[event] == m.Payload, "event %s of %s; wanted still %v", event, m.Payload, want)
		delete(want, event)
	}
}

func scan(w *world) {
	r, ctx := w.rdb, w.ctx
	p := r.Pipeline()
	for i := range 1000 {
		p.Set(ctx, fmt.Sprintf("key:%d", i), i, 0)
		p.HSet(ctx, "h", fmt.Sprintf("f%d", i), i)
		p.SAdd(ctx, "s", i)
		p.ZAdd(ctx, "z", redis.Z{Score: float64(i), Member: i})
	}
	_, err := p.Exec(ctx)
	ok(err)
	// HSCAN and ZSCAN give pairs: a hash's names and values are all different here,
	// the members of the sorted set are its scores.
	count := func(it *redis.ScanIterator) int {
		seen := map[string]bool{}
		for it.Next(ctx) {
			seen[it.Val()] = true
		}
		ok(it.Err())
		return len(seen)
	}
	for what, got := range map[string][2]int{
		"all keys":     {count(r.Scan(ctx, 0, "", 100).Iterator()), 1003},
		"some keys":    {count(r.Scan(ctx, 0, "key:1?", 10).Iterator()), 10},
		"keys by type": {count(r.ScanType(ctx, 0, "", 10, "zset").Iterator()), 1},
		"members":      {count(r.SScan(ctx, "s", 0, "", 50).Iterator()), 1000},
		"some members": {count(r.SScan(ctx, "s", 0, "99?", 50).Iterator()), 10},
		"fields":       {count(r.HScan(ctx, "h", 0, "f*", 50).Iterator()), 2000},
		"scored":       {count(r.ZScan(ctx, "z", 0, "", 50).Iterator()), 1000},
	} {
		that(got[0] == got[1], "%s: %d, want %d", what, got[0], got[1])
	}
}

func pipeline(w *world) {
	r, ctx := w.rdb, w.ctx
	const n = 10_000
	p := r.Pipeline()
	for range n {
		p.Incr(ctx, "n")
	}
	replies, err := p.Exec(ctx)
	ok(err)
	for i, c := range replies {
		that(c.(*redis.IntCmd).Val() == int64(i+1), "reply %d is %v", i, c)
	}
	// An error stands where it belongs.
	p.RPush(ctx, "l", "a")
	wrong := p.Incr(ctx, "l")
	right := p.LLen(ctx, "l")
	_, err = p.Exec(ctx)
	that(err != nil && wrong.Err() != nil, "no error of the pipeline")
	is(int64(1))(right.Result())
}

func expiry(w *world) {
	r, ctx := w.rdb, w.ctx
	is("OK")(r.Set(ctx, "k", "v", time.Hour).Result())
	left, err := r.TTL(ctx, "k").Result()
	ok(err)
	that(left > 50*time.Minute && left <= time.Hour, "TTL %s", left)
	is(false)(r.ExpireNX(ctx, "k", time.Minute).Result())
	is(true)(r.ExpireLT(ctx, "k", time.Minute).Result())
	is(true)(r.Persist(ctx, "k").Result())
	is(time.Duration(-1))(r.TTL(ctx, "k").Result())
	is(time.Duration(-2))(r.TTL(ctx, "none").Result())
	is(true)(r.PExpire(ctx, "k", 20*time.Millisecond).Result())
	until("it has expired", func() bool { return errors.Is(r.Get(ctx, "k").Err(), redis.Nil) })
	is(int64(0))(r.Exists(ctx, "k").Result())
	is("OK")(r.SetArgs(ctx, "k", "v", redis.SetArgs{ExpireAt: time.Now().Add(time.Hour)}).Result())
	is("OK")(r.SetArgs(ctx, "k", "w", redis.SetArgs{KeepTTL: true}).Result())
	that(r.TTL(ctx, "k").Val() > 0, "SET KEEPTTL forgot the expiry")
}

func resp3(w *world) {
	ctx := w.ctx
	r := w.open(3)
	defer r.Close()
	is(int64(1))(r.HSet(ctx, "h", "f", "v").Result())
	is(any(map[any]any{"f": "v"}))(r.Do(ctx, "HGETALL", "h").Result())
	is(int64(1))(r.ZAdd(ctx, "z", redis.Z{Score: 1.5, Member: "m"}).Result())
	is(any(1.5))(r.Do(ctx, "ZSCORE", "z", "m").Result())
	is(any([]any{[]any{"m", 1.5}}))(r.Do(ctx, "ZRANGE", "z", "0", "-1", "WITHSCORES").Result())
	hello, err := r.Do(ctx, "HELLO").Result()
	ok(err)
	m, isMap := hello.(map[any]any)
	that(isMap && m["proto"] == int64(3), "HELLO: %v", hello)
	old := w.open(2)
	defer old.Close()
	is(any([]any{"f", "v"}))(old.Do(ctx, "HGETALL", "h").Result())
}

func errorReplies(w *world) {
	r, ctx := w.rdb, w.ctx
	is(int64(1))(r.RPush(ctx, "l", "a").Result())
	fails("WRONGTYPE Operation against a key holding the wrong kind of value", r.Get(ctx, "l").Err())
	is("OK")(r.Set(ctx, "s", "text", 0).Result())
	fails("ERR value is not an integer or out of range", r.Incr(ctx, "s").Err())
	fails("ERR unknown command 'nosuch', with args beginning with: 'a' 'b' ", r.Do(ctx, "nosuch", "a", "b").Err())
	fails("ERR wrong number of arguments for 'get' command", r.Do(ctx, "GET").Err())
	fails("ERR syntax error", r.Do(ctx, "SET", "k", "v", "nonsense").Err())
	fails("ERR no such key", r.Rename(ctx, "none", "other").Err())
	is("PONG")(r.Ping(ctx).Result())
}

// reconnect lives through a kill -9 of the server: what was acknowledged is there,
// the client finds the server again by itself, and so does a subscription.
func reconnect(w *world) {
	ctx := w.ctx
	r := redis.NewClient(&redis.Options{Addr: w.addr, MaxRetries: 3})
	defer r.Close()
	sub := r.Subscribe(ctx, "news")
	defer sub.Close()
	messages := sub.Channel(redis.WithChannelHealthCheckInterval(200 * time.Millisecond))
	until("it listens", func() bool { return r.PubSubNumSub(ctx, "news").Val()["news"] == 1 })
	for i := range 200 {
		is(int64(i + 1))(r.Incr(ctx, "n").Result())
		is(int64(i + 1))(r.RPush(ctx, "l", i).Result())
	}
	tell(map[string]string{"event": "kill"})
	that(w.stdin.Scan(), "nobody says that the server is back")
	until("it answers", func() bool { return r.Ping(ctx).Err() == nil })
	is("200")(r.Get(ctx, "n").Result())
	is(int64(200))(r.LLen(ctx, "l").Result())
	is(int64(201))(r.Incr(ctx, "n").Result())
	until("it listens again", func() bool { return r.PubSubNumSub(ctx, "news").Val()["news"] == 1 })
	is(int64(1))(r.Publish(ctx, "news", "after").Result())
	select {
	case m := <-messages:
		that(m.Payload == "after", "message %v", m)
	case <-time.After(limit):
		failf(0, "no message after the restart")
	}
}
