// Package store is one store on this node: its topics and their partitions, its
// groups, share groups and transactions, and the background work that keeps them: syncing, certifying, retention
// and compaction.
//
// On disk a store is one directory:
//
//	kv/                                 the catalogue (docs/format/catalogue.md)
//	authors/, snapshots/, forks/, state/    its keys (engine/keyval)
//	topics/<topic id>/<partition>/      one signed log
//	forkpoint                           of a fork (fork.go): of what, and from where
//
// Open recovers everything; Run does the background work until its context ends;
// Close makes what is left durable. The store starts goroutines in Run only.
//
// It does not speak any protocol, and knows no peers. What others write comes in
// as their entries (State().Receive), and takes effect here as it is folded: topics,
// configs, offsets, members. A node leads the partitions of the topics that it
// created; of others' topics it has followers, whose records come as spans.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/forkpoint"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/share"
	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/engine/txn"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/kv"
	"github.com/lattice-log/lattice/storage/segment"
)

// Config says how a store is opened. Fields without "optional" are required.
type Config struct {
	FS     disk.FS
	Dir    string // of the store: DATA/stores/<id>
	Key    identity.Key
	Clock  tick.Clock
	Rand   io.Reader // ids; cryptographic outside of tests
	Logger *slog.Logger

	// Optional from here.
	DefaultPartitions int32             // of a topic created without a number; default 4
	KafkaNodeID       int32             // what Info says; 0: derived from Key
	MaxPartitions     int32             // of all topics together; default 20,000
	TopicDefaults     map[string]string // topic configs that are in force unless a topic says otherwise
	MaxDecompressed   int               // bytes that one batch may unpack to; default 64 MiB
	OpenFiles         int               // segment files kept open; default 4,096
	RetentionCheck    time.Duration     // how often retention runs; default 5 minutes
	CompactionCheck   time.Duration     // how often compaction runs; default 15 seconds
	Transactions      txn.Config        // zero: txn.DefaultConfig; clock and logger are filled in
	Shares            share.Config      // zero: share.DefaultConfig; clock and logger are filled in
	LocalGroups       bool              // groups whose home cannot be reached are coordinated here meanwhile
	Group             group.Config      // zero: group.DefaultConfig; clock, randomness and logger are filled in
	NodeConfig        []ConfigEntry     // what the node shows as its own configs
	State             StateConfig       // how keys are written
}

// StateConfig says how keys are written and kept in memory.
type StateConfig struct {
	Durability signedlog.Durability // what an acknowledged write of a key survives
	FlushEvery time.Duration        // how late a sync may be at level Interval; default 1 s
	CacheBytes int64                // of keys in memory, about; default 256 MiB
	// DormantAfter is how long a member may be gone before an admin's node says that it
	// is dormant; 0: none does.
	DormantAfter time.Duration
	Upkeep       Upkeep // snapshots that the node takes by itself; default none
	// ReportEvery is how often it is looked whether other members are to be told how far
	// entries are durable here; default 5 s. See report.go.
	ReportEvery time.Duration
}

func (c *Config) fill() error {
	if c.FS == nil || c.Dir == "" || c.Key.IsZero() || c.Clock == nil || c.Rand == nil || c.Logger == nil {
		return lattice.E(lattice.Invalid, errors.New("store config: file system, directory, key, clock, randomness and logger are required"))
	}
	if c.DefaultPartitions <= 0 {
		c.DefaultPartitions = 4
	}
	if c.MaxPartitions <= 0 {
		c.MaxPartitions = 20_000
	}
	if c.OpenFiles <= 0 {
		c.OpenFiles = 4096
	}
	if c.RetentionCheck <= 0 {
		c.RetentionCheck = 5 * time.Minute
	}
	if c.CompactionCheck <= 0 {
		c.CompactionCheck = 15 * time.Second
	}
	if c.Group.MaxSize == 0 {
		c.Group = group.DefaultConfig()
	}
	if c.Transactions.MaxIDs == 0 {
		c.Transactions = txn.DefaultConfig()
	}
	if c.Shares.MaxSize == 0 {
		c.Shares = share.DefaultConfig()
	}
	c.Shares.Clock, c.Shares.Logger = c.Clock, c.Logger
	c.Transactions.Clock, c.Transactions.Logger = c.Clock, c.Logger
	c.Group.Clock, c.Group.Rand, c.Group.Logger = c.Clock, c.Rand, c.Logger
	if _, err := parseConfig(c.TopicDefaults, nil); err != nil {
		return fmt.Errorf("topic defaults: %w", err)
	}
	return nil
}

