import { deepStrictEqual as is, ok, rejects } from 'node:assert/strict'
import { Buffer } from 'node:buffer'

const wrongType = { message: /^WRONGTYPE Operation against a key holding the wrong kind of value/ }

async function strings({ redis }) {
  const value = Buffer.from('snow \u2603 \0\xff\r\n', 'latin1')
  is(await redis.set('s', value), 'OK')
  is(await redis.getBuffer('s'), value)
  is(await redis.set('s', 'other', 'NX'), null)
  is(await redis.setBuffer('s', '10', 'XX', 'GET'), value)
  is(await redis.incrby('s', 5), 15)
  is(await redis.incrbyfloat('s', 0.5), '15.5')
  is(await redis.append('s', 'ab'), 6)
  is(await redis.getrange('s', 3, -1), '5ab')
  is(await redis.mset({ a: '1', b: '2' }), 'OK')
  is(await redis.mget('a', 'none', 'b'), ['1', null, '2'])
  is(await redis.getdel('a'), '1')
  is(await redis.setbit('bits', 7, 1), 0)
  is(await redis.bitcount('bits'), 1)
  const big = 'x'.repeat(1 << 20)
  is(await redis.set('big', big), 'OK')
  ok((await redis.get('big')) === big)
  is(await redis.get('none'), null)
}

async function hashes({ redis }) {
  is(await redis.hset('h', { a: 1, b: 'two' }), 2)
  is({ ...(await redis.hgetall('h')) }, { a: '1', b: 'two' })
  is(await redis.hincrby('h', 'a', 3), 4)
  is(await redis.hmget('h', 'a', 'none'), ['4', null])
  is(await redis.hexists('h', 'b'), 1)
  is(await redis.hdel('h', 'b', 'none'), 1)
  is(await redis.hkeys('h'), ['a'])
  is(await redis.hsetnx('h', 'a', 'x'), 0)
}

async function sets({ redis }) {
  is(await redis.sadd('s', 'a', 'b', 'c'), 3)
  is(await redis.sadd('t', ['b', 'd']), 2)
  is((await redis.smembers('s')).sort(), ['a', 'b', 'c'])
  is(await redis.smismember('s', 'a', 'd'), [1, 0])
  is(await redis.sinter('s', 't'), ['b'])
  is(await redis.sunionstore('u', 's', 't'), 4)
  is(await redis.smove('s', 't', 'c'), 1)
  is(await redis.srem('s', 'b'), 1)
  is(await redis.spop('s'), 'a')
  is(await redis.exists('s'), 0)
}

async function zsets({ redis }) {
  is(await redis.zadd('z', 1, 'a', 2.5, 'b', 3, 'c'), 3)
  is(Number(await redis.zscore('z', 'b')), 2.5)
  is(Number(await redis.zincrby('z', 3, 'a')), 4)
  is(await redis.zrange('z', 0, -1), ['b', 'c', 'a'])
  is(await redis.zrange('z', '(2.5', '+inf', 'BYSCORE', 'LIMIT', 0, 1), ['c'])
  is(await redis.zrank('z', 'a'), 2)
  is(await redis.zcount('z', '-inf', 3), 2)
  is((await redis.zpopmin('z')).flat().map(String), ['b', '2.5'])
  is(await redis.zremrangebyscore('z', 4, 4), 1)
}

async function lists({ redis }) {
  is(await redis.rpush('l', 'a', 'b', 'c'), 3)
  is(await redis.lpush('l', 'z'), 4)
  is(await redis.lrange('l', 0, -1), ['z', 'a', 'b', 'c'])
  is(await redis.lpop('l'), 'z')
  is(await redis.rpop('l', 2), ['c', 'b'])
  is(await redis.linsert('l', 'BEFORE', 'a', 'first'), 2)
  is(await redis.lset('l', 1, 'last'), 'OK')
  is(await redis.lmove('l', 'm', 'RIGHT', 'LEFT'), 'last')
  is(await redis.lpos('m', 'last'), 0)
  is(await redis.lrem('l', 0, 'first'), 1)
}

async function blocking(w) {
  const waiter = w.open()
  const popped = waiter.blpop('first', 'second', 60)
  await w.blocked(1)
  is(await w.redis.rpush('second', 'v'), 1)
  is(await popped, ['second', 'v'])
  const moved = waiter.blmove('from', 'to', 'LEFT', 'RIGHT', 60)
  await w.blocked(1)
  is(await w.redis.lpush('from', 'm'), 1)
  is(await moved, 'm')
  const least = waiter.bzpopmin('z', 60)
  await w.blocked(1)
  is(await w.redis.zadd('z', 1.5, 'one'), 1)
  is((await least).map(String), ['z', 'one', '1.5'])
  is(await waiter.blpop('never', 0.01), null)
}

async function transactions(w) {
  const { redis } = w
  is(await redis.multi().set('k', '1').incr('k').rpush('l', 'a').exec(), [[null, 'OK'], [null, 2], [null, 1]])
  const other = w.open()
  await redis.watch('k')
  await other.set('k', '40')
  is(await redis.multi().set('k', 'lost').exec(), null)
  await redis.watch('k')
  is(await redis.multi().incrby('k', 2).exec(), [[null, 42]])
  const [[failed], after] = await redis.multi().incr('l').set('after', 'x').exec()
  ok(wrongType.message.test(failed.message))
  is(after, [null, 'OK'])
}

