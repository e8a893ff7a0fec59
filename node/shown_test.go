package node

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	lattice "github.com/lattice-log/lattice"
	sdk "github.com/lattice-log/lattice/client"
)

// sdkOf is a client of a node.
func sdkOf(t *testing.T, n *Node) *sdk.Client {
	t.Helper()
	c, err := sdk.Dial(sdk.Options{URL: "http://" + n.Info().HTTP})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// statusOf returns what a node says of its default store, which has one peer.
func statusOf(t *testing.T, c *sdk.Client) (sdk.StoreStatus, sdk.PeerStatus) {
	t.Helper()
	st, err := c.Status(t.Context())
	if err != nil || len(st.Stores) == 0 || len(st.Stores[0].Peers) != 1 {
		t.Fatalf("%+v, %v", st, err)
	}
	return st.Stores[0], st.Stores[0].Peers[0]
}

// metric returns a metric of a node, of the line that begins so.
func metric(t *testing.T, n *Node, begin string) string {
	t.Helper()
	res, err := http.Get("http://" + n.Info().HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, begin); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// TestWhatAPeerLacksIsShown: while two nodes are apart, each shows what the other lacks, of records and of
// keys, since when, and how many of them are on it alone; together, that nothing is lacking.
func TestWhatAPeerLacksIsShown(t *testing.T) {
	c := newCouple(t)
	topic := c.topic("orders", 1)
	tp := lattice.TopicPartition{Topic: topic.ID}
	a, b := sdkOf(t, c.a), sdkOf(t, c.b)
	cl := client(t, c.a, kgo.DefaultProduceTopic("orders"))
	produce := func(n int) {
		t.Helper()
		for i := range n {
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	produce(3)
	idle := func(what string) {
		t.Helper()
		soon(t, what, func() bool {
			for _, x := range []*sdk.Client{a, b} {
				s, p := statusOf(t, x)
				if !p.Reachable || !p.Known || p.BehindBlocks != 0 || !strings.Contains(s.Durability, "All 2 replicas have what is here.") || p.RoundTripMs <= 0 || p.BytesIn == 0 || p.BytesOut == 0 {
					return false
				}
			}
			return true
		})
	}
	idle("both have all")

	c.cut(true)
	soon(t, "they are apart", func() bool { _, p := statusOf(t, a); return !p.Reachable })
	produce(7)
	if err := setKey(c.sa, "k", "1"); err != nil {
		t.Fatal(err)
	}
	soon(t, "A shows what B lacks", func() bool {
		s, p := statusOf(t, a)
		only := regexp.MustCompile(`1 of 2 replicas is .* behind: 7 records and \d+ entr(y|ies) of keys exists? on this node only`).MatchString(s.Durability)
		return only && p.Known && p.BehindBlocks >= 8 && p.BehindLogs == 2 && !p.BehindSince.IsZero() && !p.Since.IsZero()
	})
	peers, err := a.PeersWith(t.Context(), 10, "")
	if err != nil || len(peers.Peers) != 1 || len(peers.Peers[0].Logs) != 2 {
		t.Fatalf("%+v, %v", peers, err)
	}
	logs := peers.Peers[0].Logs // writers' come first
	if logs[0].Writer != c.sa.Info().Node.String() || logs[1].Topic != "orders" || logs[1].Here-logs[1].Has != 7 || logs[1].Since.IsZero() {
		t.Fatalf("%+v", logs)
	}
	who := fmt.Sprintf(`{peer="%s",store="main"} `, c.sb.Info().Node)
	if got := metric(t, c.a, "lattice_peer_reachable"+who); got != "0" {
		t.Errorf("reachable is %q", got)
	}
	if got := metric(t, c.a, "lattice_peer_behind_logs"+who); got != "2" {
		t.Errorf("%q logs are behind", got)
	}
	if s, _ := statusOf(t, a); s.Watermark == nil || len(s.Watermark.Members) != 2 {
		t.Errorf("what pruning waits for: %+v", s.Watermark)
	}

	c.cut(false)
	soon(t, "B has it", func() bool {
		p, err := c.sb.Partition(tp.Topic, 0)
		return err == nil && p.Bounds().End == 10 && getKey(t, c.sb, "k") == "1"
	})
	idle("both have all again")
}

// TestConnectByAddress: a node that forgot where another is, and that the other does not find either, is connected
// by an address: of the member that is named, or of whichever is there.
func TestConnectByAddress(t *testing.T) {
	c := newCouple(t)
	a := sdkOf(t, c.a)
	reaches := func(want bool) func() bool {
		return func() bool { _, p := statusOf(t, a); return p.Reachable == want }
	}
	idB := c.sb.Info().Node.String()
	at := "/ip4/127.0.0.1/tcp/" + c.wires[1].ln.Addr().String()[len("127.0.0.1:"):]
	soon(t, "they are connected", reaches(true))
	for _, named := range []string{idB[:8], ""} {
		c.cut(true)
		soon(t, "they are apart", reaches(false))
		if old, err := a.ForgetPeer(t.Context(), idB); err != nil || len(old) == 0 {
			t.Fatalf("%v, %v", old, err)
		}
		c.wires[1].set(false) // A reaches B there, and B does not reach A
		if _, err := a.ConnectPeer(t.Context(), named, []string{"nowhere"}, false); lattice.KindOf(err) != lattice.Invalid {
			t.Fatalf("no address: %v", err)
		}
		if _, err := a.ConnectPeer(t.Context(), named, []string{"/ip4/127.0.0.1/tcp/1"}, false); lattice.KindOf(err) != lattice.Unavailable {
			t.Fatalf("nobody is there: %v", err)
		}
		n, err := a.ConnectPeer(t.Context(), named, []string{at}, false)
		if err != nil || n != idB {
			t.Fatalf("%s, %v", n, err)
		}
		soon(t, "they are connected", reaches(true))
		c.cut(false)
	}
	stranger, _ := runNode(t, local(t))
	if _, err := a.ConnectPeer(t.Context(), "", stranger.Info().P2P, false); lattice.KindOf(err) != lattice.Conflict {
		t.Fatalf("with nobody left to call: %v", err)
	}
	c.cut(true)
	soon(t, "they are apart", reaches(false))
	if _, err := a.ConnectPeer(t.Context(), "", stranger.Info().P2P, false); lattice.KindOf(err) != lattice.NotFound {
		t.Fatalf("a stranger answers: %v", err)
	}
}
