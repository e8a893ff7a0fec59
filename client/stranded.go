package client

import (
	"context"
	"fmt"
	"time"

	"github.com/lattice-log/lattice/core/record"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// UncleanLead is a partition that was given to another leader without the old one's word,
// or would be. Both are node ids.
type UncleanLead struct {
	Partition int32  `json:"partition"`
	OldLeader string `json:"old_leader"`
	Leader    string `json:"leader"`
	// Base: what others have from this offset on is stranded. Committed: up to here
	// records are acknowledged, as far as the node that was asked knows.
	Base      int64 `json:"base"`
	Committed int64 `json:"committed"`
	Term      int32 `json:"term"`
}

// LeadTopicUnclean gives the given partitions (none: all) to another leader, a member named
// by its node id or how that begins, without the old leader's word, from what the node that
// is asked has: what only others have beyond that is stranded (Strandeds). dry changes
// nothing. Kinds NotFound, Denied (the node is no admin), Conflict (it leads the partition
// itself, or knows nothing of it), Invalid.
func (c *Client) LeadTopicUnclean(ctx context.Context, topic, to string, dry bool, partitions ...int32) ([]UncleanLead, error) {
	res, err := c.topics.Lead(ctx, &pb.TopicServiceLeadRequest{Store: c.store, Topic: topic, Partitions: partitions, To: to, Unclean: true, ValidateOnly: dry})
	if err != nil {
		return nil, err
	}
	all := make([]UncleanLead, len(res.Led))
	for i, l := range res.Led {
		all[i] = UncleanLead{l.Partition, l.OldLeader, l.Leader, l.Base, l.Committed, l.Term}
	}
	return all, nil
}

// Stranded is records beyond the base of a later term that a node has kept.
type Stranded struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	// ID names it among those of its partition.
	ID string `json:"id"`
	// Offsets [First, End), and the terms of the first and the last.
	First     int64 `json:"first"`
	End       int64 `json:"end"`
	FirstTerm int32 `json:"first_term"`
	LastTerm  int32 `json:"last_term"`
	// Leader led its last term; empty: not known.
	Leader  string    `json:"leader"`
	Records int64     `json:"records"`
	Bytes   int64     `json:"bytes"`
	Batches int64     `json:"batches"`
	Since   time.Time `json:"since"`
	// State is "kept", "under way" or "re-produced"; Reproduced records are in the log
	// again, at [ReproducedFirst, ReproducedEnd).
	State           string `json:"state"`
	Reproduced      int64  `json:"reproduced"`
	ReproducedFirst int64  `json:"reproduced_first"`
	ReproducedEnd   int64  `json:"reproduced_end"`
	// Proven is how many of its batches its leader is proven to have signed.
	Proven int64 `json:"proven"`
}

func strandedOf(topic string, b *pb.StrandedBranch) Stranded {
	return Stranded{
		topic, b.GetPartition(), b.GetId(), b.GetFirst(), b.GetEnd(), b.GetFirstTerm(), b.GetLastTerm(), b.GetLeader(), b.GetRecords(), b.GetBytes(),
		b.GetBatches(), b.GetSince().AsTime(), b.GetState(), b.GetReproduced(), b.GetReproducedFirst(), b.GetReproducedEnd(), b.GetProven(),
	}
}

// Strandeds lists what the node that is asked has of stranded records, of the given
// partitions (none: all).
func (c *Client) Strandeds(ctx context.Context, topic string, partitions ...int32) ([]Stranded, error) {
	res, err := c.stranded.List(ctx, &pb.StrandedServiceListRequest{Store: c.store, Topic: topic, Partitions: partitions})
	if err != nil {
		return nil, err
	}
	all := make([]Stranded, len(res.Branches))
	for i, b := range res.Branches {
		all[i] = strandedOf(topic, b)
	}
	return all, nil
}

// ReadStranded calls f for each record of a branch, in order. The record is valid until f
// returns. Markers of transactions are passed over.
func (c *Client) ReadStranded(ctx context.Context, topic string, partition int32, id string, f func(Record) error) error {
	for next := int64(0); ; {
		res, err := c.stranded.Read(ctx, &pb.StrandedServiceReadRequest{Store: c.store, Topic: topic, Partition: partition, Id: id, From: next})
		if err != nil {
			return err
		}
		for rest := res.Batches; len(rest) > 0; {
			batch, tail, h, err := record.Next(rest)
			if err == nil {
				err = record.CheckCRC(batch)
			}
			if err == nil && !h.Control() {
				err = eachRecord(topic, partition, batch, f)
			}
			if err != nil {
				return fmt.Errorf("read branch %s: %w", id, err)
			}
			rest = tail
		}
		if next = res.Next; len(res.Batches) == 0 {
			return nil
		}
	}
}

func eachRecord(topic string, partition int32, batch []byte, f func(Record) error) error {
	var in record.Reader
	if err := in.Open(batch, record.Limits{MaxDecompressed: maxDecompressed}); err != nil {
		return err
	}
	var x record.Record
	for {
		ok, err := in.Next(&x)
		if err != nil || !ok {
			return err
		}
		r := Record{Topic: topic, Partition: partition, Offset: x.Offset, Key: x.Key, Value: x.Value}
		if x.Timestamp >= 0 {
			r.Time = time.UnixMilli(x.Timestamp)
		}
		for _, h := range x.Headers {
			r.Headers = append(r.Headers, Header{h.Key, h.Value})
		}
		if err := f(r); err != nil {
			return err
		}
	}
}

// Reproduce writes a branch's records to the log again, those that were not yet, with
// one header more, "lattice-stranded-from", that says topic/partition/term/offset. Called
// again, after an error too, it goes on, and writes nothing twice. Kinds NotFound, Conflict
// (another node that has the branch does so, or did), Unavailable.
func (c *Client) Reproduce(ctx context.Context, topic string, partition int32, id string) (Stranded, error) {
	res, err := c.stranded.Reproduce(ctx, &pb.StrandedServiceReproduceRequest{Store: c.store, Topic: topic, Partition: partition, Id: id})
	if err != nil {
		return Stranded{}, err
	}
	return strandedOf(topic, res.Branch), nil
}

// DiscardStranded removes a branch from the node that is asked, for good.
func (c *Client) DiscardStranded(ctx context.Context, topic string, partition int32, id string) error {
	_, err := c.stranded.Discard(ctx, &pb.StrandedServiceDiscardRequest{Store: c.store, Topic: topic, Partition: partition, Id: id})
	return err
}