// Store is one open store. Safe for concurrent use.
type Store struct {
	cfg       Config
	info      Info
	cat       Catalogue
	state     *keyval.DB
	stamps    *stamps
	committer *signedlog.Committer
	handles   *segment.Handles
	groups    *group.Manager
	shares    *share.Manager
	txns      *txn.Manager
	genesis   sigchain.Signed
	claim     lattice.Hash      // the invitation by which this node joined, if it did
	home      lattice.StoreID   // whose entries and logs these are: info.ID, but of a fork
	fork      *forkpoint.Signed // nil: it is no fork
	syncing   sync.Mutex        // held by who brings a fork back
	news      *news
	elsewhere atomic.Pointer[Elsewhere]
	taking    taking
	watch     topicWatch
	heard     heard
	homes     homes
	seen      atomic.Pointer[func(lattice.NodeID) time.Time]

	expiredMu sync.Mutex
	onExpired []*func(m string, key []byte)

	followMu    sync.Mutex // held by whoever follows news
	changeMu    sync.Mutex // held by whoever creates, changes or deletes topics
	reproduceMu sync.Mutex // held while a stranded branch is re-produced or discarded
	memberMu    sync.Mutex // held by whoever invites, redeems or removes

	mu     sync.RWMutex
	closed bool
	byName map[string]*topic
	byID   map[lattice.TopicID]*topic
	count  int32 // partitions of all topics

	offsets internal // constant after Open

	upkeep upkeep

	pidMu           sync.Mutex
	nextPID, endPID uint64 // numbers taken and not given out
}

// topic is one topic with its open partitions. The record and the list are
// replaced, never changed in place; Store.mu guards the pointers.
type topic struct {
	rec      TopicRecord
	from     origin
	name     string                 // by which it is known, see namesOf
	parts    []*partition.Partition // all of them; nil: they could not be opened yet
	internal bool
}

// Info describes the store.
type Info struct {
	ID          lattice.StoreID
	Name        string
	Created     time.Time
	Creator     lattice.NodeID
	Node        lattice.NodeID
	Incarnation uint64
	KafkaNodeID int32 // Config's, or derived from the node's key; positive
}

// Create makes a store: its genesis entry, signed by key, in dir/<store id>. It
// returns the id. Nothing is left behind that Open would take for a store if it
// fails half way.
func Create(fs disk.FS, dir string, key identity.Key, name string, clock tick.Clock, random io.Reader, logger *slog.Logger) (lattice.StoreID, error) {
	var id lattice.StoreID
	g := sigchain.Genesis{Name: name}
	if _, err := io.ReadFull(random, g.Random[:]); err != nil {
		return id, fmt.Errorf("create store %q: %w", name, err)
	}
	op, err := g.Op()
	if err != nil {
		return id, fmt.Errorf("create store %q: %w", name, err)
	}
	inc, err := newIncarnation(clock, random, 0)
	if err != nil {
		return id, err
	}
	e, err := sigchain.Sign(key, sigchain.Entry{
		Author: key.Author(), Incarnation: inc, Seq: 1, Time: uint64(clock.Now().UnixMilli()) << 16, Ops: []sigchain.Op{op},
	})
	if err != nil {
		return id, fmt.Errorf("create store %q: %w", name, err)
	}
	if id, _, err = sigchain.StoreID(e); err != nil {
		return id, fmt.Errorf("create store %q: %w", name, err)
	}
	final := fs.PathJoin(dir, id.String())
	making := final + ".new"
	cat, err := openLocal(fs, fs.PathJoin(making, "kv"), kv.Options{Logger: logger})
	if err != nil {
		return id, err
	}
	if err := errors.Join(cat.putGenesis(e), cat.Close()); err != nil {
		return id, fmt.Errorf("create store %q: %w", name, err)
	}
	if err := fs.Rename(making, final); err != nil {
		return id, fmt.Errorf("create store %q: %w", name, err)
	}
	return id, disk.SyncDir(fs, dir)
}

