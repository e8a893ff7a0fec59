import kafkajs from 'kafkajs'
import { tell } from '../driver.mjs'

const { PartitionAssigners } = kafkajs

// member consumes as one member of a group until it is told to leave; then it
// commits what it read.
//
// It tells of all of its partitions when it is assigned some, and when a
// rebalance takes them.
export async function member(kafka, { topic, group }, told) {
  const consumer = kafka.consumer({
    groupId: group,
    partitionAssigners: [PartitionAssigners.roundRobin],
    heartbeatInterval: 200,
    maxWaitTimeInMs: 100,
  })
  let owned = []
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    if (owned.length > 0) tell({ event: 'revoked', partitions: owned })
    owned = payload.memberAssignment[topic] ?? []
    tell({ event: 'assigned', partitions: owned })
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
      tell({ event: 'read', partition, offset: Number(message.offset) })
    },
  })
  await Promise.race([told, crashed])
  await consumer.disconnect()
}
