package suites

import (
	"testing"
	"time"
)

// kafkaGo is segmentio's suite. About half of its tests need a broker.
func kafkaGo() suite {
	return &goSuite{
		info: about{
			name: "kafka-go", title: "segmentio kafka-go", version: "v0.4.51", limit: 2 * time.Minute, alone: true,
			how: "All tests of its root package, about half of which need no server. They want one broker with the id 1 at localhost:9092, " +
				"which the node's configuration makes it.",
			node: []string{"--kafka", "localhost:9092", "--set", "kafka.advertise=localhost:9092", "--set", "kafka.node_id=1"},
			// Upstream's broker looks for what to compact every 15 s, and the test waits two minutes.
			nodeFor: map[string][]string{"TestReaderReadCompactedMessage": {"--set", "log.retention_check_ms=1s"}},
		},
		module: "github.com/segmentio/kafka-go",
		sum:    "h1:JgDPPG75tC1rWIS2Me6MwcvXJ6f49UQ4HjAOef71Hno=",
		pkg:    "./",
		besides: func(t *testing.T, at place) []string {
			if at.test == "TestReadPartitionsNoTopic" { // it lists all partitions: those that other tests left behind
				makeTopic(t, at, "left")
			}
			// The nettest cases are about net.Conn; upstream leaves them out as well.
			return []string{"KAFKA_VERSION=4.0.0", "KAFKA_SKIP_NETTEST=1"}
		},
	}
}
