// Package partition is one partition of a topic: record batches in a signed log,
// with offsets, terms, idempotent producers, retention and compaction.
//
// A batch is stored as the producer sent it, but for its base offset and leader
// epoch (which lie outside its checksum), where the topic says LogAppendTime its
// timestamps, and where the topic names another codec its compression.
//
// # The commit path
//
//  1. The batch is checked: shape, CRC, size, timestamps, keys where compaction
//     needs them; and put into the topic's codec if that names one. Nothing
//     happened yet.
//  2. Under the lock: the producer's sequence is checked, the first append of a
//     term makes the term's grant durable, offsets and term are set in place, and
//     the bytes are written. A crash here leaves a batch that nobody was told of,
//     or nothing. Producer state is a fold over the stored batches, so after a
//     crash it says exactly what is there, and a retry finds its own batch.
//  3. When the log says that the bytes are as durable as the topic wants, Done is
//     called, and readers see them. A crash after that loses nothing.
//
// If the write fails the batch was not there; if the sync fails it may be there
// or not, the producer hears an error, and a retry finds it or writes it again.
//
// # What it does not do
//
// It does not forward or elect, and knows no other nodes: see Options.Leader, ReadSpan
// and Receive for what it is on those that do not lead it. Which
// transactions there are, and how they end, is their coordinator's to say
// (Options.Transactions, End).
//
// # Concurrency
//
// Every method may be called from anywhere. It starts no goroutine.
package partition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/promise"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/segment"
)

// Meta keeps what belongs to a partition beside its log. Put is durable when it
// returns. Implementations are safe for concurrent use.
type Meta interface {
	// Grants returns every signed grant of the partition, oldest first.
	Grants() ([][]byte, error)
	// PutGrant adds the grant of a term.
	PutGrant(term int32, signed []byte) error
	// Lost returns the grants that others won against, in no order; Switch replaces those
	// of Grants by line, oldest first, and adds lost to the lost ones, in one step. In
	// both, what makes a grant right (Evidence) is behind it.
	Lost() ([][]byte, error)
	Switch(line, lost [][]byte) error
	// Snapshot returns the newest producer snapshot, nil if there is none.
	Snapshot() ([]byte, error)
	// PutSnapshot replaces it.
	PutSnapshot(b []byte) error
	// Statements returns the compaction statements of the file that begins at
	// offset base: the one in force and the one being put in force, if any.
	Statements(base int64) ([][]byte, error)
	// PutStatement adds a statement about the file at base.
	PutStatement(base int64, signed []byte) error
	// Settle drops all statements about the file at base but the newest.
	Settle(base int64) error
	// DropStatements drops those about files that began before offset before.
	DropStatements(before int64) error
	// DropStatementsFrom drops those about files that begin at offset from or later.
	DropStatementsFrom(from int64) error
	// CleanedTo and PutCleanedTo keep how far compaction has come.
	CleanedTo() (int64, error)
	PutCleanedTo(offset int64) error
	// Cosigned and PutCosigned keep what this node cosigned last (cosign.Last), Committed
	// and PutCommitted how much is committed (cosign.Mark); nil: nothing was kept.
	Cosigned() ([]byte, error)
	PutCosigned(b []byte) error
	Committed() ([]byte, error)
	PutCommitted(b []byte) error
	// Promised and PutPromised keep what this node is bound by (promise.Bound); nil: it
	// has promised nothing.
	Promised() ([]byte, error)
	PutPromised(b []byte) error
	// Evidence and PutEvidence keep the promises that made a term's grant; nil: none did.
	Evidence(term int32) ([]byte, error)
	PutEvidence(term int32, b []byte) error
}

