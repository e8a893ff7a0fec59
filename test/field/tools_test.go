package field

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
)

// tool is one of Kafka's own command-line tools: a row of the page's second table.
type tool struct {
	name string
	says string // what was done with it
	run  func(kit)
}

// tools share topics, so that one reads what another wrote.
var tools = []tool{
	{"TopicCommand", "create, describe, add partitions, list, delete; 3 replicas refused", kit.topics},
	{"ConfigCommand", "alter and describe a topic, describe the broker; an unknown config refused", kit.configs},
	{"ConsoleProducer", "keys, headers, zstd", kit.produce},
	{"ConsoleConsumer", "in a group, and from an offset", kit.consume},
	{"ConsumerGroupCommand", "list, describe, reset offsets, delete offsets and groups", kit.group},
	{"GroupsCommand", "list", kit.groups},
	{"GetOffsetShell", "latest, earliest", kit.offsets},
	{"DeleteRecordsCommand", "delete what is before an offset", kit.trim},
	{"VerifiableProducer", "200 records, acknowledged by all", kit.verifiableProducer},
	{"VerifiableConsumer", "all of them, in groups of both protocols", kit.verifiableConsumers},
	{"ProducerPerformance", "20,000 records", kit.producerPerformance},
	{"ConsumerPerformance", "20,000 records", kit.consumerPerformance},
	{"EndToEndLatency", "100 records", kit.latency},
	{"TransactionalMessageCopier", "copy a partition in transactions, some of which abort", kit.copier},
	{"TransactionsCommand", "list, describe, producers of a partition, hanging ones; end one that is open", kit.transactions},
	{"ConsoleShareConsumer", "in a share group", kit.shareConsume},
	{"VerifiableShareConsumer", "200 records, acknowledged", kit.verifiableShareConsumer},
	{"ShareConsumerPerformance", "20,000 records", kit.shareConsumerPerformance},
	{"ShareGroupCommand", "list, describe, reset and delete offsets, delete", kit.shareGroup},
	{"StreamsResetter", "reset an application's input topic, delete its internal topic", kit.streamsReset},
	{"ClientCompatibilityTest", "its own test of clients' features, all but ACLs", kit.compatibility},
	{"BrokerApiVersionsCommand", "keys and versions", kit.apiVersions},
	{"FeatureCommand", "describe; upgrade and downgrade refused", kit.features},
	{"ClusterTool", "cluster id, endpoints", kit.cluster},
	{"LogDirsCommand", "describe", kit.logDirs},
	{"LeaderElectionCommand", "for all partitions, where none is needed", kit.election},
	{"ReassignPartitionsCommand", "list, generate, a move to where the replica is; to another node refused", kit.reassign},
	{"ClientMetricsCommand", "list, where there are none; to add one refused", kit.clientMetrics},
	{"AclCommand", "refused: there are no ACLs yet", kit.acls},
	{"DelegationTokenCommand", "refused: there are no tokens", kit.tokens},
	{"MetadataQuorumCommand", "refused: there is no quorum", kit.quorum},
	{"StreamsGroupCommand", "list, where there are none", kit.streamsGroups},
	{"DumpLogSegments", "records, indexes", kit.dump},
}

// tools runs them, as Kafka's scripts do: by the names of their classes.
func (b *bench) tools(t *testing.T) {
	version := startProcess(t, "kafka-clients", b.java(t, "classpath", "Driver")).must(t, request{Do: "version"}).Version
	for _, tool := range tools {
		ok := t.Run(tool.name, func(t *testing.T) { tool.run(kit{t, b, b.at}) })
		b.note(tool.name, "version", version)
		b.note(tool.name, "works", map[bool]string{true: "ok", false: "FAILS"}[ok])
	}
}

// kit runs tools for one test.
type kit struct {
	*testing.T
	*bench
	at string
}

// packages are those of tools that are not in org.apache.kafka.tools itself.
var packages = map[string]string{
	"ConsoleConsumer":           "consumer.",
	"ConsoleShareConsumer":      "consumer.",
	"ConsumerGroupCommand":      "consumer.group.",
	"ShareGroupCommand":         "consumer.group.",
	"ReassignPartitionsCommand": "reassign.",
	"StreamsGroupCommand":       "streams.",
}

