package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mrand "math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/invite"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// member is a fixture with a key of its own, in a store that it made or joined.
type member struct {
	*fixture
	mem *disk.Mem
}

func keyOf(name string) identity.Key {
	var seed [32]byte
	copy(seed[:], name)
	return identity.FromSeed(seed)
}

// founder makes a store.
func founder(t *testing.T, name string, clock tick.Clock) *member {
	t.Helper()
	m := &member{mem: disk.NewMem()}
	cfg := memberConfig(t, m.mem, name, clock)
	id, err := Create(m.mem, "/data/stores", cfg.Key, "main", clock, cfg.Rand, cfg.Logger)
	if err != nil {
		t.Fatal(err)
	}
	m.begin(t, cfg, id)
	return m
}

func memberConfig(t *testing.T, fs disk.FS, name string, clock tick.Clock) Config {
	t.Helper()
	if err := disk.MkdirAll(fs, "/data/stores"); err != nil {
		t.Fatal(err)
	}
	return Config{FS: fs, Key: keyOf(name), Clock: clock, Rand: rand.Reader, Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))}
}

func (m *member) begin(t *testing.T, cfg Config, id lattice.StoreID) {
	t.Helper()
	cfg.Dir = "/data/stores/" + id.String()
	m.fixture = &fixture{t: t, cfg: cfg}
	m.open()
}

// joiner joins the store of another, by a token, without having heard of its admission.
func (m *member) joiner(name string, role roster.Role) *member {
	m.t.Helper()
	token, _, err := m.Invite(context.Background(), role, time.Hour, "/ip4/127.0.0.1/tcp/1")
	m.must(err)
	again, err := invite.Parse(token.Text())
	m.must(err)
	m.must(m.Redeem(context.Background(), again.Claim(keyOf(name).Author())))
	j := &member{mem: disk.NewMem()}
	cfg := memberConfig(m.t, j.mem, name, m.cfg.Clock)
	id, err := Join(j.mem, "/data/stores", m.Genesis(), m.Info().Node, cfg.Logger)
	m.must(err)
	j.begin(m.t, cfg, id)
	return j
}

func (m *member) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// chains returns all entries that the member has, durable, each log's in order.
func (m *member) chains() [][]sigchain.Signed {
	m.t.Helper()
	var out [][]sigchain.Signed
	for _, l := range m.State().LogStates() {
		var chain []sigchain.Signed
		for at := uint64(0); at < l.Tip.Seq; at = uint64(len(chain)) {
			span, err := m.State().ReadSpan(l.Writer, at, l.Tip.Seq, 1<<20)
			m.must(err)
			for _, b := range span.Entries {
				e, err := sigchain.Parse(b)
				m.must(err)
				chain = append(chain, e)
			}
		}
		out = append(out, chain)
	}
	return out
}

// receive gives the member what others have, in an order that keeps each chain's, cut
// into pieces, and offers what was refused for now again until all was taken.
func (m *member) receive(rng *mrand.Rand, from ...*member) {
	m.t.Helper()
	var chains [][]sigchain.Signed
	for _, o := range from {
		chains = append(chains, o.chains()...)
	}
	for rounds := 0; ; rounds++ {
		var piece []sigchain.Signed
		for range 1 + rng.IntN(8) {
			if i := rng.IntN(len(chains)); len(chains[i]) > 0 {
				n := 1 + rng.IntN(min(3, len(chains[i])))
				piece, chains[i] = append(piece, chains[i][:n]...), chains[i][n:]
			}
		}
		got, err := m.State().Receive(piece)
		m.must(err)
		for i, r := range got {
			switch k := lattice.KindOf(r.Err); {
			case r.Err == nil:
			case k == lattice.NotYet || k == lattice.Denied:
				chains = append(chains, []sigchain.Signed{piece[i]})
			default:
				m.t.Fatal(r.Err)
			}
		}
		if !slices.ContainsFunc(chains, func(c []sigchain.Signed) bool { return len(c) > 0 }) {
			break
		}
		if rounds > 10_000 {
			m.t.Fatal("some entries are never taken")
		}
	}
	m.settle()
}

// settle waits until what was received has been followed.
func (m *member) settle() {
	m.t.Helper()
	_, err := m.followNews()
	m.must(err)
	m.must(m.groups.Refresh(nil))
}

