package field

// mistake is something that must be refused, and how.
type mistake struct {
	name string
	code int // Kafka's
	ask  request
}

// mistakes are made on a node that creates no topics by itself and has "there",
// with 3 partitions, and nothing else.
var mistakes = []mistake{
	{"existing topic", 36, request{Do: "create", Topic: "there", Partitions: 3}},
	{"3 replicas", 38, request{Do: "create", Topic: "replicated", Partitions: 1, Replication: 3}},
	{"0 partitions", 37, request{Do: "create", Topic: "empty", Partitions: 0}},
	{"wrong topic name", 17, request{Do: "create", Topic: "not a name", Partitions: 1}},
	{"wrong config value", 40, request{Do: "create", Topic: "configured", Partitions: 1, Configs: map[string]string{"retention.ms": "soon"}}},
	{"unknown config", 40, request{Do: "alter", Topic: "there", Configs: map[string]string{"no.such.config": "1"}}},
	{"fewer partitions", 37, request{Do: "grow", Topic: "there", Partitions: 2}},
	{"describe an unknown topic", 3, request{Do: "describe", Topic: "unknown"}},
	{"configs of an unknown topic", 3, request{Do: "configs", Topic: "unknown"}},
	{"delete an unknown topic", 3, request{Do: "delete", Topic: "unknown"}},
	{"write to an unknown topic", 3, request{Do: "produce", Topic: "unknown", Codec: "none", Records: []record{{Value: []byte("lost")}}}},
	{"read an unknown topic", 3, request{Do: "consume", Topic: "unknown"}},
	{"read beyond the end", 1, request{Do: "beyond", Topic: "there"}},
	{"trim beyond the end", 1, request{Do: "trim", Topic: "there", Offset: 1000}},
	{"delete an unknown group", 69, request{Do: "forget", Group: "unknown"}},
}
