package redis

//go:generate go test -run TestCoverageIsCurrent -rewrite .

import (
	"fmt"
	"strings"
)

// Coverage returns docs/protocol/redis.md: what is served, from the table that
// serves it. differences are the replies that differ from Redis's, as the comparison
// with a real one knows them; suite is the section on Redis's own tests.
func Coverage(differences []string, suite string) string {
	var b strings.Builder
	t := newTable()
	n := 0
	for _, c := range t.rows {
		n += max(1, len(c.sub))
	}
	fmt.Fprintf(&b, `# The Redis protocol: what is served

Made from the table in front/redis by `+"`go generate ./front/redis`"+`; a test fails when it is stale. %d commands and subcommands
of Redis %s. What is not in the table is answered as Redis answers an unknown command.

RESP2 and RESP3 (HELLO 2, HELLO 3), pipelines, inline commands. SELECT 0 to 15 choose the store's maps of those names.

With every change, go-redis, ioredis, redis-py, redis-cli and redis-benchmark run against a node (test/redis), 50 clients write while
it is killed (test/crash), and replies are compared with a real Redis (front/redis). Redis's own tests are counted at the end of this page.
`, n, Version)
	group := ""
	for _, f := range families() {
		if f.group != group {
			group = f.group
			fmt.Fprintf(&b, "\n## %s\n\n| command | what it does | since | notes |\n|---|---|---|---|\n", group)
		}
		for _, c := range f.rows {
			if len(c.sub) == 0 {
				coverageRow(&b, strings.ToUpper(c.name), c)
			}
			for _, s := range c.sub {
				coverageRow(&b, strings.ToUpper(c.name+" "+s.name), s)
			}
		}
	}
	b.WriteString(`
## In general

- **Durability.** A reply follows the store's level, as Redis's appendfsync has it: ` + "`fsync` (always), `interval` (everysec), `os` (no)" + `. A
  pipeline waits once, then its replies leave in order. No reply shows what is not yet durable at that level. If a write cannot be made durable,
  it has not happened, and the replies that depended on it are the error.
- **Transactions.** MULTI/EXEC is one atomic entry. WATCH, NX and XX, and pops are exclusive on one node; between nodes that have not
  met they merge, so both may succeed.
- **Blocking.** First come, first served, inside the transaction that brought the element. What the API, ` + "`lattice kv`" + ` or another node
  brings is given to who waits right after, in a transaction of its own.
- **Pub/sub** reaches the clients of this node. **Keyspace events** (` + "`notify-keyspace-events`, classes `Ag$lshzxetdKE`" + `) are sent when the write is durable. Writes
  of the API, ` + "`lattice kv`" + ` and other nodes have the events of Redis's commands of the same effect; which command it was is not known: an element
  that was put into a list is ` + "`rpush`" + `, one that was taken out ` + "`lrem`" + `. Of those, 16,384 wait; what is beyond is lost, and counted
  (` + "`lattice_redis_events_lost_total`" + `). They change WATCHed keys as any write does.
- **Expiry** counts by the node's wall clock. A key that has expired is not seen; it is removed later.
- **Conflicts.** Where nodes that had not met wrote one key, a plain read returns the winner by the total order of writes; LATTICE.HEADS shows all.

## What is answered differently from Redis

Replies are compared with a real Redis, command by command (front/redis/compare_test.go). What may differ:

`)
	for _, d := range differences {
		fmt.Fprintf(&b, "- %s.\n", d)
	}
	b.WriteString(`- Orders that Redis leaves open (SMEMBERS, HGETALL, KEYS, SCAN and so on) are the orders of bytes here.
- Containers' HELP lists what is served here.

`)
	coverageLimits(&b)
	b.WriteString("\n" + suite)
	return b.String()
}

// coverageLimits writes what clients can make the server spend.
func coverageLimits(b *strings.Builder) {
	b.WriteString(`## Limits

| limit | setting | default | beyond it |
|---|---|---|---|
`)
	d := Config{}.withDefaults()
	for _, row := range []struct {
		what, name string
		value      any
		beyond     string
	}{
		{"connections", "MaxClients", d.MaxClients, "an error, and the connection closes"},
		{"connections of one address", "MaxClientsPerAddress", "the same", "an error, and the connection closes"},
		{"one argument", "MaxBulkBytes", mib(d.MaxBulkBytes), "protocol error, and the connection closes"},
		{"arguments of one command", "MaxArgs", d.MaxArgs, "protocol error, and the connection closes"},
		{"what one transaction writes", "(format)", "14 MiB", "an error; nothing of it happened"},
		{"commands sent and not executed; queued, watched and subscribed", "MaxQueryBytes", mib(d.MaxQueryBytes), "the connection closes; an error"},
		{"one reply", "MaxReplyBytes", mib(d.MaxReplyBytes), "the connection closes"},
		{"messages that wait for one connection", "MaxPushBytes", mib(d.MaxPushBytes), "the connection closes"},
		{"all of these, over all connections", "MaxBufferedBytes", mib(int(d.MaxBufferedBytes)), "the connection that needs more closes"},
		{"nothing asked", "IdleTimeout", "never", "the connection closes (CONFIG SET timeout)"},
		{"a reply not taken, or a large command not finished", "StallTimeout", d.StallTimeout, "the connection closes"},
	} {
		fmt.Fprintf(b, "| %s | %s | %v | %s |\n", row.what, row.name, row.value, row.beyond)
	}
}

func coverageRow(b *strings.Builder, name string, c command) {
	fmt.Fprintf(b, "| %s | %s | %s | %s |\n", name, c.about, c.since, c.note)
}

func mib(n int) string { return fmt.Sprintf("%d MiB", n>>20) }