// catalogue says what clients see of topics and offsets, one a line.
func (m *member) catalogue() string {
	var b strings.Builder
	for _, t := range m.Topics() {
		fmt.Fprintf(&b, "topic %s %s %d %v by %s created as %q\n", t.Name, t.ID, t.Partitions, t.Config, t.Leader.Short(), t.CreatedAs)
	}
	for _, g := range m.Groups().List() {
		for _, o := range m.Groups().FetchOffsets(group.FetchRequest{Group: g.Group, All: true}).Offsets {
			fmt.Fprintf(&b, "group %s %s/%d %d %q\n", g.Group, o.Topic, o.Partition, o.Offset, o.Metadata)
		}
	}
	return b.String()
}

func (m *member) commit(name string, id lattice.TopicID, part int32, offset int64) error {
	done := make(chan group.CommitResult, 1)
	m.Groups().CommitOffsets(group.CommitRequest{Group: name, Generation: -1, Offsets: []group.OffsetCommit{{
		TopicPartition: lattice.TopicPartition{Topic: id, Partition: part}, Offset: offset, LeaderEpoch: -1,
	}}}, func(r group.CommitResult) { done <- r })
	r := <-done
	return errors.Join(append(r.Partitions, r.Err)...)
}

func (m *member) offset(name, topic string, part int32) int64 {
	for _, o := range m.Groups().FetchOffsets(group.FetchRequest{Group: name, All: true}).Offsets {
		if o.Topic == topic && o.Partition == part {
			return o.Offset
		}
	}
	return -1
}

func (m *member) find(name string) Topic {
	m.t.Helper()
	t, ok := m.Topic(name)
	if !ok {
		m.t.Fatalf("no topic %q; there are\n%s", name, m.catalogue())
	}
	return t
}

func rng(seed uint64) *mrand.Rand { return mrand.New(mrand.NewPCG(seed, 9)) }

// TestJoin: a store joined from another's genesis has nothing and writes nothing until
// the admission arrives; then it writes, also after a restart.
func TestJoin(t *testing.T) {
	clock := tick.NewManual(time.UnixMilli(1_767_225_600_000))
	a := founder(t, "ann", clock)
	a.topic("orders", 2, nil)
	b := a.joiner("bob", roster.Writer)
	if b.Info().ID != a.Info().ID || b.Info().Name != "main" || b.Info().Creator != a.Info().Node || b.Role() != roster.None {
		t.Fatalf("%+v, %s", b.Info(), b.Role())
	}
	_, err := b.CreateTopic(t.Context(), NewTopic{Name: "early"})
	if lattice.KindOf(err) != lattice.Denied || !strings.Contains(err.Error(), "arrives with the first sync") {
		t.Fatalf("a write before the admission: %v", err)
	}
	if err := b.commit("g", a.find("orders").ID, 0, 1); !errors.Is(err, group.ErrUnknownTopicOrPartition) {
		t.Fatalf("a commit before anything is here: %v", err)
	}
	b.restart()
	b.receive(rng(1), a)
	if b.Role() != roster.Writer {
		t.Fatalf("its role is %s", b.Role())
	}
	b.topic("late", 1, nil)
	b.restart()
	b.topic("later", 1, nil)
	a.receive(rng(2), b)
	if a.catalogue() != b.catalogue() {
		t.Fatalf("ann has\n%s, bob\n%s", a.catalogue(), b.catalogue())
	}
	if _, err := Join(b.mem, "/data/stores", a.Genesis(), a.Info().Node, b.cfg.Logger); lattice.KindOf(err) != lattice.Exists {
		t.Fatalf("joined twice: %v", err)
	}
}

