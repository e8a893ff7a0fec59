package keyval

import (
	"slices"

	"github.com/lattice-log/lattice/core/state"
)

// This file keeps in order what scans have to find in the table, because the fold
// database may not hold it: rows and keys that are dirty and present. Most are
// written before anybody scans, so a change only notes that its row is to be
// listed; the next scan puts what was noted in order.

// listing says how a row stands among those that the fold database may not hold.
type listing struct {
	here   bool // a dirty row that is present
	scored bool // likewise, with a score
	score  state.Score
}

func (s *sub) listing() (l listing) {
	if l.here = s.dirty != 0 && len(s.row) > 0; l.here {
		l.score, l.scored = scoreOf(s.kind, s.row)
	}
	return l
}

// relist has a row that changed, or was written, found by scans as it is now.
func (t *table) relist(s *sub) {
	switch {
	case s.noted, t.bulk && !s.listed.here: // at the next scan; at the end of the replay
	case s.listing() == s.listed, !s.attached():
	case !s.listed.here:
		r := s.e.subs[s.kind]
		r.noted = append(r.noted, s)
		s.noted = true
	default:
		s.e.subs[s.kind].list(s)
	}
}

// list puts a row where it belongs.
func (r *subRows) list(s *sub) {
	was, is := s.listed, s.listing()
	if is.here && !was.here {
		r.created.set(s.name, s)
	} else if was.here && !is.here {
		r.created.remove(s.name)
	}
	if was.scored && was != is {
		r.scores.remove(scoreKey(was.score, s.name))
	}
	if is.scored && was != is {
		r.scores.set(scoreKey(is.score, s.name), s)
	}
	s.listed = is
}

// listNoted puts in order what was noted.
func (r *subRows) listNoted() {
	for _, s := range r.noted {
		if s.noted = false; s.attached() {
			r.list(s)
		}
	}
	clear(r.noted)
	r.noted = r.noted[:0]
}

// forgetWritten drops what was noted and is in the fold database by now.
func (r *subRows) forgetWritten() {
	r.noted = slices.DeleteFunc(r.noted, func(s *sub) bool {
		s.noted = s.attached() && s.listing() != s.listed
		return !s.noted
	})
}

// scanned returns the rows of a kind that are in the table, nil for none, ready to
// be scanned. Who shares DB.mu may come at the same time.
func (t *table) scanned(e *entry, k state.Kind, shared bool) *subRows {
	if !shared {
		r := e.subs[k]
		if r != nil && !t.bulk {
			r.listNoted()
		}
		return r
	}
	sh := e.shard
	sh.mu.RLock()
	r := e.subs[k]
	ready := r == nil || len(r.noted) == 0
	sh.mu.RUnlock()
	if !ready {
		sh.mu.Lock()
		r.listNoted() // once: nothing is noted while others read
		sh.mu.Unlock()
	}
	return r
}

// pending reports whether a key is present and the fold database may not hold it.
func (e *entry) pending() bool { return e.dirty != 0 && !e.absent() }

// relistKey is relist for a key in its map.
func (t *table) relistKey(e *entry) {
	m, is := e.m, e.pending()
	switch {
	case is == e.listed, t.bulk && is:
	case !is:
		m.created.remove(e.name)
		e.listed = false
	case !e.noted:
		m.noted = append(m.noted, e)
		e.noted = true
	}
}

// listNoted puts in order the keys that were noted.
func (m *mapInfo) listNoted() {
	for _, e := range m.noted {
		if e.noted = false; e.pending() && !e.listed {
			m.created.set(e.name, e)
			e.listed = true
		}
	}
	clear(m.noted)
	m.noted = m.noted[:0]
}

// forgetWritten is that of subRows, for keys.
func (m *mapInfo) forgetWritten() {
	m.noted = slices.DeleteFunc(m.noted, func(e *entry) bool {
		e.noted = e.pending() && !e.listed
		return !e.noted
	})
}

// scannedMap makes a map ready for its keys to be scanned; see scanned.
func (t *table) scannedMap(m *mapInfo, shared bool) {
	if !shared {
		m.listNoted()
		return
	}
	t.mapMu.RLock()
	ready := len(m.noted) == 0
	t.mapMu.RUnlock()
	if !ready {
		t.mapMu.Lock()
		m.listNoted()
		t.mapMu.Unlock()
	}
}
