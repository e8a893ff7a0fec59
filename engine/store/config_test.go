package store

import (
	"errors"
	"testing"

	"github.com/lattice-log/lattice/core/record"
)

// TestConfigSources: a node that names a default does not make it its own.
func TestConfigSources(t *testing.T) {
	node := map[string]string{"flush.ms": "1000", "segment.bytes": "1048576", "retention.ms": "5000"}
	topic := map[string]string{"retention.ms": "604800000"}
	want := map[string]string{"flush.ms": "default", "segment.bytes": "node", "retention.ms": "topic", "cleanup.policy": "default"}
	for _, e := range describe(node, topic) {
		if w, ok := want[e.Name]; ok && e.Source != w {
			t.Errorf("%s=%s comes from %q, want %q", e.Name, e.Value, e.Source, w)
		}
	}
}

// TestTopicConfigValues: what tools set is taken where it is kept, and refused by
// name where it is not.
func TestTopicConfigValues(t *testing.T) {
	for _, step := range []struct {
		set     map[string]string
		refused string // the config that the error names; empty: taken
	}{
		{map[string]string{"compression.type": "producer"}, ""},
		{map[string]string{"compression.type": "zstd"}, ""},
		{map[string]string{"compression.type": "uncompressed"}, ""},
		{map[string]string{"compression.type": "none"}, "compression.type"},
		{map[string]string{"compression.type": "brotli"}, "compression.type"},
		{map[string]string{"file.delete.delay.ms": "10000"}, ""},
		{map[string]string{"file.delete.delay.ms": "-1"}, "file.delete.delay.ms"},
		{map[string]string{"flush.messages": "1"}, ""},
		{map[string]string{"flush.messages": "1", "lattice.durability": "os"}, "flush.messages"},
		{map[string]string{"flush.messages": "9223372036854775807", "lattice.durability": "os"}, ""},
		{map[string]string{"flush.messages": "0"}, "flush.messages"},
		{map[string]string{"index.interval.bytes": "4096"}, ""},
		{map[string]string{"index.interval.bytes": "1024"}, "index.interval.bytes"},
		{map[string]string{"segment.index.bytes": "52428800"}, ""},
		{map[string]string{"segment.index.bytes": "1024"}, "segment.index.bytes"},
		{map[string]string{"segment.jitter.ms": "1000"}, ""},
		{map[string]string{"unclean.leader.election.enable": "true"}, ""},
		{map[string]string{"unclean.leader.election.enable": "yes"}, "unclean.leader.election.enable"},
		{map[string]string{"leader.replication.throttled.replicas": "*"}, ""},
		{map[string]string{"follower.replication.throttled.replicas": "0:1, 1:2"}, ""},
		{map[string]string{"follower.replication.throttled.replicas": "0"}, "follower.replication.throttled.replicas"},
		{map[string]string{"min.insync.replicas": "2"}, "min.insync.replicas"},
		{map[string]string{"preallocate": "false"}, "preallocate"},
		{map[string]string{"message.format.version": "2.8"}, "message.format.version"},
	} {
		_, err := parseConfig(map[string]string{"lattice.durability": "fsync"}, step.set)
		var bad *ConfigError
		if errors.As(err, &bad) != (step.refused != "") || bad != nil && bad.Name != step.refused {
			t.Errorf("%v: %v, want %q refused", step.set, err, step.refused)
		}
	}
	if c, err := parseConfig(nil, map[string]string{"compression.type": "lz4"}); err != nil || !c.Recompress || c.Codec != record.LZ4 {
		t.Errorf("compression.type=lz4: %v %v, %v", c.Recompress, c.Codec, err)
	}
}

// TestEmptyListIsAppendedTo: a list that is empty has no item.
func TestEmptyListIsAppendedTo(t *testing.T) {
	const name = "leader.replication.throttled.replicas"
	one := "0:1"
	set, err := change(nil, nil, []ConfigChange{{Name: name, Op: "append", Value: &one}}, false)
	if err != nil || set[name] != one {
		t.Errorf("append to an empty list: %q, %v", set[name], err)
	}
}
