package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/invite"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/engine/fsck"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/internal/testkit/realnode"
	"github.com/lattice-log/lattice/mesh/p2p"
	"github.com/lattice-log/lattice/storage/disk"
)

// twin is what of a node the mesh needs: its stores, and the mesh, without listeners
// for clients.
type twin struct {
	cfg    Config
	key    identity.Key
	mesh   *p2p.Mesh
	engine *tasks
	meshes *tasks       // until they are stopped, it talks to others
	first  *store.Store // the default one
	all    []*store.Store
}

// runTwin makes or opens a data directory, and runs it until stop is called, cleanly.
func runTwin(t testing.TB, data string) (n *twin, stop func()) {
	t.Helper()
	n, stopped, err := startTwin(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	done := false
	stop = func() {
		if !done {
			done = true
			if err := stopped(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return n, stop
}

func startTwin(ctx context.Context, data string) (*twin, func() error, error) {
	n := &twin{cfg: Default()}
	n.cfg.Data = data
	quiet := slog.New(slog.DiscardHandler)
	key, first, _, err := prepare(ctx, data, quiet)
	if err != nil {
		return nil, nil, err
	}
	n.key, n.engine = key, start(context.WithoutCancel(ctx))
	n.mesh, err = newMesh(key, Mesh{Listen: "127.0.0.1:0"}, data, p2p.Limits{RedialMin: 100 * time.Millisecond, RedialMax: time.Second}, quiet)
	if err != nil {
		return nil, nil, err
	}
	ids, err := findStores(data)
	if err != nil {
		return nil, nil, err
	}
	for _, id := range ids {
		if err := n.serve(id, id == first); err != nil {
			return nil, nil, err
		}
	}
	n.meshes = start(context.WithoutCancel(ctx))
	n.meshes.run("mesh", n.mesh.Run)
	return n, func() error {
		err := errors.Join(n.meshes.stop(), n.engine.stop())
		for _, st := range n.all {
			err = errors.Join(err, st.Close())
		}
		return err
	}, nil
}

// serve opens a store, runs it, and has it take part.
func (n *twin) serve(id lattice.StoreID, first bool) error {
	st, err := store.Open(storeConfig(n.cfg, n.key, id, slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	n.engine.run("store", st.Run)
	if n.all = append(n.all, st); first {
		n.first = st
	}
	return takePart(n.mesh, st, keyval.Staging{FS: disk.OS(), Dir: filepath.Join(storesPath(n.cfg.Data), "incoming", "peers")})
}

// join redeems a token and serves its store, as the default.
func (n *twin) join(ctx context.Context, t invite.Token) error {
	genesis, err := n.mesh.Join(ctx, t)
	if err != nil {
		return err
	}
	e, err := sigchain.Parse(genesis)
	if err != nil {
		return err
	}
	id, err := store.JoinBy(disk.OS(), storesPath(n.cfg.Data), e, store.JoinedRecord{Inviter: t.Inviter, Invitation: t.ID()}, slog.New(slog.DiscardHandler))
	if err == nil {
		err = writeDefault(n.cfg.Data, id)
	}
	if err != nil {
		return err
	}
	return n.serve(id, true)
}

func setKey(st *store.Store, key, value string) error {
	tk, err := st.State().Update(func(tx *keyval.Tx) error { return structs.In(tx, "0").Set([]byte(key), []byte(value), false) })
	if err != nil {
		return err
	}
	return tk.Wait(context.Background())
}

func getKey(t testing.TB, st *store.Store, key string) string {
	t.Helper()
	var v structs.Value
	tk, err := st.State().View(func(tx *keyval.Tx) (err error) { v, _, err = structs.In(tx, "0").Get([]byte(key)); return err })
	if err = errors.Join(err, tk.Wait(context.Background())); err != nil {
		t.Fatal(err)
	}
	return string(v.Bytes)
}

// soon waits until a condition holds.
func soon(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for range 6000 {
		if cond() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("it never came to: %s", what)
}

// invited makes an invitation on a node.
func invited(t testing.TB, n *twin, role roster.Role) invite.Token {
	t.Helper()
	token, _, err := n.first.Invite(t.Context(), role, time.Hour, n.mesh.Addresses()...)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func rootOf(t testing.TB, st *store.Store) lattice.Hash {
	t.Helper()
	r, err := st.State().Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r.Hash
}

// alike waits until two stores have one state root.
func alike(t testing.TB, a, b *store.Store) {
	t.Helper()
	soon(t, "equal state roots", func() bool { return rootOf(t, a) == rootOf(t, b) })
}

// TestTwoReplicas: a node joins another's store by its token. From then on what one
// writes is on both, both ways, also what was written while the other was away, and
// after restarts, with nothing to be done.
func TestTwoReplicas(t *testing.T) {
	da, db := t.TempDir(), t.TempDir()
	a, stopA := runTwin(t, da)
	b, stopB := runTwin(t, db)
	if err := setKey(a.first, "before", "1"); err != nil {
		t.Fatal(err)
	}
	token := invited(t, a, roster.Writer)
	if err := b.join(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	if b.first.Info().ID != a.first.Info().ID || len(b.all) != 2 {
		t.Fatalf("the default is %s, want %s", b.first.Info().ID, a.first.Info().ID)
	}
	soon(t, "what was there before", func() bool { return getKey(t, b.first, "before") == "1" })
	soon(t, "the right to write", func() bool { return b.first.Role() == roster.Writer })
	if err := errors.Join(setKey(a.first, "a", "1"), setKey(b.first, "b", "1")); err != nil {
		t.Fatal(err)
	}
	soon(t, "both ways", func() bool { return getKey(t, b.first, "a") == "1" && getKey(t, a.first, "b") == "1" })
	if genesis, err := b.mesh.Join(t.Context(), token); err != nil || string(genesis) != string(a.first.Genesis().Bytes()) {
		t.Errorf("the same token again: %v", err)
	}

	// B is away, and A goes on writing.
	writeMany(t, b.first, "b", 300)
	stopB()
	writeMany(t, a.first, "a", 300)
	b, _ = runTwin(t, db)
	soon(t, "what was written while it was away", func() bool { return getKey(t, b.first, "a299") != "" && getKey(t, a.first, "b299") != "" })
	alike(t, a.first, b.first)

	// A is away, comes back, and writes first.
	stopA()
	if err := setKey(b.first, "alone", "1"); err != nil {
		t.Fatal(err)
	}
	a, _ = runTwin(t, da)
	if err := setKey(a.first, "back", "1"); err != nil {
		t.Fatal(err)
	}
	soon(t, "A is back", func() bool { return getKey(t, a.first, "alone") == "1" && getKey(t, b.first, "back") == "1" })
	alike(t, a.first, b.first)
}

func writeMany(t testing.TB, st *store.Store, prefix string, n int) {
	t.Helper()
	for i := range n {
		if err := setKey(st, fmt.Sprint(prefix, i), strings.Repeat(prefix, i+1)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReaderWritesNothing: who was invited as a reader gets everything and is refused
// its own writes by name.
func TestReaderWritesNothing(t *testing.T) {
	a, _ := runTwin(t, t.TempDir())
	b, _ := runTwin(t, t.TempDir())
	if err := setKey(a.first, "k", "1"); err != nil {
		t.Fatal(err)
	}
	if err := b.join(t.Context(), invited(t, a, roster.Reader)); err != nil {
		t.Fatal(err)
	}
	soon(t, "the key", func() bool { return getKey(t, b.first, "k") == "1" && b.first.Role() == roster.Reader })
	if err := setKey(b.first, "k", "2"); lattice.KindOf(err) != lattice.Denied {
		t.Errorf("a reader writes: %v", err)
	}
	alike(t, a.first, b.first)
}

// TestSnapshotForANewMember: of a store whose entries were pruned a new member gets
// the snapshot, and what was written since.
func TestSnapshotForANewMember(t *testing.T) {
	a, _ := runTwin(t, t.TempDir())
	b, _ := runTwin(t, t.TempDir())
	writeMany(t, a.first, "k", 200)
	if _, err := a.first.State().Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.first.State().PruneAnyway(t.Context(), lattice.Hash{}); err != nil {
		t.Fatal(err)
	}
	if err := setKey(a.first, "since", "1"); err != nil {
		t.Fatal(err)
	}
	if err := b.join(t.Context(), invited(t, a, roster.Writer)); err != nil {
		t.Fatal(err)
	}
	soon(t, "all of it", func() bool {
		return getKey(t, b.first, "k199") != "" && getKey(t, b.first, "since") == "1" && b.first.Role() == roster.Writer
	})
	if err := setKey(b.first, "mine", "1"); err != nil {
		t.Fatal(err)
	}
	soon(t, "the way back", func() bool { return getKey(t, a.first, "mine") == "1" })
	alike(t, a.first, b.first)
}

// childEnv has this test binary be a node, for the test that kills one: the data
// directory, and a token to join with, or nothing.
const childEnv = "LATTICE_MESH_TEST_CHILD"

// runChild is that node. It writes keys and says on its output which of them are
// durable, until it is killed.
func runChild(arg string) error {
	data, token, _ := strings.Cut(arg, "\n")
	n, _, err := startTwin(context.Background(), data)
	if err != nil {
		return err
	}
	if token != "" {
		t, err := invite.Parse(token)
		if err != nil {
			return err
		}
		if err := n.join(context.Background(), t); err != nil {
			return err
		}
	}
	st := n.first
	for i := 0; ; i++ {
		key, value := fmt.Sprintf("child%d", i%50), fmt.Sprintf("%d-%d", time.Now().UnixNano(), i)
		switch err := setKey(st, key, value); {
		case lattice.KindOf(err) == lattice.Denied && err != nil:
			time.Sleep(10 * time.Millisecond) // not a member yet, as far as it knows
		case err != nil:
			return err
		default:
			fmt.Println(key, value)
		}
	}
}

// TestKilledNode kills a node with kill -9 again and again, while it writes, gets what
// another writes, and sends its own. What it had acknowledged is on both afterwards,
// and they are in one state.
func TestKilledNode(t *testing.T) {
	a, _ := runTwin(t, t.TempDir())
	sa := a.first
	data := t.TempDir()
	token := invited(t, a, roster.Writer).Text()
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	acked, mine := map[string]string{}, 0
	for round := range rounds {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), childEnv+"="+data+"\n"+token)
		out, in := io.Pipe()
		var trouble strings.Builder
		cmd.Stdout, cmd.Stderr = in, &trouble
		p, err := realnode.Spawn(cmd)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		go func() { <-p.Exited(); _ = in.Close() }()
		// It is killed after so many writes of its own.
		for left := 20 + rand.IntN(400); lines.Scan(); {
			key, value, ok := strings.Cut(lines.Text(), " ")
			if ok {
				acked[key] = value
			}
			if mine++; mine%7 == 0 {
				if err := setKey(sa, "parent"+strconv.Itoa(mine%50), fmt.Sprint(mine)); err != nil {
					t.Fatal(err)
				}
			}
			if left--; left == 0 {
				go p.Kill() // what it has written to the pipe is still read
			}
		}
		p.Kill()
		if trouble.Len() > 0 {
			t.Fatalf("round %d: %s", round, trouble.String())
		}
		token = ""
	}
	if r, err := fsck.Check(disk.OS(), data, fsck.Options{}); err != nil || !r.Valid() {
		t.Errorf("what was killed is damaged: %v %v", r.Findings, err)
	}
	b, _ := runTwin(t, data)
	sb := b.first
	if len(acked) < 10 {
		t.Fatalf("%d keys were written", len(acked))
	}
	alike(t, sa, sb)
	for key, want := range acked {
		got, had := getKey(t, sa, key), getKey(t, sb, key)
		if got != had || stamp(got) < stamp(want) {
			t.Errorf("%s is %q and %q, %q was acknowledged", key, got, had, want)
		}
	}
}

// stamp is when a value of the child was written.
func stamp(value string) int64 {
	at, _, _ := strings.Cut(value, "-")
	n, _ := strconv.ParseInt(at, 10, 64)
	return n
}

// TestMeshPort: a port that was chosen once stays, where the setting leaves the choice.
func TestMeshPort(t *testing.T) {
	data := t.TempDir()
	if err := keepPort(data, 0, []string{"/ip4/127.0.0.1/udp/9/quic-v1", "/ip4/127.0.0.1/tcp/12"}); err != nil {
		t.Fatal(err)
	}
	kept, err := keptPort(data)
	if got := withPort([]string{"/ip4/127.0.0.1/tcp/7", "/ip4/127.0.0.1/tcp/0", "/ip6/::1/tcp/0"}, kept); err != nil || kept != 12 || got[0] != "/ip4/127.0.0.1/tcp/7" || got[1] != "/ip4/127.0.0.1/tcp/12" {
		t.Errorf("kept %d, %v: %v", kept, err, got)
	}
	if err := os.WriteFile(filepath.Join(data, portFile), []byte("?"), 0o600); err != nil {
		t.Fatal(err)
	}
	if kept, err := keptPort(data); kept != 0 || err != nil {
		t.Errorf("a port that is none: %d, %v", kept, err)
	}
}
