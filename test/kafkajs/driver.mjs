// A Kafka client for tests: it does one thing that its argument says, with
// kafkajs, against any Kafka server, and prints what happened as JSON, one
// object a line. test/clients drives it.
//
//   node driver.mjs '{"do":"produce","bootstrap":"127.0.0.1:9092","topic":"t","codec":"zstd","input":"records.jsonl"}'
//
// What it can do, and which fields of the request each uses, is told by the
// driver for franz-go (../franz-go/main.go), which takes and prints the same.
// kafkajs knows no static members and no cooperative rebalancing.
import { Kafka, logLevel } from 'kafkajs'
import { registerCodecs } from './codecs.mjs'
import { create, produce, consume } from './records.mjs'
import { member } from './member.mjs'

const actions = { create, produce, consume, seek: consume, member }

async function run(argument) {
  const request = JSON.parse(argument)
  const action = actions[request.do]
  if (!action) throw new Error(`knows no "${request.do}"`)
  await registerCodecs()
  const kafka = new Kafka({
    clientId: 'kafkajs-driver',
    brokers: [request.bootstrap],
    logLevel: logLevel[process.env.KAFKAJS_LOG ?? 'INFO'],
    logCreator: () => ({ namespace, label, log }) => console.error(label, namespace, JSON.stringify(log)),
    retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 100 },
  })
  await action(kafka, request, (object) => process.stdout.write(JSON.stringify(object) + '\n'))
}

// Nothing that a test asks for takes this long.
setTimeout(() => fail(new Error('not done after two minutes')), 120_000).unref()

function fail(err) {
  console.error('kafkajs:', err)
  process.exit(1)
}

run(process.argv[2]).then(() => process.stdout.end(), fail)
