package kafka

//go:generate go test -run TestCoverageIsCurrent -rewrite .

import (
	"fmt"
	"strings"
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

- The finalized feature ` + "`group.version=1`" + ` turns on consumer groups of KIP-848 in clients. There is no ` + "`transaction.version`" + `:
  transactions work as before KIP-890's second part.
- One node: it is controller, coordinator of every group and transaction, and leader of every partition. The cluster id is the store's id, topic ids
  are topic incarnations, leader epochs are terms.
- Record batches of magic 2 are stored and served as the producer compressed them (none, gzip, snappy, lz4, zstd), unless the
  topic's compression.type names another codec. A produced batch's offset and leader epoch are the node's to set.
- The internal topic ` + "`__consumer_offsets`" + ` is described once a client has looked for a group's coordinator, or a group has something
  committed, as in Kafka. It has one partition, whose log is empty for ever: committed offsets are in the node's catalogue, to
  be read with OffsetFetch. So a consumer of it waits, and tools that follow it see nothing. Writing to it, deleting its records,
  deleting or changing it is INVALID_TOPIC_EXCEPTION (Kafka lets administrators do the last two). Clients with a pattern leave
  it out or not by their own rules; patterns that the node resolves (KIP-848) match it, as in Kafka. ` + "`lattice topic list`" + ` leaves it out.
- Topic configs are taken where they are kept. Bounds on what a node alone never does, or does at once, are kept whatever they are
  (file.delete.delay.ms, segment.jitter.ms, unclean.leader.election.enable, replication throttles); what it cannot keep is
  refused by name with INVALID_CONFIG (min.insync.replicas above 1, preallocate, names that Kafka 4 has dropped).
- Answers on one connection come in the order of its requests. Long polls and joins hold up the answers behind them, not the work.
- An error of the disk, and damage of stored records, is KAFKA_STORAGE_ERROR. Damaged bytes are never the end of a whole answer:
  when they are met after the answer has begun, the connection closes, and the next fetch says so with an error.

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
		{"one record batch", "max.message.bytes of the topic", "1 MiB", "MESSAGE_TOO_LARGE"},
	} {
		fmt.Fprintf(&b, "| %s | %s | %v | %s |\n", row.what, row.name, row.value, row.beyond)
	}
	return b.String()
}

func mib(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
