package group

import (
	"bytes"
	"errors"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	lattice "github.com/lattice-log/lattice"
)

var errOver = errors.New("the transaction is over")

func (s *script) commitInTransaction(r CommitRequest, a args, done func(CommitResult)) {
	s.CommitInTransaction(TxnCommitRequest{CommitRequest: r, Producer: s.producer(a.get("txn", "")), Ongoing: func() error {
		if a.has("over") {
			return errOver
		}
		return nil
	}}, done)
}

func (s *script) producer(text string) int64 {
	s.t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *script) end(group string, a args) {
	s.EndTransaction(group, s.producer(a.words[0]), a.has("commit"), func(err error) { s.say("end %s", outcome(err)) })
}

// TestOffsetsOfTransactions runs random commits, transactions of two producers,
// failures of the disk and restarts, and compares what a group's offset is with a
// model: it is what was committed last, and never what an aborted transaction or
// one that goes on brought.
func TestOffsetsOfTransactions(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, nil)
		w.topics.create("t", 1)
		tp := w.tp("t", 0)
		committed := int64(-1)
		pending := map[int64]int64{}
		offset := func() OffsetCommit {
			return OffsetCommit{TopicPartition: tp, Offset: rapid.Int64Range(0, 1000).Draw(rt, "offset"), LeaderEpoch: -1}
		}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			producer := int64(rapid.IntRange(1, 2).Draw(rt, "producer"))
			failing := rapid.IntRange(0, 5).Draw(rt, "disk") == 0
			if failing {
				w.offsets.err = errors.New("no space")
			}
			o, result := offset(), errors.New("no answer")
			reply := func(r CommitResult) { result = errors.Join(append(r.Partitions, r.Err)...) }
			switch rapid.IntRange(0, 4).Draw(rt, "do") {
			case 0:
				w.CommitOffsets(CommitRequest{Group: "g", Generation: -1, Offsets: []OffsetCommit{o}}, reply)
				if w.settle(); result == nil {
					committed = o.Offset
				}
			case 1, 2:
				w.CommitInTransaction(TxnCommitRequest{
					CommitRequest: CommitRequest{Group: "g", Generation: -1, Offsets: []OffsetCommit{o}},
					Producer:      producer, Ongoing: func() error { return nil },
				}, reply)
				if w.settle(); result == nil {
					pending[producer] = o.Offset
				}
			case 3:
				commit := rapid.Bool().Draw(rt, "commit")
				w.EndTransaction("g", producer, commit, func(err error) { result = err })
				w.settle()
				p, open := pending[producer]
				if result == nil {
					delete(pending, producer)
				}
				if result == nil && open && commit {
					committed = p
				}
			case 4:
				w.restart(t, nil)
				result = nil
			}
			w.offsets.err = nil
			if failing == (result == nil) && result != nil {
				rt.Fatalf("failed for no reason: %v", result)
			}
			for _, stable := range []bool{false, true} {
				got := w.FetchOffsets(FetchRequest{Group: "g", Partitions: []lattice.TopicPartition{tp}, Stable: stable}).Offsets[0]
				unstable := stable && len(pending) > 0
				if got.Unstable != unstable || !unstable && got.Offset != committed {
					rt.Fatalf("offset %+v, want %d; pending %v", got, committed, pending)
				}
			}
			if err := w.verify(); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

// FuzzParsePendingKey checks, for any input: no panic, and one key has one encoding.
func FuzzParsePendingKey(f *testing.F) {
	f.Add(PendingKey{Key{"g", lattice.TopicPartition{Partition: 3}}, 7}.AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := ParsePendingKey(b)
		if err == nil && !bytes.Equal(k.AppendTo(nil), b) {
			t.Fatalf("%x reads as %+v and comes back as %x", b, k, k.AppendTo(nil))
		}
	})
}
