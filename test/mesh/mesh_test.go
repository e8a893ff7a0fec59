// Package mesh has no code of its own: its test runs three nodes, each the command as
// users have it in a network namespace of its own, breaks the network between them and
// the nodes themselves while Kafka and Redis clients write on all of them, and then asks
// that all three have the same state and everything that was acknowledged.
//
// It takes about two minutes; "make mesh DURATION=1h" is a longer form, in which the same
// things happen again and again.
package mesh

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
)

const (
	kafkaAt  = "127.0.0.1:9092" // inside each node's namespace
	redisAt  = "127.0.0.1:6379"
	meshPort = "7946"
	patience = 3 * time.Minute // for one thing that must happen on a busy machine
)

// machine is a node, and where it runs.
type machine struct {
	t     *testing.T
	net   *network
	i     int
	label string // of its clients, another after its disk was emptied
	bin   string // the command inside its namespace
	cli   string
	dir   string
	acked *acked
	node  *realnode.Node
	keys  int // that its clients have set
}

func (m *machine) start() {
	m.t.Helper()
	m.node = realnode.Start(m.t, m.bin, m.dir, "--kafka", kafkaAt, "--redis", redisAt, "--http", "", "--mesh", m.net.address(m.i)+":"+meshPort, "--insecure")
}

// command runs the command against the node, and returns what it prints.
func (m *machine) command(args ...string) string {
	m.t.Helper()
	cmd := exec.Command(m.cli, append(args, "--data", m.dir)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		m.t.Fatalf("%s: lattice %s: %v\n%s", m.label, strings.Join(args, " "), err, errs.String())
	}
	return strings.TrimSpace(string(out))
}

// roots are what lattice status says of the node's store.
type roots struct {
	State    string `json:"state_root"`
	Frontier string `json:"frontier_root"`
}

func (m *machine) roots(store string) roots {
	m.t.Helper()
	var st struct {
		Stores []struct {
			ID string `json:"id"`
			roots
		} `json:"stores"`
	}
	if err := json.Unmarshal([]byte(m.command("status", "-o", "json")), &st); err != nil {
		m.t.Fatal(err)
	}
	for _, s := range st.Stores {
		if s.ID == store {
			return s.roots
		}
	}
	m.t.Fatalf("%s has no store %s", m.label, store)
	return roots{}
}

// fleet is the nodes, and the store that they share.
type fleet struct {
	t      *testing.T
	net    *network
	all    []*machine
	store  string
	acked  *acked
	topics []string
	going  []*writers
}

func newFleet(t *testing.T) *fleet {
	bin := realnode.Build(t)
	f := &fleet{t: t, net: newNetwork(t, 3), acked: newAcked()}
	for i := 1; i <= 3; i++ {
		m := &machine{t: t, net: f.net, i: i, label: fmt.Sprintf("n%d", i), bin: f.net.wrapper(i, bin), cli: bin, dir: filepath.Join(t.TempDir(), fmt.Sprint("n", i)), acked: f.acked}
		f.all = append(f.all, m)
		m.start()
	}
	var info struct{ Store string }
	b, err := os.ReadFile(filepath.Join(f.all[0].dir, "node.json"))
	if err == nil {
		err = json.Unmarshal(b, &info)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.store = info.Store
	for _, m := range f.all[1:] {
		f.join(m)
	}
	for _, m := range f.all {
		f.eventually("topic of "+m.label, func() string {
			out, err := exec.Command(m.cli, "topic", "create", "of-"+m.label, "--partitions", "2", "--data", m.dir).CombinedOutput()
			if err != nil && !strings.Contains(string(out), "exists") {
				return string(out)
			}
			return ""
		})
		f.topics = append(f.topics, "of-"+m.label)
	}
	return f
}

// join has a machine join the first one's store.
func (f *fleet) join(m *machine) {
	f.t.Helper()
	m.command("peer", "join", f.all[0].command("peer", "invite", "--role", "admin"))
}

// eventually waits until f has nothing to say.
func (f *fleet) eventually(what string, wrong func() string) {
	f.t.Helper()
	said := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if said = wrong(); said == "" {
			return
		}
	}
	f.t.Fatalf("%s: %s", what, said)
}

