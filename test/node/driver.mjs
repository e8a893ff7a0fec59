// What the drivers of Node's clients share: requests from stdin, one JSON object
// a line, and an answer to each. ../field/driver_test.go says what is asked and
// answered.
import { createInterface } from 'node:readline'

export const unpack = (text) => (text == null ? null : Buffer.from(text, 'base64'))
export const pack = (bytes) => (bytes == null ? null : Buffer.from(bytes).toString('base64'))
export const tell = (object) => process.stdout.write(JSON.stringify(object) + '\n')

// serve answers requests. actions maps what is asked to functions of a request;
// codeOf tells the code of an error in Kafka's protocol, or -1; member is given
// a promise that ends with stdin.
export async function serve(actions, codeOf, member) {
  const lines = createInterface({ input: process.stdin })
  let over
  const told = new Promise((resolve) => (over = resolve))
  lines.on('close', over)
  for await (const line of lines) {
    const request = JSON.parse(line)
    if (request.do === 'member') {
      member(request, told).then(
        () => {
          tell({ event: 'left' })
          process.exit(0)
        },
        (err) => {
          console.error(err)
          process.exit(1)
        },
      )
      continue // to see the end of stdin
    }
    const action = actions[request.do]
    if (!action) {
      tell({ unsupported: true })
      continue
    }
    try {
      tell((await action(request)) ?? {})
    } catch (err) {
      tell({ error: { code: codeOf(err), text: `${err.name}: ${err.message}` } })
    }
  }
}