// Open opens the store in cfg.Dir: recovers every log, and begins a new
// incarnation. Progress of a long recovery goes to the logger.
func Open(cfg Config) (*Store, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	records, err := openLocal(cfg.FS, cfg.FS.PathJoin(cfg.Dir, "kv"), kv.Options{Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	s := &Store{
		cfg: cfg, committer: signedlog.NewCommitter(), handles: segment.NewHandles(cfg.OpenFiles),
		byName: map[string]*topic{}, byID: map[lattice.TopicID]*topic{}, news: newNews(),
	}
	if err := s.openCatalogue(records); err != nil {
		return nil, errors.Join(fmt.Errorf("open store in %s: %w", cfg.Dir, err), records.Close())
	}
	err = s.removeDropped()
	if err == nil {
		err = errors.Join(s.openTopics(), s.openInternal())
	}
	if err == nil {
		err = s.openTerms()
	}
	if err == nil {
		_, err = s.loadHomes()
	}
	if err == nil {
		cfg.Group.Homes = homesOf{s}
		s.groups, err = group.New(cfg.Group, s.cat, topicsOf{s})
	}
	if err == nil && len(s.groups.List()) > 0 {
		s.offsets.used.Store(true)
	}
	if err == nil {
		s.shares, err = share.New(cfg.Shares, s.cat, sharesOf{topicsOf{s}}, s.groups)
	}
	if err == nil {
		for _, name := range s.shares.Configured() {
			err = errors.Join(err, s.setTimes(name))
		}
	}
	if err == nil {
		newID := func() (int64, error) { return s.NewProducerID(context.Background()) }
		s.txns, err = txn.New(cfg.Transactions, s.cat, logsOf{s}, s.groups, newID)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open store in %s: %w", cfg.Dir, err), s.closeTopics(), s.cat.Close())
	}
	return s, nil
}

// openCatalogue opens the state, and makes state of what an older version kept
// as records.
func (s *Store) openCatalogue(records *local) error {
	if err := s.loadEntries(records); err != nil {
		return err
	}
	moved, err := records.moved()
	if err != nil {
		return err
	}
	if !moved {
		if err := s.moveEntries(records); err != nil {
			return err
		}
	}
	s.state, err = keyval.Open(keyval.Options{
		FS: s.cfg.FS, Dir: s.cfg.Dir, Genesis: s.genesis, Key: s.cfg.Key, Incarnation: s.info.Incarnation,
		Clock: s.cfg.Clock, Stamp: s.stamps.next, Observe: s.stamps.observe,
		Committer: s.committer, Handles: s.handles, Logger: s.cfg.Logger,
		Durability: s.cfg.State.Durability, FlushEvery: s.cfg.State.FlushEvery, CacheBytes: s.cfg.State.CacheBytes, Claim: s.claim,
	})
	if err != nil {
		return err
	}
	s.state.Listen(s.news) // before anything of the catalogue is read
	cat := &folded{local: records, db: s.state, fork: s.fork != nil}
	s.cat = cat
	if !moved {
		if err := cat.moveRecords(); err != nil {
			return errors.Join(err, s.state.Close())
		}
	}
	return nil
}

// loadEntries finds the genesis, checks the chain of entries that an older version
// kept as records, and begins a new incarnation behind all there are.
func (s *Store) loadEntries(records *local) error {
	me := s.cfg.Key.Author()
	var first *sigchain.Signed
	var chain sigchain.Chain
	err := records.Entries(func(e sigchain.Signed) error {
		if first == nil {
			id, g, err := sigchain.StoreID(e)
			if err != nil {
				return err
			}
			first, s.genesis = &e, e
			s.info = Info{ID: id, Name: g.Name, Created: time.UnixMilli(int64(e.Time >> 16)).UTC(), Creator: e.Author, Node: me}
		}
		var err error
		chain, err = follow(chain, e)
		return err
	})
	if err != nil {
		return fmt.Errorf("entries: %w", err)
	}
	if first == nil {
		return lattice.E(lattice.NotFound, errors.New("no genesis entry: this is no store"))
	}
	if err := s.loadFork(); err != nil {
		return err
	}
	how, joined, err := records.joined()
	s.claim = how.Invitation
	if err != nil {
		return err
	}
	if first.Author != me && !joined && !s.imported() {
		return lattice.E(lattice.Denied, fmt.Errorf("the store was made by %s, this node is %s", first.Author.Short(), me.Short()))
	}
	if s.stamps, err = newStamps(s.cfg.Clock, records, chain.Time); err != nil {
		return err
	}
	before, err := s.greatestIncarnation(me)
	led, lerr := records.greatestLed(me) // a start may have written records, and no entry
	if err = errors.Join(err, lerr); err != nil {
		return err
	}
	inc, err := newIncarnation(s.cfg.Clock, s.cfg.Rand, max(before, led, chain.Tip.Incarnation))
	s.info.Incarnation, s.info.KafkaNodeID = inc, s.cfg.KafkaNodeID
	if s.info.KafkaNodeID <= 0 {
		s.info.KafkaNodeID = kafkaNodeID(me)
	}
	return err
}

// Run does the background work until ctx ends: syncs, checkpoints, groups,
// transactions, retention and compaction. It returns the first error that stopped one of them.
func (s *Store) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The committer outlives the others, so that what they append is answered.
	cctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- s.committer.Run(cctx) }()
	sctx, stopState := context.WithCancel(context.WithoutCancel(ctx))
	stateDone := make(chan error, 1)
	go func() { stateDone <- s.state.Run(sctx) }()
	var wg sync.WaitGroup
	tasks := map[string]func(context.Context) error{
		"groups": s.groups.Run, "share groups": s.shares.Run, "transactions": s.txns.Run, "housekeeping": s.keepHouse,
		"expiry": s.expire, "catalogue": s.follow, "homes of groups": s.sweepHomes,
	}
	if s.fork == nil { // others are told what is here, and nobody is told of a fork
		tasks["snapshots"], tasks["reports"], tasks["presence"] = s.tend, s.report, s.attend
		tasks["terms"] = s.regain
	}
	for name, run := range tasks {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := run(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		}()
	}
	wg.Wait()
	// The state outlives those whose records are in it, and the committer the state.
	stopState()
	err := <-stateDone
	stop()
	err = errors.Join(err, <-done)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = errors.Join(err, cause)
	}
	return err
}

// Close makes everything durable and closes the files. Call it after Run returned.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	return errors.Join(s.closeTopics(), s.cat.Close())
}

// Info describes the store.
func (s *Store) Info() Info { return s.info }

// Groups returns the coordinator of the store's consumer groups.
func (s *Store) Groups() *group.Manager { return s.groups }

// Transactions returns the coordinator of the store's transactions.
func (s *Store) Transactions() *txn.Manager { return s.txns }

// State returns the store's keys.
func (s *Store) State() *keyval.DB { return s.state }

// NodeConfig lists the node's configs, sorted by name.
func (s *Store) NodeConfig() []ConfigEntry { return s.cfg.NodeConfig }