// TestOthersTopics: topics that another node creates, changes and deletes are here at
// once, with followers of their partitions.
func TestOthersTopics(t *testing.T) {
	clock := tick.NewManual(time.UnixMilli(1_767_225_600_000))
	a := founder(t, "ann", clock)
	b := a.joiner("bob", roster.Writer)
	b.receive(rng(1), a)
	orders := a.topic("orders", 2, map[string]string{"retention.ms": "1000"})
	jobs := b.topic("jobs", 1, nil)
	b.receive(rng(2), a)
	a.receive(rng(3), b)
	got := b.find("orders")
	if got.ID != orders.ID || got.Leader != a.Info().Node || got.Partitions != 2 || got.Config["retention.ms"] != "1000" {
		t.Fatalf("%+v", got)
	}
	if _, err := produce(b.part(orders, 1), batchOf(clock.Now().UnixMilli(), "x")); lattice.KindOf(err) != lattice.NotLeader {
		t.Fatalf("a record for a partition that ann leads: %v", err)
	}
	if st := b.part(orders, 1).Status(); !st.Follower || st.Leader != a.Info().Node {
		t.Fatalf("%+v", st)
	}
	if _, err := b.Partition(orders.ID, 2); !errors.Is(err, ErrNoTopic) {
		t.Fatalf("a partition that there is not: %v", err)
	}
	b.part(jobs, 0)
	if _, err := b.CreateTopic(t.Context(), NewTopic{Name: "orders"}); !errors.Is(err, ErrTopicExists) {
		t.Fatalf("another one of that name: %v", err)
	}

	// What bob changes takes effect at ann, who leads it.
	ms := "5000"
	b.must(b.AlterTopic(t.Context(), orders.ID, []ConfigChange{{Name: "segment.ms", Value: &ms}}, false, false))
	b.must(b.AddPartitions(t.Context(), orders.ID, 5, false))
	a.receive(rng(4), b)
	if got := a.find("orders"); got.Partitions != 5 || got.Config["segment.ms"] != "5000" || got.Config["retention.ms"] != "1000" {
		t.Fatalf("%+v", got)
	}
	if _, err := produce(a.part(a.find("orders"), 4), batchOf(clock.Now().UnixMilli(), "x")); err != nil {
		t.Fatal(err)
	}
	a.restart()
	b.restart()
	if a.catalogue() != b.catalogue() {
		t.Fatalf("ann has\n%s, bob\n%s", a.catalogue(), b.catalogue())
	}

	b.must(b.DeleteTopic(t.Context(), orders.ID))
	a.receive(rng(5), b)
	if _, ok := a.Topic("orders"); ok {
		t.Fatal("ann still has what bob deleted")
	}
	if _, err := a.mem.Stat(a.topicDir(orders.ID)); !disk.IsNotExist(err) {
		t.Fatalf("its files are still there: %v", err)
	}
	a.restart()
	if _, ok := a.Topic("orders"); ok {
		t.Fatal("it came back")
	}
}

// TestChangeWhileDeleted: a change that had not seen the deletion does not bring the
// topic back, on either node and after restarts.
func TestChangeWhileDeleted(t *testing.T) {
	clock := tick.NewManual(time.UnixMilli(1_767_225_600_000))
	a := founder(t, "ann", clock)
	b := a.joiner("bob", roster.Writer)
	orders := a.topic("orders", 1, nil)
	b.receive(rng(1), a)
	ms := "5000"
	a.must(a.AlterTopic(t.Context(), orders.ID, []ConfigChange{{Name: "segment.ms", Value: &ms}}, false, false))
	b.must(b.DeleteTopic(t.Context(), orders.ID))
	a.receive(rng(2), b)
	b.receive(rng(3), a)
	for _, m := range []*member{a, b} {
		for range 2 {
			if _, ok := m.Topic("orders"); ok {
				t.Fatal("it is there")
			}
			m.restart()
		}
	}
	b.must(b.AddPartitions(t.Context(), b.topic("orders", 1, nil).ID, 2, false))
	a.receive(rng(4), b)
	if a.find("orders").Leader != b.Info().Node {
		t.Fatal("bob's is not the one")
	}
}

// TestOneNameTwice: of two topics that were created with one name apart, the earlier
// has it, on both nodes; the other is NAME.dup-ID, with its records.
func TestOneNameTwice(t *testing.T) {
	for _, first := range []string{"ann", "bob"} {
		t.Run(first, func(t *testing.T) {
			clock := tick.NewManual(time.UnixMilli(1_767_225_600_000))
			a := founder(t, "ann", clock)
			b := a.joiner("bob", roster.Writer)
			b.receive(rng(1), a)
			one, two := a, b
			if first == "bob" {
				one, two = b, a
			}
			early := one.topic("orders", 1, nil)
			clock.Advance(time.Second)
			late := two.topic("orders", 1, nil)
			if _, err := produce(two.part(late, 0), batchOf(clock.Now().UnixMilli(), "x", "y", "z")); err != nil {
				t.Fatal(err)
			}
			a.receive(rng(2), b)
			b.receive(rng(3), a)
			if a.catalogue() != b.catalogue() {
				t.Fatalf("ann has\n%s, bob\n%s", a.catalogue(), b.catalogue())
			}
			dup := "orders.dup-" + late.ID.String()[:8]
			if got := two.find("orders"); got.ID != early.ID {
				t.Fatalf("orders is %s", got.ID)
			}
			for range 2 {
				got := two.find(dup)
				if got.ID != late.ID || got.CreatedAs != "orders" {
					t.Fatalf("%+v", got)
				}
				if b := two.part(got, 0).Bounds(); b.Committed != 3 {
					t.Fatalf("its records: %+v", b)
				}
				two.restart()
			}
			two.must(two.DeleteTopic(t.Context(), early.ID))
			if got := two.find("orders"); got.ID != late.ID || got.CreatedAs != "" {
				t.Fatalf("when the first is gone: %+v", got)
			}
		})
	}
}