// write begins writing on machines, to the topics that they can write to.
func (f *fleet) write(all ...*machine) {
	for _, m := range all {
		f.going = append(f.going, m.write(f.topics))
	}
}

func (f *fleet) pause() {
	for _, w := range f.going {
		w.stop()
	}
	f.going = nil
}

// equal waits until all nodes say that they have the same.
func (f *fleet) equal() {
	f.t.Helper()
	f.eventually("equal roots", func() string {
		want := f.all[0].roots(f.store)
		for _, m := range f.all[1:] {
			if got := m.roots(f.store); got != want {
				return fmt.Sprintf("%s has %+v, %s %+v", f.all[0].label, want, m.label, got)
			}
		}
		return ""
	})
}

// complete checks that each node has everything that was acknowledged.
func (f *fleet) complete() {
	f.t.Helper()
	for _, s := range f.acked.wrong {
		f.t.Error(s)
	}
	for _, m := range f.all {
		if s := m.missing(f.acked); s != "" {
			f.t.Fatalf("%s: %s", m.label, s)
		}
	}
}

// phase lets clients write while something is wrong, and requires that they got on if
// they can.
func (f *fleet) phase(name string, d time.Duration) {
	f.t.Helper()
	r0, k0 := f.acked.counts()
	time.Sleep(d)
	f.eventually(name, func() string {
		r, k := f.acked.counts()
		if r == r0 || k == k0 {
			return fmt.Sprintf("%d records and %d keys were acknowledged, and none since", r, k)
		}
		return ""
	})
	r, k := f.acked.counts()
	f.t.Logf("%s: %d records and %d keys acknowledged", name, r-r0, k-k0)
}

// TestMesh: see the package comment.
func TestMesh(t *testing.T) {
	length := 36 * time.Second
	if testing.Short() {
		length = 9 * time.Second
	}
	if s := os.Getenv("LATTICE_MESH_DURATION"); s != "" {
		var err error
		if length, err = time.ParseDuration(s); err != nil || length < time.Second {
			t.Fatalf("LATTICE_MESH_DURATION=%q: want a duration, such as 1h", s)
		}
	}
	f := newFleet(t)
	end := time.Now().Add(length)
	for round := 1; round == 1 || time.Now().Before(end); round++ {
		f.round(min(length/9, 10*time.Second))
	}
	f.equal()
	f.complete()
	r, k := f.acked.counts()
	t.Logf("%d records and %d keys were acknowledged, and are on all nodes", r, k)
}

// round does everything that goes wrong once.
func (f *fleet) round(d time.Duration) {
	one, two, three := f.all[0], f.all[1], f.all[2]
	f.write(f.all...)
	f.phase("all is well", d)
	f.net.rules("numgen random mod 100 < 5 drop")
	f.phase("5% of packets are lost", d)
	f.net.rules("")
	f.net.rate("2mbit")
	f.phase("2 Mbit/s", d)
	f.net.rate("")
	f.net.rules("1 3 drop\n3 1 drop\n2 3 drop\n3 2 drop")
	f.phase("the third is cut off", d)
	f.net.rules("1 2 drop\n3 2 drop")
	f.phase("the second hears nobody", d)
	f.net.rules("")
	f.phase("all is mended", d)
	two.node.Kill()
	f.phase("the second is killed", d)
	two.start()
	f.phase("the second runs again", d)

	// Who loses a disk loses what is nowhere else; so it is first made sure that nothing is.
	f.pause()
	f.equal()
	f.complete()
	f.write(one, two)
	three.node.Kill()
	if err := os.RemoveAll(three.dir); err != nil {
		f.t.Fatal(err)
	}
	three.label += "'"
	three.start()
	f.join(three)
	f.phase("the disk of the third is emptied", d)
	f.pause()
	f.equal()
	f.complete()
	// What it led is led by nobody any more.
	f.topics = f.topics[:2]
}