// Transactions knows which transactions are under way. Safe for concurrent use.
type Transactions interface {
	// Ongoing returns nil if the producer, in this epoch, has a transaction that
	// takes batches in the partition. It is asked with the partition's lock held,
	// once a batch: it must be quick, and must not call the partition. Whoever ends
	// a transaction makes it fail before calling End.
	Ongoing(tp lattice.TopicPartition, producer int64, epoch int16) error
	// Holds reports whether a transaction of the producer, in whatever epoch, is
	// under way in the partition or yet to be ended there. It is asked likewise.
	Holds(tp lattice.TopicPartition, producer int64) bool
}

// Options are what a partition is opened with.
type Options struct {
	ID          lattice.TopicPartition
	Store       lattice.StoreID
	FS          disk.FS
	Dir         string
	Key         identity.Key
	Incarnation uint64
	Clock       tick.Clock
	Stamp       func() (uint64, error)
	Committer   *signedlog.Committer
	Handles     *segment.Handles
	Logger      *slog.Logger
	Meta        Meta
	Limits      record.Limits // of opening a batch: for compaction, lookup by time, proofs
	// Transactions, if nil, means that there are none: their batches are refused.
	Transactions Transactions
	// Evidence is put in front of proofs: the store's genesis entry and the entry
	// that created the topic.
	Genesis, Creation []byte
	// Leader is the node that leads the partition while no grant names another: who
	// created the topic; zero: Key's. Where it is not Key's node that leads, this is a
	// follower, whose batches come from others (Receive).
	Leader lattice.NodeID
	// Named, if not nil, is called when a follower that is to lead has all that its term
	// builds on, with no lock held: closed and opened again, it leads. It must not block.
	Named func()
	// Asks says that somebody asks members for promises where the partition Waits for them. If
	// not, a leader that starts again seals its own last term.
	Asks bool
	// Admitted reports whether an admin gave a term uncleanly, as the store's fold judges
	// it, by the id of the grant; nil: none did. It must not call the partition.
	Admitted func(grant lattice.Hash) bool
	// Cuts is Cuts of the partition that was open before this one; 0: none was.
	Cuts uint64
	// Alone has this node lead, and alone, whatever the grants say: the partition is a
	// copy (CopyTo) that no other node has.
	Alone bool
	// ReadOnly refuses what clients want to change with ErrReadOnly; nothing is put
	// in Meta.
	ReadOnly bool
}

// Partition is one partition of a topic. Safe for concurrent use.
type Partition struct {
	id       lattice.TopicPartition
	o        Options
	log      *signedlog.Log
	waiters  waiters
	term     atomic.Int32 // of this incarnation; constant after Open
	cfg      atomic.Pointer[Config]
	houseMu  sync.Mutex // held by retention, compaction, truncation
	snapMu   sync.Mutex // held while a snapshot is saved
	snapSize atomic.Int64
	snapEnd  int64 // owned by snapMu: the end that the saved snapshot speaks of; -1 when that is unknown

	recompressors sync.Pool // *record.Recompressor

	// unstable is the first offset whose fate readers do not know, never if there is
	// none; it is lowered before the batch that it points to is written. endings is
	// how many markers may have been committed since it was worked out.
	unstable atomic.Int64
	endings  atomic.Int32
	// forgets counts how often aborted transactions were forgotten, because no batch
	// of theirs is here any more. Who has batches from before asks again (abortedBy).
	forgets atomic.Uint64

	mu        sync.Mutex
	closed    bool
	producers *producers
	terms     terms
	pending   grant.Grant // the term's grant, durable once granted
	granted   bool
	grantSum  lattice.Hash // hash of the newest durable grant
	grantTerm int32
	grantInc  uint64
	newest    newestGrant // the last one that ReadSpan gave
	scratch   batches     // reused by Append

	leads   bool // constant after Open
	looking bool // while Open looks what is to be kept aside
	cuts    uint64
	aside   atomic.Int64 // blocks that are stranded, and not re-produced
	stale   bool         // other terms rule than those that are known: closed and opened again, it knows them
	// lost and stored are the grants that lost, and those that rule, during Open.
	lost, stored []grant.Signed
	lostTerm     int32 // the greatest of those that lost
	known        grants
	sealed       bool          // another will lead: nothing is appended any more
	sealing      *grant.Signed // that other's grant, of which it is not known whether it was stored

	bound promise.Bound // what this node has promised

	acks    ledger
	limit   atomic.Int64 // readers see nothing at or above it; never: the log's word is enough
	seating sync.Mutex   // held by Reseat
	holdUp  bool         // appends are refused for a moment, for the term to change

	came      atomic.Bool // of a follower: all that came last is here, since it was opened
	receiving sync.Mutex  // held by Receive
}

