package partition_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/segment"
)

var (
	ann, bob = identity.FromSeed([32]byte{1}), identity.FromSeed([32]byte{2})
	tp       = lattice.TopicPartition{Topic: lattice.TopicID{7}, Partition: 3}
	store    = lattice.StoreID{9}
)

const dir = "/p"

// tb is what a replica needs of a test.
type tb interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// files is a partition.Meta in files of a file system, so that it crashes with the log.
type files struct {
	mu sync.Mutex
	fs disk.FS
}

func (f *files) name(s string) string { return f.fs.PathJoin("/meta", s) }

func (f *files) get(name string) ([]byte, error) {
	b, err := disk.ReadFile(f.fs, f.name(name))
	if disk.IsNotExist(err) {
		return nil, nil
	}
	return b, err
}

func (f *files) put(name string, b []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := disk.MkdirAll(f.fs, "/meta"); err != nil {
		return err
	}
	return disk.WriteFile(f.fs, f.name(name), b)
}

// split takes apart grants in a row.
func split(b []byte, err error) ([][]byte, error) {
	var out [][]byte
	for len(b) > 0 && err == nil {
		var g grant.Signed
		g, b, err = grant.Cut(b)
		out = append(out, g.Bytes())
	}
	return out, err
}

// line has the grants that rule, and behind a length those that lost, so that a change of
// both is one step.
func (f *files) line() (rules, lost []byte, err error) {
	b, err := f.get("grants")
	if len(b) == 0 || err != nil {
		return nil, nil, err
	}
	n := binary.BigEndian.Uint32(b)
	return b[4:][:n], b[4+n:], nil
}

func (f *files) putLine(rules, lost []byte) error {
	b := append(binary.BigEndian.AppendUint32(nil, uint32(len(rules))), rules...)
	return f.put("grants", append(b, lost...))
}

func (f *files) Grants() ([][]byte, error) {
	rules, _, err := f.line()
	return split(rules, err)
}

func (f *files) PutGrant(_ int32, signed []byte) error {
	rules, lost, err := f.line()
	if err != nil || bytes.Contains(rules, signed) {
		return err
	}
	return f.putLine(append(slices.Clone(rules), signed...), lost)
}

func (f *files) Lost() ([][]byte, error) {
	_, lost, err := f.line()
	return split(lost, err)
}

func (f *files) Switch(line, more [][]byte) error {
	_, lost, err := f.line()
	if err != nil {
		return err
	}
	var rules []byte
	for _, b := range line {
		g, evidence, err := grant.Cut(b)
		if err == nil && len(evidence) > 0 {
			err = f.PutEvidence(g.Term, evidence)
		}
		if err != nil {
			return err
		}
		rules = append(rules, g.Bytes()...)
	}
	for _, b := range more {
		g, _, err := grant.Cut(b)
		if err != nil {
			return err
		}
		lost = append(slices.Clone(lost), g.Bytes()...)
	}
	return f.putLine(rules, lost)
}

func (f *files) DropStatementsFrom(int64) error          { return nil }
func (f *files) Snapshot() ([]byte, error)               { return f.get("snapshot") }
func (f *files) PutSnapshot(b []byte) error              { return f.put("snapshot", b) }
func (f *files) Statements(int64) ([][]byte, error)      { return nil, nil }
func (f *files) PutStatement(base int64, b []byte) error { return f.put(fmt.Sprintf("s-%d", base), b) }
func (f *files) Settle(int64) error                      { return nil }
func (f *files) DropStatements(int64) error              { return nil }
func (f *files) Cosigned() ([]byte, error)               { return f.get("cosigned") }
func (f *files) PutCosigned(b []byte) error              { return f.put("cosigned", b) }
func (f *files) Committed() ([]byte, error)              { return f.get("committed") }
func (f *files) PutCommitted(b []byte) error             { return f.put("committed", b) }
func (f *files) Promised() ([]byte, error)               { return f.get("promised") }
func (f *files) PutPromised(b []byte) error              { return f.put("promised", b) }
func (f *files) Evidence(term int32) ([]byte, error)     { return f.get(fmt.Sprintf("evidence-%d", term)) }
func (f *files) PutEvidence(term int32, b []byte) error {
	return f.put(fmt.Sprintf("evidence-%d", term), b)
}
func (f *files) PutCleanedTo(o int64) error {
	return f.put("cleaned", []byte(strconv.FormatInt(o, 10)))
}
func (f *files) CleanedTo() (int64, error) {
	b, err := f.get("cleaned")
	if b == nil || err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(b), 10, 64)
}

