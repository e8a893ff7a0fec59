package mesh

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
)

// TestFoundOnTheLocalNetwork: two members that know no address of each other, at ports that they never had
// before, find each other by mDNS, if they are told to; and are silent if they are not.
func TestFoundOnTheLocalNetwork(t *testing.T) {
	bin := realnode.Build(t)
	net := newNetwork(t, 2)
	var all []*machine
	for i := 1; i <= 2; i++ {
		net.do("ip", "-n", net.name(i), "route", "add", "224.0.0.0/4", "dev", "eth0")
		all = append(all, &machine{t: t, net: net, i: i, label: fmt.Sprintf("n%d", i), bin: net.wrapper(i, bin), cli: bin, dir: filepath.Join(t.TempDir(), fmt.Sprint("n", i))})
	}
	begin := func(port int, flags ...string) {
		for _, m := range all {
			if err := os.RemoveAll(filepath.Join(m.dir, "peers.json")); err != nil {
				t.Fatal(err)
			}
			m.node = realnode.Start(t, m.bin, m.dir, append([]string{"--kafka", "", "--redis", "", "--http", "", "--mesh", fmt.Sprintf("%s:%d", net.address(m.i), port+m.i), "--insecure"}, flags...)...)
		}
	}
	reached := func() bool {
		var p struct {
			Peers []struct {
				Reachable bool `json:"reachable"`
			} `json:"peers"`
		}
		if err := json.Unmarshal([]byte(all[1].command("peer", "list", "-o", "json")), &p); err != nil || len(p.Peers) != 1 {
			t.Fatalf("%+v, %v", p, err)
		}
		return p.Peers[0].Reachable
	}
	within := func(d time.Duration) bool {
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			if reached() {
				return true
			}
		}
		return false
	}
	stop := func() {
		for _, m := range all {
			m.node.Kill()
		}
	}
	begin(7900)
	all[1].command("peer", "join", all[0].command("peer", "invite"))
	if !within(patience) {
		t.Fatal("they are not connected after the invitation")
	}
	stop()
	begin(7910)
	if within(3 * time.Second) {
		t.Fatal("they found each other, and nobody told them where")
	}
	stop()
	begin(7920, "--mdns")
	if !within(patience) {
		t.Fatal("they did not find each other on the local network")
	}
}
