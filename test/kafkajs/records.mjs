import { readFileSync } from 'node:fs'
import kafkajs from 'kafkajs'

const { CompressionTypes, Partitioners } = kafkajs

const codecs = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

const decode = (base64) => (base64 === null ? null : Buffer.from(base64, 'base64'))
const encode = (buffer) => (buffer === null || buffer === undefined ? null : buffer.toString('base64'))

export async function create(kafka, { topic, partitions, config }) {
  const admin = kafka.admin()
  await admin.connect()
  const configEntries = Object.entries(config ?? {}).map(([name, value]) => ({ name, value }))
  const spec = { topics: [{ topic, numPartitions: partitions, replicationFactor: 1, configEntries }] }
  if (!(await admin.createTopics(spec))) throw new Error('it was there already')
  // A second one of that name must be refused, by the right error: kafkajs says
  // false for TOPIC_ALREADY_EXISTS and throws for any other.
  if (await admin.createTopics(spec)) throw new Error('it was created twice')
  const found = await admin.fetchTopicMetadata({ topics: [topic] })
  const n = found.topics[0].partitions.length
  if (n !== partitions) throw new Error(`it has ${n} partitions, want ${partitions}`)
  await admin.disconnect()
}

// produce writes the records of the input file, keyed and idempotent, and
// prints each with the partition and the offset that were acknowledged.
//
// An answer of kafkajs has the first offset of each partition's batch, and it
// does not say which record went where, so the partitioner takes notes.
export async function produce(kafka, { topic, codec, input }, print) {
  const murmur2 = Partitioners.DefaultPartitioner()
  const went = new Map() // message => partition
  const producer = kafka.producer({
    idempotent: true,
    maxInFlightRequests: 1,
    createPartitioner: () => (args) => {
      const partition = murmur2(args)
      went.set(args.message, partition)
      return partition
    },
  })
  await producer.connect()
  const records = readFileSync(input, 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line))
  const perSend = 40
  for (let at = 0; at < records.length; at += perSend) {
    const messages = records.slice(at, at + perSend).map((r) => ({
      key: decode(r.key),
      value: decode(r.value),
      timestamp: r.timestamp ? String(r.timestamp) : undefined,
      headers: Object.fromEntries((r.headers ?? []).map((h) => [h.key, decode(h.value)])),
    }))
    const answers = await producer.send({ topic, messages, acks: -1, compression: codecs[codec || 'none'] })
    const next = new Map(answers.map((a) => [a.partition, Number(a.baseOffset)]))
    messages.forEach((message, i) => {
      const partition = went.get(message)
      const offset = next.get(partition)
      next.set(partition, offset + 1)
      print({ ...records[at + i], partition, offset })
    })
    went.clear()
  }
  await producer.disconnect()
}

// consume prints every record up to the ends that the partitions have now, from
// the start, or for "seek" from the first record at or after a time.
export async function consume(kafka, { do: what, topic, time }, print) {
  const admin = kafka.admin()
  await admin.connect()
  const bounds = await admin.fetchTopicOffsets(topic)
  const starts = what === 'seek'
    ? await admin.fetchTopicOffsetsByTimestamp(topic, time)
    : bounds.map(({ partition, low }) => ({ partition, offset: low }))
  await admin.disconnect()
  const start = new Map(starts.map((s) => [s.partition, Number(s.offset)]))
  const waiting = new Map() // partition => end, until everything below it is read
  for (const { partition, high } of bounds) {
    const from = start.get(partition)
    if (from >= 0 && from < Number(high)) waiting.set(partition, Number(high))
  }
  if (waiting.size === 0) return

  // A kafkajs consumer always has a group; this one commits nothing.
  const consumer = kafka.consumer({ groupId: `${topic}-${what}-${process.pid}`, maxWaitTimeInMs: 200 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        const end = waiting.get(partition)
        const offset = Number(message.offset)
        if (end === undefined || offset < start.get(partition)) return
        print({
          partition,
          offset,
          timestamp: Number(message.timestamp),
          key: encode(message.key),
          value: encode(message.value),
          headers: Object.entries(message.headers ?? {}).flatMap(([key, v]) =>
            (Array.isArray(v) ? v : [v]).map((value) => ({ key, value: encode(value) }))),
        })
        if (offset + 1 >= end) waiting.delete(partition)
        if (waiting.size === 0) resolve()
      },
    }).catch(reject)
    if (what === 'seek') {
      for (const partition of waiting.keys()) consumer.seek({ topic, partition, offset: String(start.get(partition)) })
    }
  })
  await consumer.disconnect()
}