// ErrClosed means that the partition was closed: its topic was deleted, or the
// node stops.
var ErrClosed = lattice.E(lattice.Unavailable, errors.New("partition is closed"))

// Open recovers the partition in o.Dir, or makes it, and opens a new term.
func Open(o Options, cfg Config) (*Partition, error) {
	if o.Leader == (lattice.NodeID{}) {
		o.Leader = o.Key.Author()
	}
	p := &Partition{id: o.ID, o: o, producers: newProducers()}
	p.unstable.Store(never)
	p.limit.Store(never)
	p.cfg.Store(&cfg)
	if err := errors.Join(p.loadAcks(), p.loadGrants()); err != nil {
		return nil, fmt.Errorf("open partition %s: %w", o.ID, err)
	}
	if err := p.settleTerms(); err != nil {
		return nil, fmt.Errorf("open partition %s: %w", o.ID, err)
	}
	p.lost, p.stored = nil, nil
	p.countStranded()
	p.leads = p.known.leader(o.Leader) == o.Key.Author()
	if p.leads = p.leads && !p.waits(); p.leads && p.known.handed() {
		ready, err := p.hasBase()
		if err != nil {
			return nil, fmt.Errorf("open partition %s: %w", o.ID, err)
		}
		p.leads = ready
	}
	p.leads = p.leads || o.Alone
	if err := p.openLog(); err != nil {
		return nil, fmt.Errorf("open partition %s: %w", o.ID, err)
	}
	var err error
	if p.leads {
		err = errors.Join(p.loadProducers(), p.openTerm())
	} else {
		err = p.openFollower()
	}
	if err == nil {
		err = p.openAcks()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open partition %s: %w", o.ID, err), p.log.Close())
	}
	return p, nil
}

// openLog opens the log as what the partition is here.
func (p *Partition) openLog() (err error) {
	o := &p.o
	opts := signedlog.Options{
		FS: o.FS, Dir: o.Dir, Origin: merkle.Origin(o.Store, o.ID.String()), Codec: Codec{}, Key: o.Key,
		Clock: o.Clock, Stamp: o.Stamp, Committer: o.Committer, Handles: o.Handles, Logger: o.Logger,
		Terms: p.checkpointTerms, Committed: p.committed, TermsAt: p.termsAt, Signer: p.signer,
	}
	if !p.leads {
		opts.Leader = p.Leader()
	}
	opts.Look = p.looking
	p.log, err = signedlog.Open(opts, p.settings(*p.cfg.Load()))
	return err
}

// settings are what the topic's configs mean to the log. A follower shows nothing that
// is not durable, whatever its leader acknowledges.
func (p *Partition) settings(c Config) signedlog.Settings {
	s := signedlog.Settings{Durability: c.Durability, FlushEvery: c.FlushInterval, SegmentBytes: c.SegmentBytes}
	if !p.Leads() {
		s.Durability = signedlog.Fsync
	}
	return s
}

// ID returns the topic incarnation and the partition number.
func (p *Partition) ID() lattice.TopicPartition { return p.id }