// run runs a tool to its end and returns what it printed, with runs of white
// space made one space. It fails the test unless the tool succeeds.
func (k kit) run(stdin []byte, tool string, args ...string) string {
	k.Helper()
	out, err := k.try(stdin, tool, args...)
	if err != nil {
		k.Fatalf("%s %q: %v\n%s", tool, args, err, out)
	}
	return out
}

func (k kit) try(stdin []byte, tool string, args ...string) (string, error) {
	switch tool {
	case "DumpLogSegments", "ProducerPerformance": // they take no address, or in another way
	case "TransactionalMessageCopier":
		args = append([]string{"--broker-list", k.at}, args...)
	case "ClusterTool": // it takes what to do first
		args = append(args, "--bootstrap-server", k.at)
	default:
		args = append([]string{"--bootstrap-server", k.at}, args...)
	}
	ctx, cancel := context.WithTimeout(k.Context(), limit)
	defer cancel()
	line := k.java(k.T, "toolpath", "org.apache.kafka.tools."+packages[tool]+tool, args...)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return strings.Join(strings.Fields(string(out)), " ") + " ", err
}

// shows fails the test unless a tool's output has a text.
func (k kit) shows(want string, stdin []byte, tool string, args ...string) {
	k.Helper()
	if out := k.run(stdin, tool, args...); !strings.Contains(out, want) {
		k.Errorf("%s %q printed\n%.2000s\nwithout %q", tool, args, out, want)
	}
}

// refuses fails the test unless a tool says a text, whether or not it counts that
// as a failure.
func (k kit) refuses(want string, tool string, args ...string) {
	k.Helper()
	if out, err := k.try(nil, tool, args...); !strings.Contains(out, want) {
		k.Errorf("%s %q: %v, printed\n%.2000s\nwithout %q", tool, args, err, out, want)
	}
}

func (k kit) topics() {
	const tool = "TopicCommand"
	k.shows("Created topic tooled.", nil, tool, "--create", "--topic", "tooled", "--partitions", "3", "--config", "retention.ms=100000")
	k.shows("PartitionCount: 3 ReplicationFactor: 1 Configs: retention.ms=100000 ", nil, tool, "--describe", "--topic", "tooled")
	k.run(nil, tool, "--alter", "--topic", "tooled", "--partitions", "4")
	k.shows("Partition: 3 Leader: ", nil, tool, "--describe", "--topic", "tooled")
	if out := k.run(nil, tool, "--describe", "--under-replicated-partitions"); strings.Contains(out, "Topic:") {
		k.Errorf("under-replicated partitions: %s", out)
	}
	k.shows("tooled ", nil, tool, "--list")
	k.run(nil, tool, "--delete", "--topic", "tooled")
	if out := k.run(nil, tool, "--list"); strings.Contains(out, "tooled ") {
		k.Errorf("still there after --delete: %s", out)
	}
	if out, err := k.try(nil, tool, "--create", "--topic", "tooled", "--replication-factor", "3"); err == nil || !strings.Contains(out, "replication factor 3, but there is 1 node") {
		k.Errorf("3 replicas: %v, %s", err, out)
	}
}

func (k kit) configs() {
	const tool = "ConfigCommand"
	makeTopic(k.T, k.at, "configured", 1)
	of := []string{"--entity-type", "topics", "--entity-name", "configured"}
	k.run(nil, tool, append(of, "--alter", "--add-config", "max.message.bytes=200000,cleanup.policy=[compact,delete]")...)
	k.shows("cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, DEFAULT_CONFIG:cleanup.policy=delete} "+
		"max.message.bytes=200000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=200000, DEFAULT_CONFIG:max.message.bytes=1048588}", nil, tool, append(of, "--describe")...)
	k.run(nil, tool, append(of, "--alter", "--delete-config", "max.message.bytes")...)
	k.shows("max.message.bytes=1048588", nil, tool, append(of, "--describe", "--all")...)
	k.shows("advertised.listeners=PLAINTEXT://"+k.at, nil, tool, "--entity-type", "brokers", "--describe", "--all")
	if out, err := k.try(nil, tool, append(of, "--alter", "--add-config", "no.such=1")...); err == nil || !strings.Contains(out, "InvalidConfigurationException") {
		k.Errorf("an unknown config: %v, %s", err, out)
	}
}

