// @platformatic/kafka as a client for tests: see ../driver.mjs.
import { readFileSync } from 'node:fs'
import {
  Admin, Consumer, Producer, defaultPartitioner, roundRobinAssigner,
} from '@platformatic/kafka'
import { pack, serve, tell, unpack } from '../driver.mjs'

const TOPIC = 2 // a resource's type

const base = (r) => ({ clientId: 'platformatic-driver', bootstrapBrokers: [r.bootstrap], retries: 2, timeout: 20_000 })

const admin = (f) => async (r) => {
  const a = new Admin(base(r))
  try {
    return await f(a, r)
  } finally {
    await a.close()
  }
}

async function describe(a, r) {
  const { topics } = await a.metadata({ topics: [r.topic], forceUpdate: true })
  return { partitions: topics.get(r.topic).partitionsCount }
}

async function configs(a, r) {
  const [{ configs }] = await a.describeConfigs({ resources: [{ resourceType: TOPIC, resourceName: r.topic }] })
  return { configs: Object.fromEntries(configs.map((c) => [c.name, c.value])) }
}

async function committed(a, r) {
  const [{ topics }] = await a.listConsumerGroupOffsets({ groups: [r.group] })
  return { offsets: Object.fromEntries(topics.flatMap((t) => t.partitions.map((p) => [p.partitionIndex, Number(p.committedOffset)]))) }
}

async function produce(r) {
  const metadata = await admin(describe)(r)
  const went = new Map()
  const producer = new Producer({
    ...base(r),
    idempotent: true,
    partitioner(message, key) {
      const partition = key ? defaultPartitioner(message, key) % metadata.partitions : 0
      went.set(message.metadata, partition)
      return partition
    },
  })
  try {
    const messages = r.records.map((k, i) => ({
      topic: r.topic,
      key: unpack(k.key) ?? undefined,
      value: unpack(k.value) ?? undefined,
      timestamp: k.timestamp ? BigInt(k.timestamp) : undefined,
      headers: new Map((k.headers ?? []).map((h) => [Buffer.from(h.key), unpack(h.value)])),
      metadata: i,
    }))
    const { offsets } = await producer.send({ messages, compression: r.codec, acks: -1 })
    const next = new Map(offsets.map((o) => [o.partition, Number(o.offset)]))
    return {
      records: r.records.map((k, i) => {
        const partition = went.get(i)
        const offset = next.get(partition)
        next.set(partition, offset + 1)
        return { ...k, partition, offset }
      }),
    }
  } finally {
    await producer.close()
  }
}

async function consume(r) {
  const consumer = new Consumer({ ...base(r), groupId: `unused-${process.pid}-${Math.random()}`, maxWaitTime: 200, autocommit: false })
  try {
    return { records: await read(consumer, r) }
  } finally {
    await consumer.close(true)
  }
}

async function read(consumer, r) {
  const offsetsAt = async (timestamp) => (await consumer.listOffsets({ topics: [r.topic], timestamp })).get(r.topic)
  const ends = await offsetsAt(-1n)
  let starts = await offsetsAt(r.do === 'seek' ? BigInt(r.time) : -2n)
  if (r.do === 'beyond') starts = ends.map((end) => end + 1000n)
  const waiting = new Map()
  ends.forEach((end, partition) => {
    if ((starts[partition] >= 0n && starts[partition] < end) || r.do === 'beyond') waiting.set(partition, end)
  })
  if (waiting.size === 0) return []
  const stream = await consumer.consume({
    topics: [r.topic],
    mode: 'manual',
    fallbackMode: 'fail',
    offsets: ends.map((end, partition) => ({ topic: r.topic, partition, offset: waiting.has(partition) ? starts[partition] : end })),
  })
  const got = []
  for await (const m of stream) {
    if (!waiting.has(m.partition)) continue
    got.push({
      partition: m.partition,
      offset: Number(m.offset),
      timestamp: Number(m.timestamp),
      key: pack(m.key),
      value: pack(m.value),
      headers: m.headerEntries.map(([key, value]) => ({ key: key.toString(), value: pack(value) })),
    })
    if (m.offset + 1n >= waiting.get(m.partition)) waiting.delete(m.partition)
    if (waiting.size === 0) break
  }
  return got
}

async function member(r, told) {
  const ways = { roundrobin: { partitionAssigner: roundRobinAssigner }, server: { groupProtocol: 'consumer' } }
  const way = ways[r.balancer]
  const consumer = new Consumer({
    ...base(r),
    groupId: r.group,
    maxWaitTime: 100,
    autocommit: 500,
    ...(way.groupProtocol ? {} : { heartbeatInterval: 300, sessionTimeout: 10_000 }),
    ...way,
  })
  let owned = []
  const changed = () => {
    const now = consumer.assignments?.find((a) => a.topic === r.topic)?.partitions ?? []
    const gone = owned.filter((p) => !now.includes(p))
    if (gone.length > 0) tell({ event: 'revoked', partitions: gone })
    const come = now.filter((p) => !owned.includes(p))
    if (come.length > 0) tell({ event: 'assigned', partitions: come })
    owned = [...now]
  }
  consumer.on('consumer:group:join', changed)
  const stream = await consumer.consume({ topics: [r.topic], mode: 'committed', fallbackMode: 'earliest' })
  const watch = setInterval(changed, 50) // the consumer's own protocol tells nobody
  told.then(() => stream.close())
  for await (const m of stream) tell({ event: 'read', partition: m.partition, offset: Number(m.offset) })
  clearInterval(watch)
  await consumer.close()
}

// codeOf looks for a code in the errors that an error is made of.
function codeOf(err) {
  if (typeof err.apiCode === 'number') return err.apiCode
  for (const inner of [...(err.errors ?? []), err.cause].filter(Boolean)) {
    const code = codeOf(inner)
    if (code !== -1) return code
  }
  return -1
}

const { version } = JSON.parse(readFileSync(new URL('node_modules/@platformatic/kafka/package.json', import.meta.url)))

serve(
  {
    version: () => ({ version }),
    create: admin((a, r) => a.createTopics({
      topics: [r.topic],
      partitions: r.partitions,
      replicas: r.replication ?? 1,
      configs: Object.entries(r.configs ?? {}).map(([name, value]) => ({ name, value })),
    }).then(() => ({}))),
    describe: admin(describe),
    list: admin(async (a) => ({ names: await a.listTopics() })),
    configs: admin(configs),
    alter: admin((a, r) => a.incrementalAlterConfigs({
      resources: [{
        resourceType: TOPIC,
        resourceName: r.topic,
        configs: Object.entries(r.configs).map(([name, value]) => ({ name, configOperation: 0, value })),
      }],
    })),
    grow: admin((a, r) => a.createPartitions({ topics: [{ name: r.topic, count: r.partitions, assignments: null }] })),
    trim: admin(async (a, r) => {
      await a.deleteRecords({ topics: [{ name: r.topic, partitions: [{ partition: 0, offset: BigInt(r.offset) }] }] })
    }),
    delete: admin((a, r) => a.deleteTopics({ topics: [r.topic] })),
    produce,
    consume,
    seek: consume,
    beyond: consume,
    groups: admin(async (a) => ({ names: [...(await a.listGroups({ types: ['classic', 'consumer'] })).keys()] })),
    members: admin(async (a, r) => ({ members: (await a.describeGroups({ groups: [r.group] })).get(r.group).members.size })),
    committed: admin(committed),
    forget: admin(async (a, r) => {
      await a.deleteGroups({ groups: [r.group] })
    }),
  },
  codeOf,
  member,
)
