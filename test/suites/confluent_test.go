package suites

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// confluent is the integration suite of Confluent's client for Go, which brings
// librdkafka with it.
func confluent() suite {
	return &goSuite{
		info: about{
			name: "confluent", title: "confluent-kafka-go", version: "v2.11.1", limit: 3 * time.Minute,
			how: "The methods of its TestIntegration, against a node that has the topic test.",
		},
		module:  "github.com/confluentinc/confluent-kafka-go/v2",
		sum:     "h1:qGCQznyp2BxyBNyOE+M7O1YS2tI1/Y60O0jQP452zA4=",
		pkg:     "./kafka",
		methods: "TestIntegration",
		extra: func(t *testing.T, dir string) {
			// It takes the address from the environment when told so.
			if err := os.WriteFile(filepath.Join(dir, "source", "kafka", "testconf.json"), []byte(`{"Brokers": "$SUITE_BROKERS"}`), 0o644); err != nil {
				t.Fatal(err)
			}
		},
		besides: func(t *testing.T, at place) []string {
			makeTopic(t, at, "test")
			return []string{"SUITE_BROKERS=" + at.node.Kafka}
		},
	}
}