// produce writes 90 records with keys, to one partition.
func (k kit) produce() {
	makeTopic(k.T, k.at, "console", 1)
	var lines bytes.Buffer
	for i := range 90 {
		fmt.Fprintf(&lines, "h:%d\tkey-%d\tvalue %d\n", i, i%7, i)
	}
	k.run(lines.Bytes(), "ConsoleProducer", "--topic", "console", "--reader-property", "parse.key=true", "--reader-property", "parse.headers=true", "--compression-codec", "zstd")
	if all := observe(k.T, k.at, "console"); len(all) != 90 || string(all[89].Value) != "value 89" || string(all[89].Key) != "key-5" || string(all[89].Headers[0].Value) != "89" {
		k.Errorf("%d records, such as %v", len(all), all[max(0, len(all)-1):])
	}
}

func (k kit) consume() {
	out := k.run(nil, "ConsoleConsumer", "--topic", "console", "--from-beginning", "--max-messages", "90", "--group", "console-readers",
		"--formatter-property", "print.key=true", "--formatter-property", "print.headers=true", "--formatter-property", "print.offset=true")
	for i := range 90 {
		if want := fmt.Sprintf("Offset:%d h:%d key-%d value %d ", i, i, i%7, i); !strings.Contains(out, want) {
			k.Fatalf("printed\n%s\nwithout %q", out, want)
		}
	}
	k.shows("Offset:80 value 80 ", nil, "ConsoleConsumer", "--topic", "console", "--partition", "0", "--offset", "80", "--max-messages", "1", "--formatter-property", "print.offset=true")
}

func (k kit) group() {
	const tool = "ConsumerGroupCommand"
	of := []string{"--group", "console-readers"}
	k.shows("console-readers ", nil, tool, "--list")
	k.shows("console-readers console 0 90 90 0 ", nil, tool, append(of, "--describe")...)
	k.shows(" Empty 0 ", nil, tool, append(of, "--describe", "--state")...)
	k.shows("console-readers console 0 30 ", nil, tool, append(of, "--topic", "console", "--reset-offsets", "--to-offset", "30", "--execute")...)
	k.shows("console-readers console 0 30 90 60 ", nil, tool, append(of, "--describe")...)
	k.shows("console-readers console 0 0 ", nil, tool, append(of, "--topic", "console", "--reset-offsets", "--to-datetime", "2020-01-01T00:00:00.000", "--dry-run")...)
	k.shows("console 0 Successful ", nil, tool, append(of, "--topic", "console", "--delete-offsets")...)
	k.run(nil, tool, "--group", "gone", "--topic", "console", "--reset-offsets", "--to-earliest", "--execute")
	k.shows("was successful", nil, tool, "--group", "gone", "--delete")
	out, err := k.try(nil, tool, "--group", "gone", "--delete")
	if !strings.Contains(out, "GroupIdNotFoundException") {
		k.Errorf("delete a group twice: %v, %s", err, out)
	}
}

func (k kit) groups() {
	k.shows("console-readers Classic consumer", nil, "GroupsCommand", "--list")
}

func (k kit) offsets() {
	k.shows("console:0:90 ", nil, "GetOffsetShell", "--topic", "console")
	k.shows("console:0:0 ", nil, "GetOffsetShell", "--topic", "console", "--time", "earliest")
}

func (k kit) trim() {
	file := filepath.Join(k.TempDir(), "offsets.json")
	if err := os.WriteFile(file, []byte(`{"version":1,"partitions":[{"topic":"console","partition":0,"offset":20}]}`), 0o600); err != nil {
		k.Fatal(err)
	}
	k.shows("partition: console-0 low_watermark: 20 ", nil, "DeleteRecordsCommand", "--offset-json-file", file)
	k.shows("console:0:20 ", nil, "GetOffsetShell", "--topic", "console", "--time", "earliest")
}

