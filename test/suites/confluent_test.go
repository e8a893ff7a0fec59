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
	return confluentWith("classic", about{
		name: "confluent", title: "confluent-kafka-go",
		how: "The methods of its TestIntegration, against a node that has the topic test.",
	})
}

// confluent848 is the same with consumers of KIP-848.
func confluent848() suite {
	return confluentWith("consumer", about{
		name: "confluent-848", title: "confluent-kafka-go, KIP-848", program: "confluent",
		how: "The same, with `TEST_CONSUMER_GROUP_PROTOCOL=consumer`.",
	})
}

func confluentWith(protocol string, a about) suite {
	a.version, a.limit = "v2.11.1", 3*time.Minute
	return &goSuite{
		info:    a,
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
			return []string{"SUITE_BROKERS=" + at.node.Kafka, "TEST_CONSUMER_GROUP_PROTOCOL=" + protocol}
		},
	}
}
