import kafkajs from 'kafkajs'
import { pack, unpack } from '../driver.mjs'

const { CompressionTypes, Partitioners } = kafkajs

const codecs = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

// produce writes the records, keyed and idempotent, and answers them with the
// partitions and the offsets that were acknowledged.
//
// An answer of kafkajs has the first offset of each partition's batch, and it
// does not say which record went where, so the partitioner takes notes.
export async function produce(kafka, { topic, codec, records }) {
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
  const acked = []
  const perSend = 40
  try {
    for (let at = 0; at < records.length; at += perSend) {
      const messages = records.slice(at, at + perSend).map((r) => ({
        key: unpack(r.key),
        value: unpack(r.value),
        timestamp: r.timestamp ? String(r.timestamp) : undefined,
        headers: Object.fromEntries((r.headers ?? []).map((h) => [h.key, unpack(h.value)])),
      }))
      const answers = await producer.send({ topic, messages, acks: -1, compression: codecs[codec || 'none'] })
      const next = new Map(answers.map((a) => [a.partition, Number(a.baseOffset)]))
      messages.forEach((message, i) => {
        const partition = went.get(message)
        const offset = next.get(partition)
        next.set(partition, offset + 1)
        acked.push({ ...records[at + i], partition, offset })
      })
      went.clear()
    }
  } finally {
    await producer.disconnect()
  }
  return { records: acked }
}

// bounds returns, by partition, where to begin and where to end.
async function bounds(kafka, { do: what, topic, time }) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    const all = await admin.fetchTopicOffsets(topic)
    const starts = what === 'seek'
      ? await admin.fetchTopicOffsetsByTimestamp(topic, time)
      : all.map(({ partition, low, high }) => ({ partition, offset: what === 'beyond' ? Number(high) + 1000 : low }))
    return {
      start: new Map(starts.map((s) => [s.partition, Number(s.offset)])),
      end: new Map(all.map((b) => [b.partition, Number(b.high)])),
    }
  } finally {
    await admin.disconnect()
  }
}

// consume answers every record up to the ends that the partitions have now,
// from the start, for "seek" from the first record at or after a time, and for
// "beyond" from behind the end, which kafkajs keeps to itself.
export async function consume(kafka, r) {
  const { start, end } = await bounds(kafka, r)
  const beyond = r.do === 'beyond'
  const waiting = new Map() // partition => end, until everything below it is read
  for (const [partition, high] of end) {
    const from = start.get(partition)
    if (beyond || (from >= 0 && from < high)) waiting.set(partition, high)
  }
  if (waiting.size === 0) return { records: [] }

  // A kafkajs consumer always has a group; this one commits nothing.
  const consumer = kafka.consumer({ groupId: `${r.topic}-${r.do}-${process.pid}-${Math.random()}`, maxWaitTimeInMs: 200 })
  await consumer.connect()
  await consumer.subscribe({ topic: r.topic, fromBeginning: true })
  const got = []
  try {
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
      let fetches = 0
      consumer.on(consumer.events.FETCH, () => {
        // One may have been under way before it was told where to read.
        if (beyond && ++fetches === 3) reject(new Error('it reads on, from elsewhere'))
      })
      consumer.run({
        autoCommit: false,
        eachMessage: async ({ partition, message }) => {
          const offset = Number(message.offset)
          if (!waiting.has(partition) || offset < start.get(partition)) return
          got.push({
            partition,
            offset,
            timestamp: Number(message.timestamp),
            key: pack(message.key),
            value: pack(message.value),
            headers: Object.entries(message.headers ?? {}).flatMap(([key, v]) =>
              (Array.isArray(v) ? v : [v]).map((value) => ({ key, value: pack(value) }))),
          })
          if (offset + 1 >= waiting.get(partition)) waiting.delete(partition)
          if (waiting.size === 0) resolve()
        },
      }).catch(reject)
      if (r.do !== 'consume') {
        for (const partition of waiting.keys()) consumer.seek({ topic: r.topic, partition, offset: String(start.get(partition)) })
      }
    })
  } finally {
    await consumer.disconnect()
  }
  return { records: got }
}
