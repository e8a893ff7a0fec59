// kafkajs as a client for tests: see ../driver.mjs. It knows no static members
// and no cooperative rebalancing.
import { readFileSync } from 'node:fs'
import kafkajs from 'kafkajs'
import { serve } from '../driver.mjs'
import { registerCodecs } from './codecs.mjs'
import { member } from './member.mjs'
import { consume, produce } from './records.mjs'

const { ConfigResourceTypes, Kafka, logLevel } = kafkajs

const client = (r) => new Kafka({
  clientId: 'kafkajs-driver',
  brokers: [r.bootstrap],
  logLevel: logLevel[process.env.KAFKAJS_LOG ?? 'INFO'],
  logCreator: () => ({ namespace, label, log }) => console.error(label, namespace, JSON.stringify(log)),
  retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 20 },
})

const admin = (f) => async (r) => {
  const a = client(r).admin()
  await a.connect()
  try {
    return await f(a, r)
  } finally {
    await a.disconnect()
  }
}

async function create(a, r) {
  const made = await a.createTopics({
    topics: [{
      topic: r.topic,
      numPartitions: r.partitions,
      replicationFactor: r.replication ?? 1,
      configEntries: Object.entries(r.configs ?? {}).map(([name, value]) => ({ name, value })),
    }],
  })
  // It says false for this one error, and throws for any other.
  if (!made) throw Object.assign(new Error('exists already'), { code: 36 })
}

async function describe(a, r) {
  const { topics } = await a.fetchTopicMetadata({ topics: [r.topic] })
  return { partitions: topics[0].partitions.length }
}

async function configs(a, r) {
  const { resources } = await a.describeConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: r.topic }] })
  return { configs: Object.fromEntries(resources[0].configEntries.map((c) => [c.configName, c.configValue])) }
}

async function alter(a, r) {
  const configEntries = Object.entries(r.configs).map(([name, value]) => ({ name, value }))
  await a.alterConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: r.topic, configEntries }] })
}

async function committed(a, r) {
  const topics = await a.fetchOffsets({ groupId: r.group, topics: [r.topic] })
  return { offsets: Object.fromEntries(topics.flatMap((t) => t.partitions.map((p) => [p.partition, Number(p.offset)]))) }
}

const { version } = JSON.parse(readFileSync(new URL('node_modules/kafkajs/package.json', import.meta.url)))

// codeOf looks for a code in the errors that an error is made of.
function codeOf(err) {
  if (typeof err.code === 'number') return err.code
  for (const part of [...(err.errors ?? []), ...(err.groups ?? []), ...(err.partitions ?? []), err.error, err.cause].filter(Boolean)) {
    const code = codeOf(part)
    if (code !== -1) return code
  }
  return -1
}

await registerCodecs()
serve(
  {
    version: () => ({ version }),
    create: admin(create),
    describe: admin(describe),
    list: admin(async (a) => ({ names: await a.listTopics() })),
    configs: admin(configs),
    alter: admin(alter),
    grow: admin(async (a, r) => {
      await a.createPartitions({ topicPartitions: [{ topic: r.topic, count: r.partitions }] })
    }),
    trim: admin(async (a, r) => {
      await a.fetchTopicOffsets(r.topic) // it does not look for a topic that it has not met
      await a.deleteTopicRecords({ topic: r.topic, partitions: [{ partition: 0, offset: String(r.offset) }] })
    }),
    delete: admin(async (a, r) => {
      await a.deleteTopics({ topics: [r.topic] })
    }),
    produce: (r) => produce(client(r), r),
    consume: (r) => consume(client(r), r),
    seek: (r) => consume(client(r), r),
    beyond: (r) => consume(client(r), r),
    groups: admin(async (a) => ({ names: (await a.listGroups()).groups.map((g) => g.groupId) })),
    members: admin(async (a, r) => ({ members: (await a.describeGroups([r.group])).groups[0].members.length })),
    committed: admin(committed),
    forget: admin(async (a, r) => {
      await a.deleteGroups([r.group])
    }),
  },
  codeOf,
  (r, told) => member(client(r), r, told),
)
