package store

import "testing"

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
