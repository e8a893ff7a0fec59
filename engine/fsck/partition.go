package fsck

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/promise"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/storage/disk"
)

// partCheck checks one partition, or one author log.
type partCheck struct {
	*storeCheck
	tp     lattice.TopicPartition
	author *authorCheck // of an author log; its blocks are entries
	leader lattice.AuthorID
	// leader is who created the topic, and once the grants were read who leads it.
	// follower: another node leads it, and signed what is here, or did until now.
	follower bool
	dir      string
	origin   string
	files    files

	// What the catalogue says.
	grants     []grant.Signed
	ruling     []grant.Signed        // of those, the ones in force somewhere
	beaten     []grant.Signed        // won against by others
	unsettled  bool                  // a stop came before what other terms left was kept aside
	statements map[int64][]statement // by the file's first offset
	snapshot   *partition.Snapshot
	cleaned    int64

	head       headState
	signed     bool // there is a head
	lastLeaves int64
	claims     []claim // by size
	tree       treeCheck

	// Where the walk is.
	next   int64 // offset of the next block
	term   int32 // of the last block
	lost   bool  // batches before this point could not be read
	ended  bool  // the log ended: what follows is cut by the next start
	replay *partition.Replay
	from   int64 // the replay has every batch from this offset on
}

// statement is a signed compaction statement.
type statement struct {
	merkle.Compaction
	number uint64
}

// checkPartition checks one partition of a topic that a node leads.
func (s *storeCheck) checkPartition(tp lattice.TopicPartition, leader lattice.AuthorID) error {
	p := &partCheck{
		storeCheck: s, tp: tp, leader: leader, follower: leader != s.node(), origin: merkle.Origin(s.id, tp.String()), statements: map[int64][]statement{},
		dir: s.fs.PathJoin(s.dir, "topics", tp.Topic.String(), strconv.Itoa(int(tp.Partition))),
	}
	_, err := s.fs.Stat(p.dir)
	if disk.IsNotExist(err) && p.follower {
		return nil // nothing of it came so far
	}
	s.r.Partitions++
	if err != nil {
		s.damage(p.dir, "partition missing", "%v", err)
		return nil
	}
	p.readRecords()
	p.rule()
	if n := len(p.grants); n > 0 {
		last := p.grants[n-1]
		p.leader, p.follower = last.Leader, last.Leader != s.node() || last.Kind != grant.Self
	}
	return p.check()
}

// check checks the log's files.
func (p *partCheck) check() error {
	p.listFiles()
	p.readPrefix()
	p.readHead()
	p.checkStranded()
	p.readNote()
	if p.follower && p.followed() {
		return nil
	}
	p.openTree()
	slices.SortStableFunc(p.claims, func(a, b claim) int { return cmp.Compare(a.size, b.size) })
	if n := len(p.files.leaves); n > 0 {
		p.lastLeaves = p.files.leaves[n-1]
	}
	if err := p.walk(); err != nil {
		return err
	}
	p.endTree()
	p.strayLeaves()
	p.checkEnd()
	return nil
}

// readRecords reads what the catalogue keeps of the partition.
func (p *partCheck) readRecords() {
	for _, prefix := range store.PartitionPrefixes(p.tp) {
		err := p.db.Iterate(prefix, func(k, v []byte) error {
			rec, err := store.DecodeRecord(k, v)
			if err != nil {
				return nil // reported when the whole catalogue was read
			}
			p.catalogued(rec)
			return nil
		})
		if err != nil {
			p.damage(p.cat, "catalogue unreadable", "partition %s: %v", p.tp, err)
		}
	}
}

func (p *partCheck) catalogued(rec any) {
	switch r := rec.(type) {
	case store.GrantRecord:
		if err := p.addGrant(r); err != nil {
			p.damage(p.cat, "grant wrong", "partition %s, term %d: %v", p.tp, r.Term, err)
		}
	case store.LostRecord:
		g, _, err := grant.Cut(r.Bytes)
		if err == nil {
			err = g.Verify()
		}
		if err == nil && (g.ID != r.ID || g.Store != p.id || g.Partition != p.tp) {
			err = fmt.Errorf("it is for %s of store %s", g.Partition, g.Store.Short())
		}
		if err != nil {
			p.damage(p.cat, "grant wrong", "partition %s, one that lost: %v", p.tp, err)
			return
		}
		p.beaten = append(p.beaten, g)
	case store.SnapshotRecord:
		snap, err := partition.ParseSnapshot(r.Bytes)
		if err != nil {
			p.warn(p.cat, "producer snapshot damaged", "partition %s: %v", p.tp, err)
			return
		}
		p.snapshot = &snap
		p.replay = partition.NewReplay()
	case store.CleanedRecord:
		p.cleaned = r.Offset
	case store.EvidenceRecord:
		p.addEvidence(r)
	case store.StatementRecord:
		if err := p.addStatement(r); err != nil {
			p.damage(p.cat, "compaction statement wrong", "partition %s, segment %d: %v", p.tp, r.Base, err)
		}
	}
}

