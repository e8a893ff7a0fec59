package node

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/store"
)

// defaultOf returns the default store of a node.
func defaultOf(t testing.TB, n *Node) *store.Store {
	t.Helper()
	st, err := n.stores.find("")
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestTwoNodes: a node that joins another's store has it as its default at once, its
// own stays, and what one writes is on both, before and after both were restarted.
func TestTwoNodes(t *testing.T) {
	ca, cb := local(t), local(t)
	a, stopA := runNode(t, ca)
	b, stopB := runNode(t, cb)
	sa := defaultOf(t, a)
	if len(a.Info().P2P) != 1 || !strings.HasPrefix(a.Info().P2P[0], "/ip4/127.0.0.1/tcp/") {
		t.Fatalf("it is reached at %v", a.Info().P2P)
	}
	token, _, err := sa.Invite(t.Context(), roster.Writer, time.Hour, a.mesh.Addresses()...)
	if err != nil {
		t.Fatal(err)
	}
	joined, err := b.mesh.Join(t.Context(), token, true)
	if err != nil || joined.Again {
		t.Fatalf("%+v, %v", joined, err)
	}
	sb := defaultOf(t, b)
	if sb != joined.Store || sb.Info().ID != sa.Info().ID || len(b.stores.All()) != 2 || b.Info().Store != sa.Info().ID.String() {
		t.Fatalf("the default is %s, want %s", sb.Info().ID, sa.Info().ID)
	}
	soon(t, "the right to write", func() bool { return sb.Role() == roster.Writer })
	if err := errors.Join(setKey(sa, "a", "1"), setKey(sb, "b", "1")); err != nil {
		t.Fatal(err)
	}
	soon(t, "both ways", func() bool { return getKey(t, sb, "a") == "1" && getKey(t, sa, "b") == "1" })
	if again, err := b.mesh.Join(t.Context(), token, true); err != nil || !again.Again || again.Store != sb {
		t.Errorf("the same token again: %+v, %v", again, err)
	}
	if err := errors.Join(stopB(), stopA()); err != nil {
		t.Fatal(err)
	}
	a, _ = runNode(t, ca)
	b, _ = runNode(t, cb)
	sa, sb = defaultOf(t, a), defaultOf(t, b)
	if err := errors.Join(setKey(sa, "a", "2"), setKey(sb, "b", "2")); err != nil {
		t.Fatal(err)
	}
	soon(t, "both ways after a restart", func() bool { return getKey(t, sb, "a") == "2" && getKey(t, sa, "b") == "2" })
	alike(t, sa, sb)
	peers := b.mesh.Peers(sb.Info().ID).All
	if len(peers) != 1 || peers[0].Node != sa.Info().Node || !peers[0].Reachable {
		t.Errorf("B's peers: %+v", peers)
	}
	res, err := http.Get("http://" + a.Info().HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(text), `lattice_mesh_reachable_peers{store="main"} 1`) {
		t.Errorf("no word of the mesh in the metrics: %v", err)
	}
}