// anyTxn lets every transaction be.
type anyTxn struct{}

func (anyTxn) Ongoing(lattice.TopicPartition, int64, int16) error { return nil }
func (anyTxn) Holds(lattice.TopicPartition, int64) bool           { return false }

// replica is one node's partition.
type replica struct {
	*partition.Partition
	t     tb
	fs    disk.FS
	clock *tick.Manual
	key   identity.Key
	cfg   partition.Config
	time  *uint64
	cuts  uint64
	// admitted has unclean grants that an admin gave; shared by those of one world.
	admitted map[lattice.Hash]bool
	stop     func()
	born     uint64 // the node's incarnation
	again    bool   // it is opened by the same one
}

// world is a clock, and whatever else replicas share.
func newReplica(t tb, fs disk.FS, key identity.Key, clock *tick.Manual) *replica {
	t.Helper()
	cfg := partition.DefaultConfig()
	cfg.SegmentBytes, cfg.RetentionTime = 4<<10, -1
	r := &replica{t: t, fs: fs, clock: clock, key: key, cfg: cfg, time: new(uint64)}
	r.open()
	return r
}

func newClock() *tick.Manual { return tick.NewManual(time.UnixMilli(1_767_225_600_000)) }

func (r *replica) open() {
	r.t.Helper()
	if err := r.tryOpen(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *replica) tryOpen() error {
	if !r.again {
		r.born = uint64(r.clock.Now().UnixMilli())
	}
	committer := signedlog.NewCommitter()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = committer.Run(ctx)
	}()
	var mu sync.Mutex
	p, err := partition.Open(partition.Options{
		ID: tp, Store: store, FS: r.fs, Dir: dir, Key: r.key, Incarnation: r.born, Clock: r.clock,
		Stamp: func() (uint64, error) {
			mu.Lock()
			defer mu.Unlock()
			*r.time = max(*r.time+1, uint64(r.clock.Now().UnixMilli())<<16)
			return *r.time, nil
		},
		Committer: committer, Handles: segment.NewHandles(16), Logger: slog.New(slog.DiscardHandler), Meta: &files{fs: r.fs},
		Transactions: anyTxn{}, Leader: ann.Author(), Asks: true, Cuts: r.cuts,
		Admitted: func(id lattice.Hash) bool { return r.admitted[id] },
	}, r.cfg)
	if r.Partition = p; p != nil {
		r.cuts = p.Cuts()
	}
	r.stop = func() { cancel(); <-done }
	if err != nil {
		r.stop()
	}
	return err
}

func (r *replica) close() {
	r.t.Helper()
	err := r.Close()
	r.stop()
	if err != nil {
		r.t.Fatal(err)
	}
}

// restart stops cleanly and opens again, a minute later: the leader begins another term.
func (r *replica) restart() {
	r.t.Helper()
	r.close()
	r.clock.Advance(time.Minute)
	r.open()
}

// put appends one batch and returns what became of it.
func (r *replica) put(b []byte) (partition.Result, error) {
	type answer struct {
		partition.Result
		err error
	}
	done := make(chan answer, 1)
	r.Append(partition.Append{Batches: b, Done: func(res partition.Result, err error) { done <- answer{res, err} }})
	a := <-done
	return a.Result, a.err
}

