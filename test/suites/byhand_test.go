package suites

import "slices"

// byHand is the suites that no package registry serves: they are in a repository
// only. Somebody runs them against a node as how says, and writes down what they
// came to in the same form; the version is the commit. There is no slash in the
// name of a file of tests; its tests are parts of it where they are many.
func byHand() []about {
	return []about{
		{
			name: "kafka-python", title: "kafka-python, by hand", version: "commit a3b3836ff3a4 of 2026-08-17",
			how: "Its integration tests with an external broker (`KAFKA_URI`), told that it is one of version 4.2, with the node's settings " +
				"`groups.min_session_ms=1000` and `groups.rebalance_delay_ms=0`, as in its own broker's configuration. The tests of SASL and TLS start a " +
				"broker of their own, and were left out.",
		},
		{
			name: "kafkajs", title: "kafkajs, by hand", version: "commit 55b0b416308b of 2024-05-16",
			how: "Its tests of admin, broker, cluster, consumer, network and producer, by file, for Kafka 2.4; those of the protocol's encoding need no " +
				"server. They want three brokers at fixed ports of localhost: one node was behind all three, with the settings `kafka.default_partitions=2`, " +
				"`kafka.replication=lenient` and `groups.rebalance_delay_ms=0`, as in their own brokers' configuration. Their script that adds partitions used `lattice topic`.",
		},
	}
}

// onPage is what docs/protocol/suites.md shows, in its order.
func onPage() []about {
	return slices.DeleteFunc(everything(), func(a about) bool { return a.elsewhere })
}

// everything is every suite that has results.
func everything() []about {
	var out []about
	for _, s := range roster() {
		out = append(out, s.about())
	}
	return append(out, byHand()...)
}
