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
			how:  "All tests of its root package, about half of which need no server. They want one broker at localhost:9092, where the node is.",
			node: []string{"--kafka", "localhost:9092", "--set", "kafka.advertise=localhost:9092"},
		},
		module: "github.com/segmentio/kafka-go",
		sum:    "h1:JgDPPG75tC1rWIS2Me6MwcvXJ6f49UQ4HjAOef71Hno=",
		pkg:    "./",
		besides: func(*testing.T, place) []string {
			// The nettest cases are about net.Conn; upstream leaves them out as well.
			return []string{"KAFKA_VERSION=4.0.0", "KAFKA_SKIP_NETTEST=1"}
		},
	}
}