async function pubsub(w) {
  const sub = w.open()
  const got = []
  sub.on('message', (channel, text) => got.push([channel, text]))
  sub.on('pmessage', (pattern, channel, text) => got.push([pattern, channel, text]))
  is(await sub.subscribe('news'), 1)
  is(await sub.psubscribe('n?ws.*'), 2)
  is(await w.redis.pubsub('NUMSUB', 'news'), ['news', 1])
  is(await w.redis.publish('news', 'hello'), 1)
  is(await w.redis.publish('news.eu', 'bonjour'), 1)
  is(await w.redis.publish('other', 'x'), 0)
  await w.until('both have arrived', async () => got.length === 2)
  is(got, [['news', 'hello'], ['n?ws.*', 'news.eu', 'bonjour']])
  is(await sub.unsubscribe('news'), 1)
}

async function events(w) {
  const { redis } = w
  is(await redis.config('SET', 'notify-keyspace-events', 'KEA'), 'OK')
  const sub = w.open()
  const got = new Set()
  sub.on('pmessage', (_, channel, key) => got.add(channel.replace('__keyevent@0__:', '') + ' ' + key))
  await sub.psubscribe('__keyevent@0__:*')
  await redis.set('k', 'v', 'PX', 30)
  await redis.lpush('l', 'x')
  await redis.del('l')
  await w.until('the key has expired', async () => got.has('expired k'))
  is([...got].sort(), ['del l', 'expire k', 'expired k', 'lpush l', 'set k'])
  await redis.config('SET', 'notify-keyspace-events', '')
}

async function scan({ redis }) {
  const pipeline = redis.pipeline()
  for (let i = 0; i < 1000; i++) {
    pipeline.set(`key:${i}`, i).hset('h', `f${i}`, i).sadd('s', i).zadd('z', i, i)
  }
  await pipeline.exec()
  const count = async (stream) => {
    const seen = new Set()
    for await (const page of stream) for (const item of page) seen.add(String(item))
    return seen.size
  }
  is(await count(redis.scanStream({ count: 100 })), 1003)
  is(await count(redis.scanStream({ match: 'key:1?', count: 10 })), 10)
  is(await count(redis.scanStream({ type: 'zset' })), 1)
  is(await count(redis.sscanStream('s', { count: 50 })), 1000)
  is(await count(redis.hscanStream('h', { match: 'f*' })), 2000)
  is(await count(redis.zscanStream('z')), 1000)
}

async function pipeline(w) {
  const { redis } = w
  const p = redis.pipeline()
  for (let i = 0; i < 10_000; i++) p.incr('n')
  is((await p.exec()).map(([, n]) => n), Array.from({ length: 10_000 }, (_, i) => i + 1))
  const [pushed, wrong, length] = await redis.pipeline().rpush('l', 'a').incr('l').llen('l').exec()
  is([pushed, length], [[null, 1], [null, 1]])
  ok(wrongType.message.test(wrong[0].message))
  const together = w.open({ enableAutoPipelining: true })
  is(await Promise.all([together.set('a', '1'), together.incr('a'), together.get('a')]), ['OK', 2, '2'])
}

async function expiry(w) {
  const { redis } = w
  is(await redis.set('k', 'v', 'EX', 3600), 'OK')
  const left = await redis.ttl('k')
  ok(left > 3000 && left <= 3600, `TTL ${left}`)
  is(await redis.expire('k', 60, 'NX'), 0)
  is(await redis.persist('k'), 1)
  is(await redis.ttl('k'), -1)
  is(await redis.ttl('none'), -2)
  is(await redis.pexpire('k', 20), 1)
  await w.until('it has expired', async () => (await redis.get('k')) === null)
  is(await redis.set('k', 'v', 'EXAT', Math.floor(Date.now() / 1000) + 3600), 'OK')
  is(await redis.set('k', 'w', 'KEEPTTL'), 'OK')
  ok((await redis.ttl('k')) > 0)
}

async function errors({ redis }) {
  await redis.rpush('l', 'a')
  await rejects(redis.get('l'), wrongType)
  await redis.set('s', 'text')
  await rejects(redis.incr('s'), { message: 'ERR value is not an integer or out of range' })
  await rejects(redis.call('nosuch', 'a', 'b'), { message: "ERR unknown command 'nosuch', with args beginning with: 'a' 'b' " })
  await rejects(redis.call('GET'), { message: "ERR wrong number of arguments for 'get' command" })
  await rejects(redis.call('SET', 'k', 'v', 'nonsense'), { message: 'ERR syntax error' })
  is(await redis.ping(), 'PONG')
}

// reconnect lives through a kill -9 of the server: what was acknowledged is there,
// the client finds the server again by itself, and so does a subscription.
async function reconnect(w) {
  const client = w.open({ maxRetriesPerRequest: null })
  const sub = w.open()
  const got = []
  sub.on('message', (_, text) => got.push(text))
  await sub.subscribe('news')
  for (let i = 0; i < 200; i++) {
    is(await client.incr('n'), i + 1)
    is(await client.rpush('l', i), i + 1)
  }
  await w.kill()
  is(await client.get('n'), '200')
  is(await client.llen('l'), 200)
  is(await client.incr('n'), 201)
  await w.until('it listens again', async () => (await client.pubsub('NUMSUB', 'news'))[1] === 1)
  is(await client.publish('news', 'after'), 1)
  await w.until('the message is there', async () => got.includes('after'))
}

export const cases = { strings, hashes, sets, zsets, lists, blocking, transactions, pubsub, events, scan, pipeline, expiry, errors, reconnect }