func (r *replica) produce(values ...string) {
	r.t.Helper()
	if _, err := r.put(r.batch(values...)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *replica) batch(values ...string) []byte {
	b := record.NewBuilder(record.None, 0)
	for _, v := range values {
		b.Add(r.clock.Now().UnixMilli(), []byte("k"), []byte(v), nil)
	}
	return b.Build(nil)
}

func (r *replica) end(producer int64, epoch int16, commit bool) {
	r.t.Helper()
	done := make(chan error, 1)
	r.End(record.Marker{ProducerID: producer, Epoch: epoch, Commit: commit, Time: r.clock.Now().UnixMilli()}, func(err error) { done <- err })
	if err := <-done; err != nil {
		r.t.Fatal(err)
	}
}

// all returns the bytes of all that can be read.
func (r *replica) all() []byte {
	r.t.Helper()
	var out []byte
	b := r.Bounds()
	for from := b.Start; from < b.Committed; {
		s, err := r.Read(from, 1<<20)
		if err != nil {
			r.t.Fatal(err)
		}
		data := make([]byte, s.Len())
		for n := 0; n < len(data); {
			k, err := s.NextChunk(data[n:])
			if err != nil && err != io.EOF {
				r.t.Fatal(err)
			}
			n += k
		}
		s.Release()
		for rest := data; len(rest) > 0; {
			_, tail, h, err := record.Next(rest)
			if err != nil {
				r.t.Fatal(err)
			}
			rest, from = tail, h.NextOffset()
		}
		out = append(out, data...)
	}
	return out
}

// pull receives spans of another replica's until there are none, and returns how many.
func (r *replica) pull(of *replica, max int) int {
	r.t.Helper()
	from := r.Position().Size
	for n := 0; ; n++ {
		s, err := of.ReadSpan(from, max)
		switch lattice.KindOf(err) {
		case lattice.NotYet:
			return n
		case lattice.OutOfRange:
			from = s.From
			if s, err = of.ReadSpan(from, max); lattice.KindOf(err) == lattice.NotYet {
				if s, err = of.ReadSpan(from, 0); lattice.KindOf(err) == lattice.NotYet {
					return n
				}
			}
		}
		if err != nil {
			r.t.Fatal(err)
		}
		kept, err := r.Receive(s)
		if err != nil || kept != len(s.Batches) {
			r.t.Fatalf("%d of %d: %v", kept, len(s.Batches), err)
		}
		from = r.Position().Size
		if len(s.Batches) == 0 {
			return n + 1
		}
	}
}

// adopt receives the newest checkpoint alone.
func (r *replica) adopt(of *replica) {
	r.t.Helper()
	s, err := of.ReadSpan(r.Position().Size, 0)
	if err == nil {
		_, err = r.Receive(s)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func producers(r *replica) []partition.ProducerState {
	all := r.Producers()
	slices.SortFunc(all, func(a, b partition.ProducerState) int { return int(a.ID - b.ID) })
	for i := range all {
		all[i].LastTimestamp = 0 // each node's clock
	}
	return all
}

// same fails unless a follower shows what its leader does.
func same(t tb, leader, follower *replica) {
	t.Helper()
	if a, b := leader.Position(), follower.Position(); a != b {
		t.Fatalf("the leader is at %+v, the follower at %+v", a, b)
	}
	a, b := leader.Bounds(), follower.Bounds()
	if a.Start != b.Start || a.Committed != b.Committed || a.End != b.End || a.Stable != b.Stable {
		t.Fatalf("the leader has %+v, the follower %+v", a, b)
	}
	if !bytes.Equal(leader.all(), follower.all()) {
		t.Fatal("other bytes")
	}
	for o := a.Start; o <= a.End; o++ {
		if x, y := leader.TermAt(o), follower.TermAt(o); x != y && o < a.End {
			t.Fatalf("offset %d is of term %d, the follower says %d", o, x, y)
		}
	}
}

func sameProducers(t tb, leader, follower *replica) {
	t.Helper()
	if a, b := producers(leader), producers(follower); !reflect.DeepEqual(a, b) {
		t.Fatalf("producers\n%+v, the follower has\n%+v", a, b)
	}
}
