package field

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
)

// TestVersions fails when the page is of other versions than those that the
// drivers are built with: a new one comes with a new run.
func TestVersions(t *testing.T) {
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	pins := readPins(t, filepath.Join(realnode.Root(t), "test"))
	for _, e := range roster {
		row, _ := rowOf(string(b), e.name)
		if e.name == "kcat" {
			continue // the system's
		}
		if len(row) < 3 || pins[e.name] == "" || strings.Fields(row[2])[0] != pins[e.name] {
			t.Errorf("%s: the page has %q, built with is %q; run scripts/test-field.sh", e.name, row, pins[e.name])
		}
	}
	for _, tool := range tools {
		if row, _ := rowOf(string(b), tool.name); len(row) < 2 || row[1] != pins["kafka-clients"] {
			t.Errorf("%s: the page has %q, of Kafka %s; run scripts/test-field.sh", tool.name, row, pins["kafka-clients"])
		}
	}
}

// readPins returns the version of each client that a file below test fixes.
func readPins(t *testing.T, test string) map[string]string {
	t.Helper()
	read := func(parts ...string) []byte {
		b, err := os.ReadFile(filepath.Join(append([]string{test}, parts...)...))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	pins := map[string]string{"kafka-clients": pomVersion(t, read("java", "pom.xml"))}
	for line := range bytes.Lines(read("python", "requirements.txt")) {
		if name, version, ok := strings.Cut(strings.TrimSpace(string(line)), "=="); ok {
			pins[name] = version
		}
	}
	for line := range bytes.Lines(read("go-clients", "go.mod")) {
		if words := strings.Fields(string(line)); len(words) >= 2 {
			pins[words[0][strings.LastIndexByte(words[0], '/')+1:]] = words[1]
		}
	}
	for client, dir := range map[string]string{"kafkajs": "kafkajs", "@confluentinc/kafka-javascript": "confluent", "@platformatic/kafka": "platformatic"} {
		var lock struct {
			Packages map[string]struct{ Version string }
		}
		if err := json.Unmarshal(read("node", dir, "package-lock.json"), &lock); err != nil {
			t.Fatal(err)
		}
		pins[client] = lock.Packages["node_modules/"+client].Version
	}
	_, after, _ := strings.Cut(string(read("rust", "Cargo.lock")), "name = \"rdkafka\"\nversion = \"")
	pins["rdkafka"], _, _ = strings.Cut(after, `"`)
	return pins
}

func pomVersion(t *testing.T, b []byte) string {
	t.Helper()
	var pom struct {
		Kafka string `xml:"properties>kafka.version"`
	}
	if err := xml.Unmarshal(b, &pom); err != nil {
		t.Fatal(err)
	}
	return pom.Kafka
}