// SetConfig changes the topic's configs.
func (p *Partition) SetConfig(cfg Config) {
	p.cfg.Store(&cfg)
	p.log.SetSettings(p.settings(cfg))
	if err := p.Reseat(context.Background()); err != nil { // it is tried again by who keeps house
		p.o.Logger.Error("change who acknowledges", "partition", p.id, "err", err)
	}
}

// Bounds are the offsets that readers work with.
type Bounds struct {
	Start     int64 // first offset still here
	Committed int64 // high watermark: consumers read below it
	End       int64 // next offset to assign (log end)
	Stable    int64 // last stable offset: the fate of everything below it is known (KIP-98)
	Term      int32 // leader epoch of the current term
}

// Bounds returns the current offsets.
func (p *Partition) Bounds() Bounds {
	start, committed, end := p.visible()
	return Bounds{start, committed, end, p.stable(start, committed), p.term.Load()}
}

// Beyond returns how many records are behind the first blocks of the log, as many as
// are still here: what somebody who has those lacks.
func (p *Partition) Beyond(blocks uint64) (int64, error) {
	start, _, end := p.log.Bounds()
	at, err := p.log.EndOf(blocks)
	if lattice.KindOf(err) == lattice.OutOfRange && err != nil {
		at, err = start, nil // they were dropped
	}
	if err != nil {
		return 0, err
	}
	return max(0, end-max(at, start)), nil
}

// Size returns the bytes of the stored batches.
func (p *Partition) Size() int64 { return p.log.Size() }

// Range is a half-open range of offsets.
type Range = signedlog.Range

// Status is what people are shown.
type Status struct {
	Bounds
	Leader     lattice.NodeID
	Follower   bool // this node does not lead it
	Checkpoint Checkpoint
	Bytes      int64
	Segments   int
	Failed     string // why it takes no writes; empty when healthy
	Damaged    []Range
	CutBytes   int64  // torn tail cut at the last open
	CutReason  string // why
}

// Status returns a snapshot for people.
func (p *Partition) Status() Status {
	s := p.log.State()
	st := Status{
		Bounds: p.Bounds(), Leader: p.Leader(), Follower: !p.Leads(), Bytes: s.Bytes, Segments: len(s.Segments),
		Failed: s.Failed, Damaged: s.Damaged, CutBytes: s.Recovery.Cut, CutReason: s.Recovery.Reason,
	}
	st.Checkpoint, _ = p.latest()
	return st
}

// ProducerState is one active idempotent producer (DescribeProducers).
type ProducerState struct {
	ID            int64
	Epoch         int16
	LastSequence  int32
	LastTimestamp int64
	TxnStart      int64 // first offset of the transaction that is open here, -1: none
}

// Producers lists the idempotent producers known, in no order.
func (p *Partition) Producers() []ProducerState {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]ProducerState, 0, len(p.producers.byID))
	for id, s := range p.producers.byID {
		first, open := p.producers.txns.open[id]
		if !open {
			first = -1
		}
		out = append(out, ProducerState{id, s.epoch, s.lastSequence(), s.lastTime, first})
	}
	return out
}

// Close saves the producer state, syncs, certifies and closes the log. Waiting
// readers are woken.
func (p *Partition) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.mu.Unlock()
	p.waiters.all(true)
	return errors.Join(p.closeAcks(), p.saveProducers(), p.log.Close())
}

// Codec reads record batches as blocks of a log.
type Codec struct{}

// HeaderLen is the length of a batch header.
func (Codec) HeaderLen() int { return record.HeaderSize }

// Header reads a batch header.
func (Codec) Header(b []byte) (segment.Meta, int, error) {
	h, err := record.ParseHeader(b)
	if err != nil {
		return segment.Meta{}, 0, err
	}
	return segment.Meta{Base: h.BaseOffset, Last: h.LastOffset(), MaxTime: h.MaxTimestamp, Term: h.LeaderEpoch}, h.Size(), nil
}

// Check verifies a batch's CRC.
func (Codec) Check(b []byte) error { return record.CheckCRC(b) }
