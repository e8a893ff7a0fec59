// @confluentinc/kafka-javascript as a client for tests, through its API that is
// kafkajs's: see ../driver.mjs.
import { readFileSync } from 'node:fs'
import confluent from '@confluentinc/kafka-javascript'
import { pack, serve, tell, unpack } from '../driver.mjs'

const { Kafka, logLevel } = confluent.KafkaJS

const client = (r) => new Kafka({ 'client.id': 'confluent-driver', kafkaJS: { brokers: [r.bootstrap], logLevel: logLevel.NOTHING } })

async function using(c, f) {
  await c.connect()
  try {
    return await f(c)
  } finally {
    await c.disconnect()
  }
}

const admin = (f) => (r) => using(client(r).admin(), (a) => f(a, r))

async function create(a, r) {
  const made = await a.createTopics({
    topics: [{
      topic: r.topic,
      numPartitions: r.partitions,
      replicationFactor: r.replication ?? 1,
      configEntries: Object.entries(r.configs ?? {}).map(([name, value]) => ({ name, value })),
    }],
  })
  // It keeps the one error to itself that kafkajs keeps to itself.
  if (!made) throw Object.assign(new Error('exists already'), { code: 36 })
}

async function describe(a, r) {
  const [topic] = await a.fetchTopicMetadata({ topics: [r.topic] })
  return { partitions: topic.partitions.length }
}

async function committed(a, r) {
  const topics = await a.fetchOffsets({ groupId: r.group, topics: [r.topic] })
  return { offsets: Object.fromEntries(topics.flatMap((t) => t.partitions.map((p) => [p.partition, Number(p.offset)]))) }
}

async function members(a, r) {
  const { groups } = await a.describeGroups([r.group])
  return { members: groups[0].members.length }
}

async function produce(r) {
  const producer = client(r).producer({
    'compression.type': r.codec,
    'enable.idempotence': true,
    'message.max.bytes': 64 << 20,
    'message.timeout.ms': 20_000,
    'topic.metadata.propagation.max.ms': 1000,
    'allow.auto.create.topics': false,
    'linger.ms': 5,
  })
  return using(producer, async (p) => {
    // Sent one by one, each is answered with where it is.
    const answers = await Promise.all(r.records.map((k) => p.send({
      topic: r.topic,
      messages: [{
        key: unpack(k.key),
        value: unpack(k.value),
        timestamp: k.timestamp ? String(k.timestamp) : undefined,
        headers: Object.fromEntries((k.headers ?? []).map((h) => [h.key, unpack(h.value)])),
      }],
    })))
    return { records: r.records.map((k, i) => ({ ...k, partition: answers[i][0].partition, offset: Number(answers[i][0].baseOffset) })) }
  })
}

async function consume(r) {
  const bounds = await admin((a) => a.fetchTopicOffsets(r.topic))(r)
  let starts = new Map(bounds.map((b) => [b.partition, Number(b.low)]))
  if (r.do === 'seek') {
    const found = await admin((a) => a.fetchTopicOffsetsByTimestamp(r.topic, r.time))(r)
    starts = new Map(found.map((f) => [f.partition, Number(f.offset)]))
  }
  const waiting = new Map()
  for (const { partition, high } of bounds) {
    if (r.do === 'beyond') starts.set(partition, Number(high) + 1000)
    const from = starts.get(partition)
    if ((from >= 0 && from < Number(high)) || r.do === 'beyond') waiting.set(partition, Number(high))
  }
  if (waiting.size === 0) return { records: [] }
  return { records: await read(r, bounds, starts, waiting) }
}

// read has a consumer that is a group of its own: there is no other.
function read(r, bounds, starts, waiting) {
  const consumer = client(r).consumer({
    kafkaJS: { groupId: `unused-${process.pid}-${Math.random()}`, autoCommit: false, fromBeginning: true, maxWaitTimeInMs: 200 },
    'auto.offset.reset': r.do === 'beyond' ? 'error' : 'earliest',
  })
  const got = []
  return using(consumer, async (c) => {
    await c.subscribe({ topic: r.topic })
    await new Promise((resolve, reject) => {
      // It tells nobody of an offset that is out of range.
      if (r.do === 'beyond') setTimeout(reject, 3000, new Error('nothing comes'))
      c.run({
        eachMessage: async ({ partition, message: m }) => {
          const end = waiting.get(partition)
          if (end === undefined || Number(m.offset) < starts.get(partition)) return
          got.push({
            partition,
            offset: Number(m.offset),
            timestamp: Number(m.timestamp),
            key: pack(m.key),
            value: pack(m.value),
            headers: Object.entries(m.headers ?? {}).flatMap(([key, v]) =>
              (Array.isArray(v) ? v : [v]).map((value) => ({ key, value: pack(value) }))),
          })
          if (Number(m.offset) + 1 >= end) waiting.delete(partition)
          if (waiting.size === 0) resolve()
        },
      }).catch(reject)
      if (r.do !== 'consume') {
        for (const partition of waiting.keys()) c.seek({ topic: r.topic, partition, offset: String(starts.get(partition)) })
      }
    })
    return got
  })
}

async function member(r, told) {
  const own = r.balancer === 'server'
    ? { 'group.protocol': 'consumer' }
    : { 'partition.assignment.strategy': r.balancer, 'heartbeat.interval.ms': 300 }
  const partitions = (assignment) => assignment.map((a) => a.partition)
  const consumer = client(r).consumer({
    ...own,
    'group.id': r.group,
    'auto.offset.reset': 'earliest',
    'auto.commit.interval.ms': 500,
    'fetch.wait.max.ms': 100,
    rebalance_cb(err, assignment) {
      if (err.code === -175) tell({ event: 'assigned', partitions: partitions(assignment) })
      else tell({ event: 'revoked', partitions: partitions(assignment) })
    },
  })
  await using(consumer, async (c) => {
    await c.subscribe({ topic: r.topic })
    await c.run({
      eachMessage: async ({ partition, message }) => tell({ event: 'read', partition, offset: Number(message.offset) }),
    })
    await told
  })
}

const { version } = JSON.parse(readFileSync(new URL('node_modules/@confluentinc/kafka-javascript/package.json', import.meta.url)))

// codeOf: aggregates have the errors of each topic or group; librdkafka has
// codes of its own below 0.
function codeOf(err) {
  if (err.errors?.length > 0) return codeOf(err.errors[0])
  if (err.groups?.length > 0) return codeOf(err.groups[0].error ?? err.groups[0])
  if (err.partitions?.length > 0) return codeOf(err.partitions[0].error ?? err.partitions[0])
  return typeof err.code === 'number' ? err.code : -1
}

serve(
  {
    version: () => ({ version: `${version} (librdkafka ${confluent.librdkafkaVersion})` }),
    create: admin(create),
    describe: admin(describe),
    list: admin(async (a) => ({ names: await a.listTopics() })),
    trim: admin(async (a, r) => {
      await a.deleteTopicRecords({ topic: r.topic, partitions: [{ partition: 0, offset: String(r.offset) }] })
    }),
    delete: admin(async (a, r) => {
      await a.deleteTopics({ topics: [r.topic] })
    }),
    produce,
    consume,
    seek: consume,
    beyond: consume,
    groups: admin(async (a) => ({ names: (await a.listGroups()).groups.map((g) => g.groupId) })),
    members: admin(members),
    committed: admin(committed),
    forget: admin(async (a, r) => {
      await a.deleteGroups([r.group])
    }),
  },
  codeOf,
  member,
)
