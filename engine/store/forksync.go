package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/storage/kv"
)

// SyncBytes is about how much one call of BringBack brings.
const SyncBytes = 16 << 20

// Brought is what one call of BringBack did, and what is left.
type Brought struct {
	Done    bool   // nothing is left that could be brought now
	Entries uint64 // of keys, brought by this call
	Left    uint64 // entries
	// Partitions of which something was brought by this call, or is left, by topic and
	// number. Those that come later are not in it when the call ends early.
	Partitions []BroughtPartition
}

// BroughtPartition is what became of the fork's own records of one partition.
type BroughtPartition struct {
	Topic     string // as it is called in the fork's origin, or in the fork if it is not there
	Partition lattice.TopicPartition
	// Same are the records that have the same offset in the origin, Moved those that were
	// appended behind others, with a header. Passed are offsets that hold no record for
	// readers of committed records: aborted transactions, and the ends of transactions.
	Same, Moved, Passed int64
	Left                int64  // offsets that are left
	Why                 string // why they are; empty: the next call brings them
}

// BringBack brings what was written in the fork since it was made, or since the last time,
// to the store that it is of: about SyncBytes of it, and so on with the next call until Done.
// Called again, also after a crash, it goes on where it was; what is there is not brought
// twice. Both stores run, and take writes meanwhile. What cannot be brought is left, with
// the reason, and keeps nothing else back. Errors: ErrNoFork, ErrMayNotWrite (the fork has
// entries, and this node may write no more in its origin); Kind Storage.
//
// The steps, and what a crash leaves:
//
//  1. The fork's entries go into the origin's logs, durably, in order, and are folded
//     there. A crash leaves some of them, and the next call finds where to go on.
//  2. With them come topics that the fork made. They are opened.
//  3. Of each partition, it is noted durably where the origin's log ends and as which
//     producer records are carried (carry). A crash: nothing was appended.
//  4. Records are appended to the origin, as that producer's, and wait until they are
//     committed. A crash: the next call counts what that producer has in the log.
//  5. It is noted how far the fork is brought back, durably.
func (s *Store) BringBack(ctx context.Context, origin *Store) (Brought, error) {
	if s.fork == nil || origin.info.ID != s.fork.Origin {
		return Brought{}, fmt.Errorf("store %s: %w of %s", s.info.ID.Short(), ErrNoFork, origin.info.ID.Short())
	}
	s.syncing.Lock()
	defer s.syncing.Unlock()
	var out Brought
	if err := origin.Gone(); err != nil {
		return out, err
	}
	budget := int64(SyncBytes)
	if err := s.bringEntries(ctx, origin, &out, &budget); err != nil {
		return out, fmt.Errorf("bring back the entries of fork %s: %w", s.info.ID.Short(), err)
	}
	if out.Left > 0 {
		return out, nil
	}
	if got, err := origin.followNews(); err != nil {
		origin.news.back(got)
		origin.news.signal()
		return out, err
	}
	out.Done = true
	for _, t := range s.Topics() {
		for n := range t.Partitions {
			if budget <= 0 {
				out.Done = false
				return out, nil
			}
			c := carry{fork: s, origin: origin, topic: t, budget: &budget}
			b, err := c.run(ctx, n)
			if err != nil {
				return out, fmt.Errorf("bring back the records of %s/%d: %w", t.Name, n, err)
			}
			if b.Left > 0 || b.Same+b.Moved+b.Passed > 0 {
				out.Partitions = append(out.Partitions, b)
			}
			out.Done = out.Done && (b.Left == 0 || b.Why != "")
		}
	}
	return out, nil
}

// bringEntries is step 1.
func (s *Store) bringEntries(ctx context.Context, origin *Store, out *Brought, budget *int64) error {
	if err := s.state.Sync(); err != nil {
		return err
	}
	there := map[string]uint64{}
	name := func(l keyval.LogState) string { return fmt.Sprint(l.Writer.Author, l.Writer.Incarnation) }
	for _, l := range origin.state.LogStates() {
		there[name(l)] = l.Tip.Seq
	}
	logs := slices.DeleteFunc(s.state.LogStates(), func(l keyval.LogState) bool {
		return l.Writer.Author != s.info.Node || l.Tip.Seq <= there[name(l)]
	})
	if len(logs) > 0 && origin.Role() < roster.Writer {
		return fmt.Errorf("%w: what the fork wrote would not count", ErrMayNotWrite)
	}
	for _, l := range logs {
		after := there[name(l)]
		for after < l.Tip.Seq && *budget > 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, bytes, err := s.bringSpan(origin, l, after)
			if err != nil {
				return err
			}
			after, *budget, out.Entries = after+n, *budget-bytes, out.Entries+n
		}
		out.Left += l.Tip.Seq - after
	}
	return nil
}

// spanBytes is about how much of a log goes at once.
const spanBytes = 1 << 20

