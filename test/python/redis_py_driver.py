"""A Redis client for tests: it uses a server through redis-py as programs do, checks what comes back, and says for each
case whether it is as it should be.

    redis_py_driver.py HOST:PORT CASE...

What it prints and reads is told by the one for go-redis (../go-redis/main.go). ../redis drives it.
"""

import json
import sys
import threading
import time
import traceback

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

LIMIT = 60


class World:
    """What a case works with."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.at = {"host": host, "port": int(port), "decode_responses": True}
        self.redis = self.open()

    def open(self, **options):
        return redis.Redis(**{**self.at, **options})

    def blocked(self, n):
        """Waits until the server holds so many clients."""
        until("clients are blocked", lambda: self.redis.info("clients")["blocked_clients"] == n)

    def kill(self):
        """Asks for a kill of the server, and returns when it is back."""
        tell({"event": "kill"})
        assert sys.stdin.readline(), "nobody says that the server is back"


def tell(answer):
    print(json.dumps(answer), flush=True)


def until(what, holds):
    end = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < end, "still not: " + what
        time.sleep(0.002)


def same(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


def refused(text, call, *args):
    try:
        got = call(*args)
    except redis.ResponseError as err:
        assert str(err) in text if isinstance(text, tuple) else str(err) == text, f"error {err!s}, want {text}"
        return
    raise AssertionError(f"got {got!r}, want the error {text}")


class Async(threading.Thread):
    """A call in a thread of its own."""

    def __init__(self, call):
        super().__init__(daemon=True)
        self.call = call
        self.start()

    def run(self):
        self.result = self.call()

    def get(self):
        self.join(LIMIT)
        return self.result


def strings(w):
    r = w.redis
    raw = w.open(decode_responses=False)
    value = "snow \u2603".encode() + b"\0\xff\r\n"
    same(raw.set("s", value), True)
    same(raw.get("s"), value)
    same(r.set("s", "other", nx=True), None)
    same(raw.set("s", "10", xx=True, get=True), value)
    same(r.incrby("s", 5), 15)
    same(r.incrbyfloat("s", 0.5), 15.5)
    same(r.append("s", "ab"), 6)
    same(r.getrange("s", 3, -1), "5ab")
    same(r.mset({"a": 1, "b": 2}), True)
    same(r.mget("a", "none", "b"), ["1", None, "2"])
    same(r.getdel("a"), "1")
    same(r.setbit("bits", 7, 1), 0)
    same(r.bitcount("bits"), 1)
    big = "x" * (1 << 20)
    same(r.set("big", big), True)
    assert r.get("big") == big
    same(r.get("none"), None)


def hashes(w):
    r = w.redis
    same(r.hset("h", mapping={"a": 1, "b": "two"}), 2)
    same(r.hgetall("h"), {"a": "1", "b": "two"})
    same(r.hincrby("h", "a", 3), 4)
    same(r.hmget("h", "a", "none"), ["4", None])
    same(r.hexists("h", "b"), True)
    same(r.hdel("h", "b", "none"), 1)
    same(r.hkeys("h"), ["a"])
    same(r.hsetnx("h", "a", "x"), 0)


def sets(w):
    r = w.redis
    same(r.sadd("s", "a", "b", "c"), 3)
    same(r.sadd("t", "b", "d"), 2)
    same(set(r.smembers("s")), {"a", "b", "c"})
    same(r.smismember("s", ["a", "d"]), [1, 0])
    same(set(r.sinter("s", "t")), {"b"})
    same(r.sunionstore("u", "s", "t"), 4)
    same(r.smove("s", "t", "c"), True)
    same(r.srem("s", "b"), 1)
    same(r.spop("s"), "a")
    same(r.exists("s"), 0)


def pairs(members):
    """Members with scores, which RESP2 and RESP3 bring in different lists."""
    return [(m[0], float(m[1])) for m in members]


def zsets(w):
    r = w.redis
    same(r.zadd("z", {"a": 1, "b": 2.5, "c": 3}), 3)
    same(r.zscore("z", "b"), 2.5)
    same(r.zincrby("z", 3, "a"), 4.0)
    same(pairs(r.zrange("z", 0, -1, withscores=True)), [("b", 2.5), ("c", 3.0), ("a", 4.0)])
    same(r.zrange("z", "+inf", "(2.5", desc=True, byscore=True), ["a", "c"])
    same(r.zrank("z", "a"), 2)
    same(r.zcount("z", "-inf", 3), 2)
    same(pairs(r.zpopmin("z", 1)), [("b", 2.5)])
    same(r.zremrangebyscore("z", 4, 4), 1)


def lists(w):
    r = w.redis
    same(r.rpush("l", "a", "b", "c"), 3)
    same(r.lpush("l", "z"), 4)
    same(r.lrange("l", 0, -1), ["z", "a", "b", "c"])
    same(r.lpop("l"), "z")
    same(r.rpop("l", 2), ["c", "b"])
    same(r.linsert("l", "BEFORE", "a", "first"), 2)
    same(r.lset("l", 1, "last"), True)
    same(r.lmove("l", "m", "RIGHT", "LEFT"), "last")
    same(r.lpos("m", "last"), 0)
    same(r.lrem("l", 0, "first"), 1)


def blocking(w):
    waiter = w.open()
    popped = Async(lambda: waiter.blpop(["first", "second"], timeout=LIMIT))
    w.blocked(1)
    same(w.redis.rpush("second", "v"), 1)
    same(list(popped.get()), ["second", "v"])
    moved = Async(lambda: waiter.blmove("from", "to", LIMIT, "LEFT", "RIGHT"))
    w.blocked(1)
    same(w.redis.lpush("from", "m"), 1)
    same(moved.get(), "m")
    least = Async(lambda: waiter.bzpopmin("z", LIMIT))
    w.blocked(1)
    same(w.redis.zadd("z", {"one": 1.5}), 1)
    same(list(least.get()), ["z", "one", 1.5])
    same(waiter.blpop("never", timeout=0.01), None)


def transactions(w):
    r = w.redis
    same(r.pipeline(transaction=True).set("k", 1).incr("k").rpush("l", "a").execute(), [True, 2, 1])
    with r.pipeline() as p:
        p.watch("k")
        r.set("k", 40)
        p.multi()
        p.set("k", "lost")
        try:
            p.execute()
            raise AssertionError("a change in between was not seen")
        except redis.WatchError:
            pass
    same(r.transaction(lambda p: (p.multi(), p.incrby("k", 2)), "k"), [42])
    got = r.pipeline().incr("l").set("after", "x").execute(raise_on_error=False)
    assert isinstance(got[0], redis.ResponseError), got
    same(got[1], True)


def pubsub(w):
    r = w.redis
    with r.pubsub(ignore_subscribe_messages=True) as sub:
        sub.subscribe("news")
        sub.psubscribe("n?ws.*")
        until("it listens", lambda: r.pubsub_numsub("news")[0][1] == 1 and r.pubsub_numpat() == 1)
        same(r.publish("news", "hello"), 1)
        same(r.publish("news.eu", "bonjour"), 1)
        same(r.publish("other", "x"), 0)
        got = messages(sub, 2)
        same([(m["channel"], m["pattern"], m["data"]) for m in got], [("news", None, "hello"), ("news.eu", "n?ws.*", "bonjour")])
        sub.unsubscribe("news")
        until("nobody listens", lambda: r.pubsub_numsub("news")[0][1] == 0)


def messages(sub, n):
    got = []

    def more():
        m = sub.get_message(timeout=0.1)
        if m:
            got.append(m)
        return len(got) >= n

    until(f"{n} messages", more)
    return got


def events(w):
    r = w.redis
    same(r.config_set("notify-keyspace-events", "KEA"), True)
    with r.pubsub(ignore_subscribe_messages=True) as sub:
        sub.psubscribe("__keyevent@0__:*")
        until("it listens", lambda: r.pubsub_numpat() == 1)
        r.set("k", "v", px=30)
        r.lpush("l", "x")
        r.delete("l")
        got = {m["channel"].split(":")[1] + " " + m["data"] for m in messages(sub, 5)}
        same(got, {"set k", "expire k", "lpush l", "del l", "expired k"})
    r.config_set("notify-keyspace-events", "")


def scan(w):
    r = w.redis
    p = r.pipeline(transaction=False)
    for i in range(1000):
        p.set(f"key:{i}", i).hset("h", f"f{i}", i).sadd("s", i).zadd("z", {str(i): i})
    p.execute()
    same(len(set(r.scan_iter(count=100))), 1003)
    same(len(set(r.scan_iter("key:1?", count=10))), 10)
    same(list(r.scan_iter(_type="zset")), ["z"])
    same(len(set(r.sscan_iter("s"))), 1000)
    same(dict(r.hscan_iter("h", "f99?")), {f"f99{i}": f"99{i}" for i in range(10)})
    same(len(dict(pairs(r.zscan_iter("z")))), 1000)


def pipeline(w):
    r = w.redis
    p = r.pipeline(transaction=False)
    for _ in range(10_000):
        p.incr("n")
    same(p.execute(), list(range(1, 10_001)))
    got = r.pipeline(transaction=False).rpush("l", "a").incr("l").llen("l").execute(raise_on_error=False)
    same((got[0], got[2]), (1, 1))
    assert isinstance(got[1], redis.ResponseError), got


def expiry(w):
    r = w.redis
    same(r.set("k", "v", ex=3600), True)
    left = r.ttl("k")
    assert 3000 < left <= 3600, left
    same(bool(r.expire("k", 60, nx=True)), False)
    same(bool(r.persist("k")), True)
    same(r.ttl("k"), -1)
    same(r.ttl("none"), -2)
    same(bool(r.pexpire("k", 20)), True)
    until("it has expired", lambda: r.get("k") is None)
    same(r.set("k", "v", exat=int(time.time()) + 3600), True)
    same(r.set("k", "w", keepttl=True), True)
    assert r.ttl("k") > 0


def resp3(w):
    r = w.open(protocol=3)
    same(r.execute_command("HELLO")["proto"], 3)
    r.hset("h", "f", "v")
    same(r.hgetall("h"), {"f": "v"})
    r.zadd("z", {"m": 1.5})
    same(r.zscore("z", "m"), 1.5)
    old = w.open(protocol=2)
    same(old.hgetall("h"), {"f": "v"})
    same(old.zscore("z", "m"), 1.5)


def errors(w):
    r = w.redis
    r.rpush("l", "a")
    refused("WRONGTYPE Operation against a key holding the wrong kind of value", r.get, "l")
    r.set("s", "text")
    # The client takes the code ERR away.
    refused("value is not an integer or out of range", r.incr, "s")
    refused("unknown command 'nosuch', with args beginning with: 'a' 'b' ", r.execute_command, "nosuch", "a", "b")
    refused("wrong number of arguments for 'get' command", r.execute_command, "GET")
    refused("syntax error", r.execute_command, "SET", "k", "v", "nonsense")
    refused("no such key", r.rename, "none", "other")
    same(r.ping(), True)


def reconnect(w):
    """Lives through a kill -9 of the server: what was acknowledged is there, the client finds the server again by itself."""
    r = w.open(retry=Retry(ConstantBackoff(0.05), 1000), retry_on_error=[redis.ConnectionError])
    for i in range(200):
        same(r.incr("n"), i + 1)
        same(r.rpush("l", i), i + 1)
    with r.pubsub(ignore_subscribe_messages=True) as sub:
        sub.subscribe("news")
        until("it listens", lambda: r.pubsub_numsub("news")[0][1] == 1)
        w.kill()
        same(r.get("n"), "200")
        same(r.llen("l"), 200)
        same(r.incr("n"), 201)

        def listens():
            sub.get_message(timeout=0.01)  # where it notices, and subscribes again
            return r.pubsub_numsub("news")[0][1] == 1

        until("it listens again", listens)
        same(r.publish("news", "after"), 1)
        same(messages(sub, 1)[0]["data"], "after")


CASES = (strings, hashes, sets, zsets, lists, blocking, transactions, pubsub, events, scan, pipeline, expiry, resp3, errors, reconnect)


def main(address, names):
    world = World(address)
    known = {case.__name__: case for case in CASES}
    for name in names:
        report = {"case": name}
        try:
            world.redis.flushall()
            known[name](world)
        except Exception:  # noqa: BLE001: whatever it is fails the case
            report["error"] = traceback.format_exc()
        tell(report)


main(sys.argv[1], sys.argv[2:])
