package enginetest

import (
	"errors"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/engine/txn"
)

// TxnTimeout is how long a transaction of a Producer may take: a node's restarts,
// which take a minute each, do not end it.
const TxnTimeout = 20 * time.Hour

// Producer is a transactional producer. It outlives its node: point N at the next.
type Producer struct {
	N *Node
	txn.Request
	Timeout time.Duration // of its transactions; 0: TxnTimeout
	seq     map[lattice.TopicPartition]int32
}

// Producer returns a producer that has the transactional id from now on.
func (n *Node) Producer(id string) *Producer {
	n.t.Helper()
	p := &Producer{N: n, Request: txn.Request{ID: id}}
	n.must(p.Init())
	return p
}

// Init makes the producer the newest of its transactional id.
func (p *Producer) Init() error {
	type answer struct {
		txn.Producer
		err error
	}
	timeout := p.Timeout
	if timeout == 0 {
		timeout = TxnTimeout
	}
	done := make(chan answer, 1)
	p.N.Transactions().Init(txn.InitRequest{ID: p.ID, Timeout: timeout, Producer: -1, Epoch: -1}, func(got txn.Producer, err error) {
		done <- answer{got, err}
	})
	a := <-done
	if a.err == nil {
		p.Request.Producer, p.Epoch, p.seq = a.ID, a.Producer.Epoch, map[lattice.TopicPartition]int32{}
	}
	return a.err
}

// Put adds the partition to the transaction and writes a batch to it.
func (p *Producer) Put(t store.Topic, part int32, values ...string) (partition.Result, error) {
	tp := lattice.TopicPartition{Topic: t.ID, Partition: part}
	done := make(chan error, 1)
	p.N.Transactions().Add(p.Request, []lattice.TopicPartition{tp}, nil, func(err error) { done <- err })
	if err := <-done; err != nil {
		return partition.Result{}, err
	}
	return p.Write(t, part, values...)
}

// Write writes a batch without adding its partition.
func (p *Producer) Write(t store.Topic, part int32, values ...string) (partition.Result, error) {
	tp := lattice.TopicPartition{Topic: t.ID, Partition: part}
	b := record.NewBuilder(record.None, 0)
	for _, v := range values {
		b.Add(p.N.Clock.Now().UnixMilli(), []byte(v), []byte(v), nil)
	}
	batch := b.Build(nil)
	record.SetProducer(batch, p.Request.Producer, p.Epoch, p.seq[tp])
	record.SetTransactional(batch)
	log, err := p.N.Partition(t.ID, part)
	if err != nil {
		return partition.Result{}, err
	}
	r, err := Produce(log, batch)
	if err == nil {
		p.seq[tp] += int32(len(values))
	}
	return r, err
}

// Offset commits a group's offset in the transaction.
func (p *Producer) Offset(name string, t store.Topic, part int32, offset int64) error {
	done := make(chan error, 1)
	p.N.Transactions().Add(p.Request, nil, []string{name}, func(err error) { done <- err })
	if err := <-done; err != nil {
		return err
	}
	p.N.Groups().CommitInTransaction(group.TxnCommitRequest{
		CommitRequest: group.CommitRequest{Group: name, Generation: -1, Offsets: []group.OffsetCommit{{
			TopicPartition: lattice.TopicPartition{Topic: t.ID, Partition: part}, Offset: offset, LeaderEpoch: -1,
		}}},
		Producer: p.Request.Producer,
		Ongoing:  func() error { return p.N.Transactions().OngoingFor(name, p.Request) },
	}, func(r group.CommitResult) { done <- errors.Join(append(r.Partitions, r.Err)...) })
	return <-done
}

// End commits or aborts.
func (p *Producer) End(commit bool) error {
	done := make(chan error, 1)
	p.N.Transactions().End(p.Request, commit, func(err error) { done <- err })
	return <-done
}

// ReadCommitted returns the records that a reader of committed records sees, from the
// start of the partition to the last stable offset.
func (n *Node) ReadCommitted(p *partition.Partition) []record.Record {
	n.t.Helper()
	var out []record.Record
	from := p.Bounds().Start
	for from < p.Bounds().Stable {
		s, err := p.ReadStable(from, 1000)
		n.must(err)
		aborted := partition.InAborted(s.Aborted())
		data := make([]byte, s.Len())
		for at := 0; at < len(data); {
			k, err := s.NextChunk(data[at:])
			n.must(err)
			at += k
		}
		s.Release()
		if len(data) == 0 {
			break
		}
		for len(data) > 0 {
			batch, rest, h, err := record.Next(data)
			n.must(err)
			if !h.Control() && !aborted(h) {
				out = n.records(out, batch, from)
			}
			data, from = rest, h.NextOffset()
		}
	}
	return out
}

// records appends copies of a batch's records at offset from or later.
func (n *Node) records(out []record.Record, batch []byte, from int64) []record.Record {
	var r record.Reader
	n.must(r.Open(batch, record.Limits{}))
	for {
		var rec record.Record
		more, err := r.Next(&rec)
		n.must(err)
		if !more {
			return out
		}
		if rec.Offset >= from {
			rec.Key, rec.Value = append([]byte{}, rec.Key...), append([]byte{}, rec.Value...)
			out = append(out, rec)
		}
	}
}
