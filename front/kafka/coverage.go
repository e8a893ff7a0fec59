package kafka

//go:generate go test -run TestCoverageIsCurrent -rewrite .

import (
	"fmt"
	"strings"

	"github.com/lattice-log/lattice/engine/share"
)

// Coverage returns docs/protocol/kafka.md: what is served, from the table that
// serves it.
func Coverage() string {
	var b strings.Builder
	b.WriteString(`# The Kafka protocol: what is served

Made from the table in front/kafka by ` + "`go generate ./front/kafka`" + `; a test fails when it is stale. What is not in
it is neither served nor advertised: a request for another API or version closes the connection, as in Kafka.

| key | API | versions | notes |
|---|---|---|---|
`)
	for _, a := range newAPITable() {
		if a == nil {
			continue
		}
		versions := fmt.Sprintf("%d-%d", a.min, a.max)
		if a.min == a.max {
			versions = fmt.Sprint(a.min)
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s |\n", a.key, a.name, versions, a.note)
	}
	b.WriteString(`
## In general

- The finalized features ` + "`group.version=1` and `share.version=1`" + ` turn on consumer groups of KIP-848 and share groups of KIP-932 in clients. There is no ` + "`transaction.version`" + `:
  transactions work as before KIP-890's second part.
- To its clients a node is controller, and coordinator of every group and transaction. The cluster id is the store's id, topic ids
  are topic incarnations, leader epochs are terms.
- A partition can be given to another leader. Until that has all records, produce is answered NOT_LEADER_OR_FOLLOWER or LEADER_NOT_AVAILABLE at every node, which clients
  retry, and an idempotent producer's batch that the old leader took is known to the new one. The new leader's records have a higher leader epoch.
- Partitions of topics that another member of the store created are led there, unless they were given to another. Clients need not know: metadata name this node as the
  leader, it has the leader do what they write, and its answer (offset, time, start, error) is theirs as it is. No offset is made up. What the leader
  refuses it refuses by its own rules, as if the client were its own; writers of the store alone get in that way. Of two topics
  created with one name apart, the later is NAME.dup-ID.
- The leader out of reach, or slower than what is sent to it: LEADER_NOT_AVAILABLE, and nothing was sent. No answer within the request's timeout
  (at most 2 minutes; none given: 30 s), or a connection that broke meanwhile: REQUEST_TIMED_OUT, and the batch may be there. Clients retry both;
  a producer with idempotence, as most are unless told otherwise, leaves each record once and in order, also if it goes on at another node. With
  acks=0 the connection closes, as with any error. One batch of more than 32 MiB does not fit through: MESSAGE_TOO_LARGE.
- What is read of such a partition comes from the replica here. Its end is the high watermark, and leader epochs are the leader's terms. A fetch above
  the end waits and is answered empty, neither OFFSET_OUT_OF_RANGE nor with a diverging epoch, since the leader may have what is not here yet; for the same
  reason OffsetForLeaderEpoch tells the end that this node has heard of, by the leader's answers and by offsets that groups committed, where that is
  further. So a client does not read its own write at once, but its fetch waits for it, and nobody is sent back who read on elsewhere.
- Where a partition is led elsewhere, a transaction cannot have it: POLICY_VIOLATION from AddPartitionsToTxn, which ends the transaction and not the
  producer. Transactions of topics are to be run at the node that created them.
- CreatePartitions, topic configs and the deletion of topics are state, and take effect at any node; a new partition takes records as soon as its leader has heard
  of it (UNKNOWN_TOPIC_OR_PARTITION until then, which clients retry). DeleteRecords is forwarded.
- Record batches of magic 2 are stored and served as the producer compressed them (none, gzip, snappy, lz4, zstd), unless the
  topic's compression.type names another codec. A produced batch's offset and leader epoch are the node's to set.
- The internal topic ` + "`__consumer_offsets`" + ` is described once a client has looked for a group's coordinator, or a group has something
  committed, as in Kafka. It has one partition, whose log is empty for ever: committed offsets are in the node's catalogue, to
  be read with OffsetFetch. So a consumer of it waits, and tools that follow it see nothing. Writing to it, deleting its records,
  deleting or changing it is INVALID_TOPIC_EXCEPTION (Kafka lets administrators do the last two). Clients with a pattern leave
  it out or not by their own rules; patterns that the node resolves (KIP-848) match it, as in Kafka. ` + "`lattice topic list`" + ` leaves it out.
- Topic configs are taken where they are kept. Bounds on what a node alone never does, or does at once, are kept whatever they are
  (file.delete.delay.ms, segment.jitter.ms, unclean.leader.election.enable, replication throttles); what it cannot keep is
  refused by name with INVALID_CONFIG (preallocate, min.insync.replicas above the number of lattice.replicas, names that Kafka 4 has dropped).
- A topic whose lattice.replicas names several members has a high watermark of its own: what min.insync.replicas of them acknowledged, on the
  leader and on every other node. acks=all answers then, and once the others that are in sync have it, too, for which it waits a second at most.
  NOT_ENOUGH_REPLICAS says that too few are in sync and nothing was appended, NOT_ENOUGH_REPLICAS_AFTER_APPEND that too few acknowledged within
  the request's timeout, which travels to the leader; an idempotent producer's retry waits for its batch and does not repeat it. Metadata name
  the members by ids of nodes that are not among the brokers: this node stands for the leader. acks=1 is durable at the leader.
- Answers on one connection come in the order of its requests. Long polls and joins hold up the answers behind them, not the work.
- An error of the disk, and damage of stored records, is KAFKA_STORAGE_ERROR. Damaged bytes are never the end of a whole answer:
  when they are met after the answer has begun, the connection closes, and the next fetch says so with an error.

## Groups on several nodes

- A group has a home: the node where it was first used, which ` + "`lattice group list`" + ` shows. It coordinates all members, wherever they connect: other nodes
  send it what their clients ask (JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ConsumerGroupHeartbeat, OffsetCommit, OffsetFetch, OffsetDelete, DescribeGroups,
  ConsumerGroupDescribe, ListGroups, DeleteGroups), and its answer is the client's. FindCoordinator names the node that is asked. A commit is answered when it is durable at the home.
- The home out of reach, or without an answer: COORDINATOR_NOT_AVAILABLE, from FindCoordinator, too, which clients retry; ListGroups has its groups in
  state Unknown. With ` + "`groups.availability: local`" + ` a node coordinates such a group for its own clients meanwhile: at least once, since members there and here get the same
  records. When the home is back its members join there.
- Nodes that begin to use a group while they do not reach each other come to one home when they meet, the earlier one. Members of the other are told UNKNOWN_MEMBER_ID, and join again.
- ` + "`lattice group move`" + ` gives a group another home. Members that wait are told NOT_COORDINATOR, others UNKNOWN_MEMBER_ID by the new home; they join there, and go on where the group has committed:
  the new home has every commit that the old one acknowledged. With ` + "`--force`" + ` a group is taken from a home that is out of reach; that one goes on with its own clients until it is back.
- Committed offsets are the same on all nodes. Of what nodes took apart the greater reset number stands (a commit that goes back raises it), of
  concurrent ones the lower target, then the greater offset: who was away neither rewinds nor skips. An offset above the end of a term that is over is answered as that end.
- A transaction commits offsets of groups that are at home on the node of its coordinator, where the producer is connected. Of others
  AddOffsetsToTxn and TxnOffsetCommit say POLICY_VIOLATION: connect there, or move the group. While a transaction holds offsets of a group, that does not move.
- Share groups have no home. Each node has its own, of any name, over the partitions that it leads, and their APIs are not sent on.

## Share groups

- An acknowledgement is answered when it is durable, and so is where a group begins in a partition before it gets a record.
  After a crash what was acquired is available again; its delivery count is that of the last state that was written, or counts the
  delivery that the crash cut short.
- Members, sessions and locks do not survive a restart: UNKNOWN_MEMBER_ID and SHARE_SESSION_NOT_FOUND make clients join and fetch anew.
- A session ends with its connection, and what its member has is available at once. A member that leaves, or is removed, keeps
  its session: clients leave before they acknowledge for the last time.
- Markers of transactions, and with read_committed aborted records, are passed over by the node; clients report offsets that a
  compaction took (acknowledge type 0).
- An answer leaves other partitions to other members once it has a tenth of the records that it may have (Kafka fills it).
  MaxRecords counts whole batches, unless the client asks for a strict limit (KIP-1206).
- A group may be set to what is listed here, under resource type GROUP. A lock may be as short as a second (Kafka's brokers say 15,
  unless configured). There are no dead-letter topics (KIP-1191).

| config of a group | default | |
|---|---|---|
`)
	for _, s := range share.SettingsTable() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", s.Name, s.Default, s.Doc)
	}
	b.WriteString(`
## Limits

| limit | setting | default | beyond it |
|---|---|---|---|
`)
	d := Config{}.withDefaults()
	for _, row := range []struct {
		what, name string
		value      any
		beyond     string
	}{
		{"one request", "MaxRequestBytes", mib(int64(d.MaxRequestBytes)), "the connection closes"},
		{"one request other than Produce", "MaxControlBytes", mib(int64(d.MaxControlBytes)), "the connection closes"},
		{"partitions in one Produce or Fetch", "(fixed)", maxRequestParts, "the connection closes"},
		{"records in one Fetch answer", "MaxFetchBytes", mib(int64(d.MaxFetchBytes)), "the answer ends; one batch comes whatever its size"},
		{"requests held at once, all connections", "MaxBufferedBytes", mib(d.MaxBufferedBytes), "reading waits, then the connection closes"},
		{"requests in work, one connection", "MaxInFlight", d.MaxInFlight, "reading waits"},
		{"bytes of those and their answers", "MaxInFlightBytes", mib(d.MaxInFlightBytes), "reading waits"},
		{"connections", "MaxConnections", d.MaxConnections, "a new one closes"},
		{"connections of one address", "MaxConnectionsPerAddress", d.MaxConnectionsPerAddress, "a new one closes"},
		{"nothing asked and nothing pending", "IdleTimeout", d.IdleTimeout, "the connection closes"},
		{"no progress within a request", "ReadTimeout", d.ReadTimeout, "the connection closes"},
		{"no progress in taking an answer", "WriteTimeout", d.WriteTimeout, "the connection closes"},
		{"members of a share group", "(fixed)", share.DefaultConfig().MaxSize, "GROUP_MAX_SIZE_REACHED"},
		{"share sessions", "(fixed)", share.DefaultConfig().MaxSessions, "SHARE_SESSION_LIMIT_REACHED"},
		{"undecided records of a share-partition", "share.partition.max.record.locks", share.DefaultConfig().Defaults.MaxLocks, "no more are given out"},
		{"one record batch", "max.message.bytes of the topic", "1 MiB", "MESSAGE_TOO_LARGE"},
		{"one record batch for another node's partition", "(fixed)", "32 MiB", "MESSAGE_TOO_LARGE"},
	} {
		fmt.Fprintf(&b, "| %s | %s | %v | %s |\n", row.what, row.name, row.value, row.beyond)
	}
	return b.String()
}

func mib(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