// addGrant checks the next grant.
func (p *partCheck) addGrant(r store.GrantRecord) error {
	g, err := grant.Parse(r.Bytes)
	if err != nil {
		return err
	}
	if err := g.Verify(); err != nil {
		return err
	}
	var prev *grant.Signed
	if n := len(p.grants); n > 0 {
		prev = &p.grants[n-1]
	}
	p.grants = append(p.grants, g)
	switch {
	case g.Store != p.id || g.Partition != p.tp:
		return fmt.Errorf("it is for %s of store %s", g.Partition, g.Store.Short())
	case g.Term != r.Term:
		return fmt.Errorf("it is for term %d", g.Term)
	case p.fork != nil && g.Signer == p.node() && g.Leader == p.node(): // a fork is led by who made it
	case prev == nil && (g.Signer != p.leader || g.Leader != p.leader):
		return fmt.Errorf("signed by %s for %s, the topic is %s's", g.Signer.Short(), g.Leader.Short(), p.leader.Short())
	}
	return g.Follows(prev)
}

// addEvidence holds a grant that promises made to them. Those of a term without a grant are
// of one that never began.
func (p *partCheck) addEvidence(r store.EvidenceRecord) {
	i := slices.IndexFunc(p.grants, func(g grant.Signed) bool { return g.Term == r.Term })
	if i < 1 || p.grants[i].Kind != grant.Promises {
		return
	}
	if err := promise.Judge(&p.grants[i-1], &p.grants[i], r.Promises); err != nil {
		p.damage(p.cat, "promises wrong", "partition %s, term %d: %v", p.tp, r.Term, err)
	}
}

// addStatement checks a compaction statement.
func (p *partCheck) addStatement(r store.StatementRecord) error {
	c, err := merkle.OpenCompaction(r.Bytes)
	if err != nil {
		return err
	}
	switch {
	case c.Store != p.id || c.Log != p.tp.String():
		return fmt.Errorf("it is about %s of store %s", c.Log, c.Store.Short())
	case c.Author != p.leader && !slices.ContainsFunc(p.grants, func(g grant.Signed) bool { return g.Leader == c.Author }):
		return fmt.Errorf("signed by %s, who never led", c.Author.Short())
	case c.Base != r.Base:
		return fmt.Errorf("it is about segment %d", c.Base)
	}
	p.statements[r.Base] = append(p.statements[r.Base], statement{c, r.Number})
	p.claim(claim{c.Size, c.Root, -1, p.cat, fmt.Sprintf("the compaction statement %d about segment %d of %s", r.Number, c.Base, p.tp)})
	return nil
}

// granted returns the term in force at an offset; ok is false when no grant
// covers it. Of grants with one base the last counts: the others have no blocks.
func (p *partCheck) granted(offset int64) (term int32, ok bool) {
	i, found := slices.BinarySearchFunc(p.ruling, offset, func(g grant.Signed, o int64) int { return cmp.Compare(g.BaseOffset, o) })
	for found && i+1 < len(p.ruling) && p.ruling[i+1].BaseOffset == offset {
		i++
	}
	if !found {
		i--
	}
	if i < 0 {
		return 0, false
	}
	return p.ruling[i].Term, true
}

// followed sorts out what a follower cannot be held to: grants of terms whose batches
// did not come yet. It reports whether there is nothing more to check: the log was
// beginning anew further on when the node stopped.
func (p *partCheck) followed() (done bool) {
	p.claims = slices.DeleteFunc(p.claims, func(c claim) bool { return c.size > p.head.cp.Size })
	if c := p.head.cp; p.signed && c.Start == c.End && p.tree.prefix.Size() < c.Size {
		p.note(p.path("head"), "beginning anew", "at offset %d, where its leader's log begins; the next start finishes it", c.End)
		return true
	}
	return false
}

// signer is who signs the log's checkpoints in the term of a grant.
func (p *partCheck) signer(of lattice.Hash) lattice.AuthorID {
	if p.author != nil {
		return p.node()
	}
	for _, g := range slices.Concat(p.grants, p.beaten) {
		if g.ID == of {
			return g.Leader
		}
	}
	return p.leader
}

// checkEnd checks what speaks of the log's end.
func (p *partCheck) checkEnd() {
	if p.signed && p.next < p.head.Next {
		p.damage(p.dir, "batches missing", "the log is signed up to offset %d, what is here ends at %d", p.head.Next, p.next)
	}
	if p.author != nil {
		return
	}
	if p.cleaned < 0 || p.cleaned > p.next {
		p.damage(p.cat, "compaction beyond the end", "partition %s is compacted up to %d, it ends at %d", p.tp, p.cleaned, p.next)
	}
	if start := p.head.Start; start > 0 && !p.follower && (p.snapshot == nil || p.snapshot.Next < start) {
		p.damage(p.cat, "producer snapshot missing", "what the batches of %s before offset %d said of their producers was saved before they were dropped", p.tp, start)
	}
	switch s := p.snapshot; {
	case s == nil:
	case s.Next > p.next:
		p.damage(p.cat, "batches missing", "the producer snapshot of %s reaches to offset %d, the log ends at %d", p.tp, s.Next, p.next)
	case p.replay != nil:
		if err := s.Compare(p.replay, p.from); err != nil {
			p.damage(p.cat, "producer snapshot wrong", "partition %s: %v", p.tp, err)
		}
	}
}
