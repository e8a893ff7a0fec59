// A Redis client for tests: it uses a server through ioredis as programs do, checks
// what comes back, and says for each case whether it is as it should be.
//
//   node main.mjs HOST:PORT CASE...
//
// What it prints and reads is told by the one for go-redis (../go-redis/main.go).
// test/redis drives it.
import { createInterface } from 'node:readline'
import { Redis } from 'ioredis'
import { cases } from './cases.mjs'

const limit = 60_000

// World is what a case works with.
class World {
  constructor(host, port) {
    this.host = host
    this.port = Number(port)
    this.clients = []
    this.redis = this.open()
    this.lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  }

  // open returns a client of its own.
  open(options = {}) {
    const client = new Redis({ host: this.host, port: this.port, retryStrategy: () => 50, ...options })
    client.on('error', () => {}) // what matters fails the command
    this.clients.push(client)
    return client
  }

  // until waits for a condition.
  async until(what, holds) {
    for (const end = Date.now() + limit; !(await holds().catch(() => false)); ) {
      if (Date.now() > end) throw new Error(`still not: ${what}`)
      await new Promise((resolve) => setTimeout(resolve, 2))
    }
  }

  // blocked waits until the server holds so many clients.
  blocked(n) {
    return this.until('clients are blocked', async () =>
      (await this.redis.info('clients')).includes(`blocked_clients:${n}\r\n`))
  }

  // kill asks for a kill of the server, and returns when it is back.
  async kill() {
    tell({ event: 'kill' })
    if ((await this.lines.next()).done) throw new Error('nobody says that the server is back')
  }
}

function tell(object) {
  process.stdout.write(JSON.stringify(object) + '\n')
}

const [address, ...names] = process.argv.slice(2)
const world = new World(...address.split(':'))
for (const name of names) {
  const report = { case: name }
  try {
    if (!cases[name]) throw new Error('there is no such case')
    await world.redis.flushall()
    await cases[name](world)
  } catch (err) {
    report.error = err.stack
  }
  tell(report)
}
for (const client of world.clients) client.disconnect()
process.stdin.destroy()
