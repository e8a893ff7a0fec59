import kafkajs from 'kafkajs'

const { PartitionAssigners } = kafkajs

// member consumes as one member of a group until stdin ends; then it commits
// what it read and leaves.
//
// It prints "assigned" with all of its partitions, "revoked" when a rebalance
// takes them, "read" for each record and, last, "left".
export async function member(kafka, { topic, group }, print) {
  const consumer = kafka.consumer({
    groupId: group,
    partitionAssigners: [PartitionAssigners.roundRobin],
    heartbeatInterval: 200,
    maxWaitTimeInMs: 100,
  })
  let owned = []
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    if (owned.length > 0) print({ event: 'revoked', partitions: owned })
    owned = payload.memberAssignment[topic] ?? []
    print({ event: 'assigned', partitions: owned })
  })
  const crashed = new Promise((_, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      if (!payload.restart) reject(payload.error)
    })
  })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    autoCommitInterval: 200,
    eachMessage: async ({ partition, message }) => {
      print({ event: 'read', partition, offset: Number(message.offset) })
    },
  })
  const told = new Promise((resolve) => {
    process.stdin.resume()
    process.stdin.on('end', resolve)
  })
  await Promise.race([told, crashed])
  await consumer.disconnect()
  print({ event: 'left' })
}
