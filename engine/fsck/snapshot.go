package fsck

import (
	"strings"

	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/store"
)

// checkSnapshots reads the snapshots of a store from end to end. From the base, below
// which entries were pruned, it takes what the author logs do not hold any more.
func (s *storeCheck) checkSnapshots() {
	base := keyval.BasePath(s.fs, s.dir)
	dir := s.fs.PathDir(base)
	for _, name := range s.list(dir) {
		path := s.fs.PathJoin(dir, name)
		switch {
		case path == base:
			s.checkBase(path)
		case path == base+".since": // it decides nothing
		case strings.HasSuffix(name, ".snapshot"):
			t, err := keyval.ReadThrough(s.fs, path, func(state.Address, state.Row) error { return nil })
			if err != nil {
				s.damage(path, "snapshot damaged", "%v; lattice store snapshot takes another", err)
			} else if !strings.Contains(name, t.Seal.Sum.String()) || t.Head.Store() != s.id {
				s.damage(path, "snapshot damaged", "it is not the one that its name says")
			}
		case strings.HasSuffix(name, ".tmp"), name == "scratch":
			s.note(path, "unfinished snapshot", "taking it was interrupted")
		default:
			s.note(path, "belongs to nothing", "")
		}
	}
}

func (s *storeCheck) checkBase(path string) {
	t, err := keyval.ReadThrough(s.fs, path, func(a state.Address, r state.Row) error {
		if store.OfCatalogueMap(a.Map) {
			s.state.Set(a, r)
		}
		return nil
	})
	switch {
	case err != nil:
		s.damage(path, "snapshot damaged", "%v; entries below it were pruned: put it back from a backup", err)
		return
	case t.Head.Store() != s.id:
		s.damage(path, "snapshot damaged", "it is of store %s", t.Head.Store())
		return
	case s.fork != nil && t.Seal.Sum != s.fork.Snapshot:
		s.damage(path, "snapshot damaged", "the fork began from another, %s", s.fork.Snapshot)
		return
	}
	for _, c := range t.Chains {
		s.pruned[c.Writer] = c.Tip.Seq
		s.tips[c.Writer] = c.Tip
		if c.Writer.Author == s.node() {
			s.stamped(c.Time)
		}
	}
}

// below reports whether an entry is at or below the base.
func (s *storeCheck) below(e sigchain.Signed) bool {
	return e.Seq <= s.pruned[state.Writer{Author: e.Author, Incarnation: e.Incarnation}]
}