func (k kit) verifiableProducer() {
	makeTopic(k.T, k.at, "verifiable", 3)
	k.shows(`"sent":200,"acked":200`, nil, "VerifiableProducer", "--topic", "verifiable", "--max-messages", "200", "--acks", "-1")
}

func (k kit) verifiableConsumers() {
	k.verifiableConsumer("classic")
	k.verifiableConsumer("consumer")
}

func (k kit) verifiableConsumer(protocol string) {
	out := k.run(nil, "VerifiableConsumer", "--topic", "verifiable", "--group-id", "verifiable-"+protocol, "--group-protocol", protocol, "--max-messages", "200", "--reset-policy", "earliest")
	read, committed := int64(0), map[int32]int64{}
	for _, e := range k.events(out) {
		switch e.Name {
		case "records_consumed":
			read += e.Count
		case "offsets_committed":
			if !e.Success {
				k.Errorf("a commit failed: %s", out)
			}
			for _, o := range e.Offsets {
				committed[o.Partition] = o.Offset
			}
		}
	}
	sum := int64(0)
	for _, o := range committed {
		sum += o
	}
	if read != 200 || sum != 200 {
		k.Errorf("%s: read %d and committed %d, want 200: %s", protocol, read, sum, out)
	}
}

// verified is what the verifiable consumers print of one thing that happened.
type verified struct {
	Name    string
	Count   int64
	Success bool
	Offsets []struct {
		Partition int32
		Offset    int64
	}
}

func (k kit) events(out string) (all []verified) {
	k.Helper()
	for dec := json.NewDecoder(strings.NewReader(out[max(0, strings.Index(out, "{")):])); dec.More(); {
		var e verified
		if err := dec.Decode(&e); err != nil {
			k.Fatalf("%v in %s", err, out)
		}
		all = append(all, e)
	}
	return all
}

// dump reads the files of a node that was stopped. While it runs, zeros follow
// the records of the last one.
func (k kit) dump() {
	n := realnode.Start(k.T, realnode.Build(k.T), k.TempDir())
	makeTopic(k.T, n.Kafka, "dumped", 1)
	const count = 500 // in batches of all codecs, so that the index has entries
	for i, codec := range compressions() {
		write(k.T, n.Kafka, "dumped", sample(codecs[i], count/5), kgo.ProducerBatchCompression(codec))
	}
	n.Stop(k.T)
	logs, err := filepath.Glob(filepath.Join(n.Dir, "stores", "*", "topics", "*", "0", "*.log"))
	if err != nil || len(logs) != 1 {
		k.Fatalf("%q, %v: want one log", logs, err)
	}
	out := k.run(nil, "DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", logs[0])
	for _, want := range []string{"Log starting offset: 0 ", fmt.Sprintf("| offset: %d CreateTime: %d ", count-1, int64(sampleTime+count/5-1)), "isvalid: true"} {
		if !strings.Contains(out, want) {
			k.Errorf("the log's dump lacks %q: %.500s", want, out)
		}
	}
	if n := strings.Count(out, "| offset: "); n != count || strings.Contains(out, "isvalid: false") {
		k.Errorf("the log's dump has %d records, want %d, all valid", n, count)
	}
	base := strings.TrimSuffix(logs[0], ".log")
	out = k.run(nil, "DumpLogSegments", "--index-sanity-check", "--files", base+".index,"+base+".timeindex")
	if strings.Count(out, "passed sanity check") != 2 {
		k.Errorf("the indexes: %s", out)
	}
	out = k.run(nil, "DumpLogSegments", "--verify-index-only", "--files", base+".index,"+base+".timeindex")
	if strings.Contains(out, "Mismatch") || strings.Contains(out, "not matched") || strings.Contains(out, "Found") {
		k.Errorf("the indexes: %s", out)
	}
}
