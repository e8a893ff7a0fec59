package field

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
)

func (k kit) apiVersions() {
	k.shows("Produce(0): 0 to 13 [usable: 13]", nil, "BrokerApiVersionsCommand")
}

func (k kit) features() {
	const tool = "FeatureCommand"
	k.shows("Feature: group.version", nil, tool, "describe")
	k.refuses("Could not upgrade group.version to 9.", tool, "upgrade", "--feature", "group.version=9")
	k.refuses("Could not downgrade group.version to 0.", tool, "downgrade", "--feature", "group.version=0")
}

// node returns the node's id and its cluster's, as the observer sees them.
func (k kit) node() (id int32, cluster string) {
	k.Helper()
	m, err := kadm.NewClient(observer(k.T, k.at)).BrokerMetadata(k.Context())
	if err != nil || len(m.Brokers) != 1 {
		k.Fatalf("%d brokers, %v", len(m.Brokers), err)
	}
	return m.Brokers[0].NodeID, m.Cluster
}

func (k kit) cluster() {
	id, cluster := k.node()
	k.shows("Cluster ID: "+cluster+" ", nil, "ClusterTool", "cluster-id")
	host, port, _ := strings.Cut(k.at, ":")
	k.shows(fmt.Sprintf("%d %s %s null unfenced broker ", id, host, port), nil, "ClusterTool", "list-endpoints")
}

func (k kit) logDirs() {
	k.shows(`"partition":"console-0"`, nil, "LogDirsCommand", "--describe", "--topic-list", "console")
}

func (k kit) election() {
	const tool = "LeaderElectionCommand"
	k.shows("Valid replica already elected for partitions console-0 ", nil, tool, "--election-type", "preferred", "--topic", "console", "--partition", "0")
	k.run(nil, tool, "--election-type", "preferred", "--all-topic-partitions")
}

// file writes a file of the test and returns its path.
func (k kit) file(name, text string) string {
	k.Helper()
	path := filepath.Join(k.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		k.Fatal(err)
	}
	return path
}

func (k kit) reassign() {
	const tool = "ReassignPartitionsCommand"
	id, _ := k.node()
	move := func(to int32) string {
		return k.file(fmt.Sprint(to), fmt.Sprintf(`{"version":1,"partitions":[{"topic":"console","partition":0,"replicas":[%d]}]}`, to))
	}
	k.shows("No partition reassignments found.", nil, tool, "--list")
	topics := k.file("topics", `{"version":1,"topics":[{"topic":"console"}]}`)
	k.shows(fmt.Sprintf(`Proposed partition reassignment configuration {"version":1,"partitions":[{"topic":"console","partition":0,"replicas":[%d],`, id), nil,
		tool, "--generate", "--topics-to-move-json-file", topics, "--broker-list", fmt.Sprint(id))
	k.shows("Successfully started partition reassignment for console-0 ", nil, tool, "--execute", "--reassignment-json-file", move(id))
	k.shows("Reassignment of partition console-0 is completed.", nil, tool, "--verify", "--reassignment-json-file", move(id))
	k.refuses(fmt.Sprint("Unknown broker id ", id+1), tool, "--execute", "--reassignment-json-file", move(id+1))
}

func (k kit) clientMetrics() {
	const tool = "ClientMetricsCommand"
	k.run(nil, tool, "--list")
	k.run(nil, tool, "--describe")
	k.refuses("configs of a CLIENT_METRICS are not served", tool, "--alter", "--name", "mine", "--metrics", "org.apache.kafka.", "--interval", "10000")
}

func (k kit) acls() {
	k.refuses("UnsupportedVersionException: The node does not support DESCRIBE_ACLS", "AclCommand", "--list")
}

func (k kit) tokens() {
	config := k.file("client", "security.protocol=PLAINTEXT\n") // which it asks for
	k.refuses("UnsupportedVersionException: The node does not support DESCRIBE_DELEGATION_TOKEN", "DelegationTokenCommand", "--command-config", config, "--describe")
}

func (k kit) quorum() {
	k.refuses("UnsupportedVersionException: The node does not support DESCRIBE_QUORUM", "MetadataQuorumCommand", "describe", "--status")
}

func (k kit) streamsGroups() {
	k.run(nil, "StreamsGroupCommand", "--list")
}

// streamsReset puts an application's group at the beginning of its input and
// deletes the topic that the application would have made for itself.
func (k kit) streamsReset() {
	const own = "streaming-counts-changelog"
	makeTopic(k.T, k.at, own, 1)
	out := k.run(nil, "StreamsResetter", "--application-id", "streaming", "--input-topics", "console", "--force")
	for _, want := range []string{"Topic: console Partition: 0 Offset: 20 ", "Deleting inferred internal topics [" + own + "] Done."} {
		if !strings.Contains(out, want) {
			k.Errorf("printed\n%s\nwithout %q", out, want)
		}
	}
	k.shows("streaming console 0 20 90 70 ", nil, "ConsumerGroupCommand", "--group", "streaming", "--describe")
	if out := k.run(nil, "TopicCommand", "--list"); strings.Contains(out, own) {
		k.Errorf("%s is still there: %s", own, out)
	}
}

func (k kit) compatibility() {
	k.shows("SUCCESS.", nil, "ClientCompatibilityTest", "--topic", "compatible", "--offsets-for-times-supported", "true", "--cluster-id-supported", "true",
		"--expect-record-too-large-exception", "false", "--num-cluster-nodes", "1", "--create-topics-supported", "true", "--describe-acls-supported", "false",
		"--describe-configs-supported", "true", "--idempotent-producer-supported", "true")
}