// bringSpan brings the entries of a log behind number after, and returns how many.
func (s *Store) bringSpan(origin *Store, l keyval.LogState, after uint64) (n uint64, bytes int64, err error) {
	span, err := s.state.ReadSpan(l.Writer, after, l.Tip.Seq, spanBytes)
	if err != nil {
		return 0, 0, err
	}
	entries := make([]sigchain.Signed, len(span.Entries))
	for i, b := range span.Entries {
		e, err := sigchain.Parse(b)
		if err == nil {
			err = e.Verify()
		}
		if err != nil {
			return 0, 0, fmt.Errorf("entry %d: %w", after+uint64(i)+1, err)
		}
		entries[i], bytes = e, bytes+int64(len(b))
	}
	kept, err := origin.state.TakeFork(entries)
	if err == nil && kept < len(entries) {
		err = lattice.E(lattice.Unavailable, fmt.Errorf("%d of %d entries were taken", kept, len(entries)))
	}
	return uint64(kept), bytes, err
}

// A record of how far one partition of a fork is brought back, version 1, big-endian:
//
//	version u8 = 1 | next i64 | from i64 | producer i64
//
// What lies below next was brought, or passed over. While something is under way, records
// from next on are appended to the origin as those of a producer, behind offset from;
// otherwise both are -1.
type broughtTo struct {
	next, from, producer int64
}

const broughtVersion = 1

func (b broughtTo) appendTo(dst []byte) []byte {
	dst = append(dst, broughtVersion)
	for _, n := range []int64{b.next, b.from, b.producer} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(n))
	}
	return dst
}

func parseBrought(b []byte) (broughtTo, error) {
	if len(b) != 1+3*8 || b[0] != broughtVersion {
		return broughtTo{}, lattice.E(lattice.Corrupt, fmt.Errorf("catalogue: %d bytes say how far a fork is brought back, in no version that is known here", len(b)))
	}
	n := func(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }
	out := broughtTo{n(1), n(9), n(17)}
	if out.next < 0 || out.from < -1 || out.producer < -1 || (out.from < 0) != (out.producer < 0) {
		return broughtTo{}, lattice.E(lattice.Corrupt, fmt.Errorf("catalogue: a fork is brought back to %d, from %d as %d", out.next, out.from, out.producer))
	}
	return out, nil
}

func (l *local) broughtTo(tp lattice.TopicPartition) (b broughtTo, ok bool, err error) {
	m := partitionMeta{l.db, tp}
	v, err := m.get(m.key(keySynced))
	if err != nil || v == nil {
		return b, false, err
	}
	b, err = parseBrought(v)
	return b, true, err
}

func (l *local) putBrought(tp lattice.TopicPartition, b broughtTo) error {
	m := partitionMeta{l.db, tp}
	return m.set(m.key(keySynced), b.appendTo(nil))
}

// mayDelete refuses to delete in a fork a topic that its origin has: what is in it there
// would go, too.
func (s *Store) mayDelete(t *topic) error {
	if s.fork == nil {
		return nil
	}
	_, there := s.fork.End(lattice.TopicPartition{Topic: t.rec.ID})
	if own, ok := s.cat.(*folded); ok && !there {
		prefix := append([]byte{keySynced}, t.rec.ID[:]...)
		err := own.local.db.Iterate(prefix, func([]byte, []byte) error { there = true; return kv.ErrStop })
		if err != nil {
			return err
		}
	}
	if there {
		return s.forked("delete topic " + t.name)
	}
	return nil
}

// ownRecords is how a fork's records are read and written again: nil for another store.
func (s *Store) ownRecords() (*local, error) {
	own, ok := s.cat.(*folded)
	if !ok {
		return nil, lattice.E(lattice.Unsupported, errors.New("the catalogue keeps no records of its own"))
	}
	return own.local, nil
}

// forkHeader says where a record was in a fork, which could not keep its offset: the fork's
// id, a colon, and the offset there.
const forkHeader = "lattice.fork"

func (s *Store) forkHeaderValue(offset int64) []byte {
	return fmt.Appendf(nil, "%s:%d", s.info.ID, offset)
}

// ParseForkHeader reads the value of the header lattice.fork.
func ParseForkHeader(v []byte) (fork lattice.StoreID, offset int64, err error) {
	id, at, ok := strings.Cut(string(v), ":")
	if fork, err = lattice.ParseStoreID(id); err != nil || !ok {
		return fork, 0, lattice.E(lattice.Invalid, fmt.Errorf("%.80q names no fork", v))
	}
	if _, err := fmt.Sscanf(at, "%d", &offset); err != nil || fmt.Sprint(offset) != at || offset < 0 {
		return fork, 0, lattice.E(lattice.Invalid, fmt.Errorf("%.80q names no offset", v))
	}
	return fork, offset, nil
}
