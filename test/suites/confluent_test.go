package suites

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
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
			cl, err := kgo.NewClient(kgo.SeedBrokers(at.node.Kafka))
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 4, 1, nil, "test"); err != nil {
				t.Fatalf("create topic test: %v", err)
			}
			return []string{"SUITE_BROKERS=" + at.node.Kafka}
		},
	}
}