// TestOthersOffsets: offsets that others commit are here; none is lost or goes back
// where two commit apart, and a deliberate rewind stands.
func TestOthersOffsets(t *testing.T) {
	clock := tick.NewManual(time.UnixMilli(1_767_225_600_000))
	a := founder(t, "ann", clock)
	b := a.joiner("bob", roster.Writer)
	orders := a.topic("orders", 2, nil)
	b.receive(rng(1), a)
	a.must(a.commit("g", orders.ID, 0, 0)) // 0 is an offset
	a.must(a.commit("g", orders.ID, 1, 100))
	b.receive(rng(2), a)
	if b.offset("g", "orders", 0) != 0 || b.offset("g", "orders", 1) != 100 {
		t.Fatalf("bob has\n%s", b.catalogue())
	}
	clock.Advance(time.Second)
	b.must(b.commit("g", orders.ID, 1, 150))
	a.must(a.commit("g", orders.ID, 1, 120))
	a.receive(rng(3), b)
	b.receive(rng(4), a)
	for _, m := range []*member{a, b} {
		if m.offset("g", "orders", 1) != 150 {
			t.Fatalf("of 120 and 150:\n%s", m.catalogue())
		}
	}
	clock.Advance(time.Second)
	a.must(a.commit("g", orders.ID, 1, 7)) // a rewind, while bob, who has not seen it, goes on
	b.must(b.commit("g", orders.ID, 1, 160))
	a.receive(rng(5), b)
	b.receive(rng(6), a)
	for _, m := range []*member{a, b} {
		if m.offset("g", "orders", 1) != 7 {
			t.Fatalf("after a rewind:\n%s", m.catalogue())
		}
		m.restart()
		if m.offset("g", "orders", 1) != 7 {
			t.Fatalf("after a restart:\n%s", m.catalogue())
		}
	}
	done := make(chan error, 1)
	b.Groups().DeleteGroup("g", func(err error) { done <- err })
	b.must(<-done)
	a.receive(rng(7), b)
	if got := a.offset("g", "orders", 1); got != -1 {
		t.Fatalf("the group that bob deleted has %d", got)
	}
	if slices.ContainsFunc(a.Groups().List(), func(g group.Listing) bool { return g.Group == "g" }) {
		t.Fatal("the group is still listed")
	}
}

// TestNotItsOwnToExpire: a node leaves alone what another committed for a group that
// has no members here.
func TestNotItsOwnToExpire(t *testing.T) {
	clock := tick.NewManual(time.UnixMilli(1_767_225_600_000))
	a := founder(t, "ann", clock)
	b := a.joiner("bob", roster.Writer)
	orders := a.topic("orders", 1, nil)
	a.must(a.commit("g", orders.ID, 0, 5))
	b.receive(rng(1), a)
	b.must(b.commit("mine", orders.ID, 0, 6))
	for range 200 {
		clock.Advance(time.Hour)
	}
	waitFor(t, func() bool { return b.offset("mine", "orders", 0) == -1 })
	if b.offset("g", "orders", 0) != 5 {
		t.Fatalf("bob expired ann's:\n%s", b.catalogue())
	}
}

func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never happens")
		}
	}
}

// TestFollowsByItself: nobody has to ask for what others wrote.
func TestFollowsByItself(t *testing.T) {
	clock := tick.NewManual(time.UnixMilli(1_767_225_600_000))
	a := founder(t, "ann", clock)
	b := a.joiner("bob", roster.Writer)
	orders := a.topic("orders", 1, nil)
	a.must(a.commit("g", orders.ID, 0, 5))
	for _, chain := range a.chains() {
		_, err := b.State().Receive(chain)
		b.must(err)
	}
	waitFor(t, func() bool { return b.offset("g", "orders", 0) == 5 })
}
