package suites

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
)

// The program that sarama's suite puts between itself and the brokers, to cut
// and delay connections.
const toxiproxy = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"

// sarama is the functional suite of IBM's client. It knows five brokers, by
// five proxies with fixed addresses; here all of them lead to the one node,
// which has the id and tells clients the address of the first.
func sarama() suite {
	return &goSuite{
		info: about{
			name: "sarama", title: "sarama, functional", version: "v1.61.1", limit: 3 * time.Minute, alone: true,
			how: "Its tests with the build tag functional. They are written for five brokers behind toxiproxy; the five proxies lead to one node, which has the id 1 and takes replication factors above one (`kafka.replication: lenient`).",
			node: []string{"--kafka", "127.0.0.1:19091", "--set", "kafka.advertise=127.0.0.1:29091", "--set", "kafka.node_id=1",
				"--set", "kafka.replication=lenient", "--set", "kafka.auto_create=false"},
		},
		module: "github.com/IBM/sarama",
		sum:    "h1:I59MWPHQUWqJNdRpsDUcbeCriog8SxjQaPfHNWxidEg=",
		pkg:    "./",
		tags:   "functional",
		files:  "functional_*_test.go",
		extra: func(t *testing.T, dir string) {
			t.Setenv("GOBIN", dir) // the program's name is server
			goCommand(t, dir, "install", toxiproxy)
		},
		besides: proxies,
	}
}

// proxies starts toxiproxy with the proxies that the suite looks for.
func proxies(t *testing.T, at place) []string {
	t.Helper()
	const api = "http://127.0.0.1:8474"
	p, err := realnode.Spawn(exec.Command(filepath.Join(at.dir, "server"), "-host", "127.0.0.1", "-port", "8474"))
	if err != nil {
		t.Fatalf("start toxiproxy: %v", err)
	}
	t.Cleanup(p.Kill)
	for i := 1; i <= 5; i++ {
		body, err := json.Marshal(map[string]any{
			"name": fmt.Sprintf("kafka%d", i), "listen": fmt.Sprintf("127.0.0.1:%d", 29090+i), "upstream": at.node.Kafka, "enabled": true,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := post(api+"/proxies", body); err != nil {
			t.Fatalf("proxy %d: %v", i, err)
		}
	}
	return []string{"TOXIPROXY_ADDR=" + api, "KAFKA_VERSION=4.1.0"}
}

// post sends a body to a server that may not listen yet.
func post(url string, body []byte) error {
	var last error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		resp, err := http.Post(url, "application/json", bytes.NewReader(body))
		if err != nil {
			last = err
			continue
		}
		resp.Body.Close()
		if resp.StatusCode/100 == 2 {
			return nil
		}
		return fmt.Errorf("%s: %s", url, strings.TrimSpace(resp.Status))
	}
	return last
}
