package keyval

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/storage/kv"
)

// table is the part of the state that is in memory: what the fold database does
// not hold yet (dirty), and what was read lately (clean, which may be forgotten).
// What is in the table is newer than what is in the fold database, or equal.
//
// Writers hold DB.mu alone. Readers share it; what they load they put in under
// the lock of the key's shard.
type table struct {
	db    *kv.DB
	codec codec
	seed  maphash.Seed
	limit int64        // bytes of all that is in the table, about
	total atomic.Int64 // of all shards' bytes
	turn  atomic.Uint64

	shards [shardCount]shard

	mapMu sync.RWMutex
	maps  map[string]*mapInfo
	byID  []*mapInfo

	version atomic.Uint64 // of the last change of any key

	// The rest is owned by who holds DB.mu alone.
	round uint64            // number of the round that is being gathered, from 1
	dirty []item            // what changed in it; may name things that changed back
	bytes int64             // about what it takes
	wiped []map[string]*sub // rows of keys that were wiped: what is not attached can go
	undo  *undo             // where changes are noted; nil: they stay

	// absent is what the fold database does not hold, of keys and rows; nil: not
	// known. While logs are folded whoever writes rounds adds to it, and then written.
	absent *known

	// While logs are folded and nobody else is there (see replay.go):
	bulk      bool     // created and scores of the lists are not kept
	packed    *packed  // keys that are not in the shards
	packedMap *mapInfo // of the last of them
	buf       []byte   // scratch
	payload   []byte   // likewise
}

const (
	shardCount = 16
	// versionSlots is how many keys' versions a shard remembers after it forgot
	// the keys; more share slots, which changes versions without need.
	versionSlots = 4096
)

type shard struct {
	mu       sync.RWMutex
	keys     map[string]*entry
	ring     []item // everything in the shard, for the hand that forgets; each knows its place
	hand     int
	bytes    int64
	versions [versionSlots]uint64
}

// mapInfo is one map of the store.
type mapInfo struct {
	id      uint32
	name    string
	len     int64           // keys that are present
	dirty   uint64          // round
	created ordered[*entry] // present dirty keys that the fold database may not hold,
	noted   []*entry        // less those that nobody scanned for yet; see listing.go
}

// keyState is what is known of a key without its rows that have subs. Its slices
// are replaced, never changed.
type keyState struct {
	counts   [state.Kinds]int64
	seen     state.Cites
	live     []int64 // see seen.go; nil: not kept
	register state.Row
	expiry   state.Row
}

func (k *keyState) absent() bool { return k.counts == [state.Kinds]int64{} }

// entry is a key in the table, present or known to be absent.
type entry struct {
	keyState
	m       *mapInfo
	inner   string // see appendInner
	name    string // the key's bytes, part of inner
	subs    [state.Kinds]*subRows
	ends    *ends // of a list
	shard   *shard
	slot    uint32 // of the shard's versions
	at      uint32 // in the shard's ring
	version uint64
	group   uint64 // that changed it last
	dirty   uint64 // round that changed it last and is not written; 0: clean
	taken   uint64 // last round that took it; 0: none yet
	saved   uint64 // last undo that noted it
	counted bool   // among its map's keys
	listed  bool   // among its map's created,
	noted   bool   // or to be
	used    atomic.Bool
	gone    bool // the table has forgotten it; for who holds DB.mu alone

	// What the fold database holds of it.
	stored   bool
	apart    bool // a record for the register
	expires  bool // an entry in the index of expiry,
	expireAt int64
}

// subRows are the rows of one kind of a key that are in the table.
type subRows struct {
	rows    map[string]*sub
	wiped   uint64         // round since which what the fold database holds of the kind is gone; 0: it counts
	created ordered[*sub]  // dirty rows that are present,
	scores  *ordered[*sub] // those by scoreKey; for sorted sets;
	noted   []*sub         // less those that nobody scanned for yet; see listing.go
	swept   uint64         // round after which noted was looked through
}

// sub is one row with a sub.
type sub struct {
	e     *entry
	kind  state.Kind
	gone  bool   // as entry.gone
	at    uint32 // as entry.at
	name  string
	row   state.Row
	dirty uint64 // as entry.dirty
	taken uint64 // as entry.taken
	used  atomic.Bool

	listed listing // how it stands among created and scores
	noted  bool    // it is to be put there

	// What the fold database holds of it.
	stored bool
	scored bool // an entry among the scores,
	score  state.Score
}

// item is an entry, or a row of it.
type item struct {
	e *entry
	s *sub // nil: the entry itself
}

func newTable(db *kv.DB, w *writers, limit int64) *table {
	t := &table{db: db, codec: codec{w}, seed: maphash.MakeSeed(), limit: limit, maps: map[string]*mapInfo{}, round: 1}
	for i := range t.shards {
		t.shards[i].keys = map[string]*entry{}
	}
	return t
}

func (t *table) shardOf(inner []byte) (*shard, uint32) {
	h := maphash.Bytes(t.seed, inner)
	return &t.shards[h%shardCount], uint32(h / shardCount % versionSlots)
}

// hash returns the hash of a name of the fold database.
func (t *table) hash(name []byte) uint64 { return maphash.Bytes(t.seed, name) }

// mapOf returns a map's info; with make, it makes one, which only who holds DB.mu
// alone may ask for. nil: there is none.
func (t *table) mapOf(name string, make bool) *mapInfo {
	t.mapMu.RLock()
	m := t.maps[name]
	t.mapMu.RUnlock()
	if m != nil || !make {
		return m
	}
	t.mapMu.Lock()
	defer t.mapMu.Unlock()
	if m = t.maps[name]; m == nil {
		m = &mapInfo{id: uint32(len(t.byID)), name: name, dirty: t.round}
		t.maps[name] = m
		t.byID = append(t.byID, m)
	}
	return m
}

// find returns the entry of a key, loading it; inner is its name. shared says
// that others may be reading.
func (t *table) find(m *mapInfo, inner []byte, keyAt int, shared bool) (*entry, error) {
	s, slot := t.shardOf(inner)
	if shared {
		s.mu.RLock()
	}
	e := s.keys[string(inner)]
	if shared {
		s.mu.RUnlock()
	}
	if e != nil {
		if !e.used.Load() {
			e.used.Store(true)
		}
		return e, nil
	}
	e = &entry{m: m, inner: string(inner), shard: s, slot: slot}
	e.name = e.inner[keyAt:]
	if was, err := t.unpack(e); err != nil {
		return nil, err
	} else if !was {
		if err := t.loadKey(e); err != nil {
			return nil, err
		}
	}
	if shared {
		s.mu.Lock()
		defer s.mu.Unlock()
		if other := s.keys[e.inner]; other != nil {
			return other, nil
		}
	}
	e.version = s.versions[slot]
	s.keys[e.inner] = e
	t.admit(s, item{e: e}, e.size())
	return e, nil
}

// loadKey fills e from the fold database.
func (t *table) loadKey(e *entry) error {
	var room [64]byte
	name := recordKey(room[:0], e.inner)
	if t.absent != nil && t.absent.lacks(t.hash(name)) {
		return nil
	}
	v, ok, err := t.db.Get(name)
	if err != nil || !ok {
		return err
	}
	k, apart, err := t.codec.parseKey(v)
	if err != nil {
		return err
	}
	if apart {
		b, ok, err := t.db.Get(rowPrefix(nil, e.inner, state.Register))
		if err != nil {
			return err
		}
		if !ok {
			return corrupt("the register of key %q is missing", e.name)
		}
		if k.register, err = t.codec.parseRow(b); err != nil {
			return err
		}
	}
	e.keyState, e.stored, e.apart, e.counted = k, true, apart, true
	e.expireAt, e.expires = k.expiresAt()
	return nil
}

// expiresAt returns when the key expires, by the greatest head of its expiry.
func (k *keyState) expiresAt() (int64, bool) {
	if len(k.expiry) == 0 {
		return 0, false
	}
	x, err := state.ParseExpiring(k.expiry.Last().Payload)
	return x.At, err == nil
}

// rows returns the rows of a kind that are in the table; shared as in find.
func (t *table) rows(e *entry, k state.Kind) *subRows {
	if e.subs[k] == nil {
		e.subs[k] = &subRows{rows: map[string]*sub{}}
		if k == state.Scored {
			e.subs[k].scores = &ordered[*sub]{}
		}
	}
	return e.subs[k]
}

// findSub returns a row with a sub, loading it. Absent ones have an empty row.
func (t *table) findSub(e *entry, k state.Kind, name []byte, shared bool) (*sub, error) {
	sh := e.shard
	if shared {
		sh.mu.RLock()
	}
	var s *sub
	var wiped bool
	if r := e.subs[k]; r != nil {
		s, wiped = r.rows[string(name)], r.wiped != 0
	}
	if shared {
		sh.mu.RUnlock()
	}
	if s != nil {
		if !s.used.Load() {
			s.used.Store(true)
		}
		return s, nil
	}
	s = &sub{e: e, kind: k, name: string(name)}
	if e.stored && !wiped && e.counts[k] > 0 && (k != state.Element || !e.ends.lacks(name)) {
		if err := t.loadSub(s); err != nil {
			return nil, err
		}
	}
	if shared {
		sh.mu.Lock()
		defer sh.mu.Unlock()
	}
	r := t.rows(e, k)
	if other := r.rows[s.name]; other != nil {
		return other, nil
	}
	r.rows[s.name] = s
	t.admit(sh, item{e, s}, s.size())
	return s, nil
}

func (t *table) loadSub(s *sub) error {
	var room [96]byte
	name := rowKey(room[:0], s)
	if t.absent != nil && t.absent.lacks(t.hash(name)) {
		return nil
	}
	v, ok, err := t.db.Get(name)
	if err != nil || !ok {
		return err
	}
	if s.row, err = t.codec.parseRow(v); err != nil {
		return err
	}
	s.stored = true
	s.score, s.scored = scoreOf(s.kind, s.row)
	return nil
}

// scoreOf returns the score by which a sorted set's member is found.
func scoreOf(k state.Kind, r state.Row) (state.Score, bool) {
	if k != state.Scored || len(r) == 0 {
		return 0, false
	}
	s, err := state.ParseScore(r.Last().Payload)
	return s, err == nil // only scores get into rows
}

// admit counts something new in the shard, and forgets what was not used lately
// when there is too much. The shard is the caller's alone.
func (t *table) admit(s *shard, it item, size int64) {
	it.place(len(s.ring))
	s.ring = append(s.ring, it)
	t.weigh(s, size)
	for tries := 0; t.total.Load() > t.limit && tries < 8; tries++ {
		// Every other time from another shard, each in turn, because all rows of a
		// key are in one: a large key takes what others leave. A shard that is small,
		// or that somebody is in, is passed over.
		if v := &t.shards[t.turn.Add(1)%shardCount]; tries%2 == 0 && v != s && v.mu.TryLock() {
			large := v.bytes > t.limit/(4*shardCount)
			if large {
				t.forget(v, it)
			}
			v.mu.Unlock()
			if large {
				continue
			}
		}
		t.forget(s, it)
	}
}

// weigh counts what came into a shard, or left it.
func (t *table) weigh(s *shard, size int64) {
	s.bytes += size
	t.total.Add(size)
}

// forget takes one step of the hand: something clean that was not used since it
// came by last goes; but not keep, which was only just admitted.
func (t *table) forget(s *shard, keep item) {
	if len(s.ring) == 0 {
		return
	}
	s.hand %= len(s.ring)
	it := s.ring[s.hand]
	if it == keep || !it.idle() {
		s.hand++
		return
	}
	t.drop(s, it)
}

// place notes where an item is in its shard's ring.
func (it item) place(at int) {
	if it.s != nil {
		it.s.at = uint32(at)
	} else {
		it.e.at = uint32(at)
	}
}

// drop takes an item out of the table: nothing may be lost with it. The shard is the
// caller's alone.
func (t *table) drop(s *shard, it item) {
	at, last := it.e.at, len(s.ring)-1
	if it.s != nil {
		at = it.s.at
	}
	s.ring[at] = s.ring[last]
	s.ring[at].place(int(at))
	s.ring[last] = item{}
	s.ring = s.ring[:last]
	if it.s != nil {
		r := it.e.subs[it.s.kind]
		if r != nil && r.rows[it.s.name] == it.s {
			delete(r.rows, it.s.name)
		}
		it.s.gone = true
		t.weigh(s, -it.s.size())
		return
	}
	delete(s.keys, it.e.inner)
	it.e.gone = true
	t.weigh(s, -it.e.size())
	s.versions[it.e.slot] = max(s.versions[it.e.slot], it.e.version)
}

// idle reports whether nothing is lost when it goes, and nobody asked for it
// since the last time.
func (it item) idle() bool {
	if it.s != nil {
		return !it.s.attached() || it.s.dirty == 0 && !it.s.used.Swap(false)
	}
	e := it.e
	if e.dirty != 0 {
		return false
	}
	for _, k := range subKinds {
		if r := e.subs[k]; r != nil && (r.wiped != 0 || len(r.rows) > 0) {
			return false
		}
	}
	return !e.used.Swap(false)
}

// attached reports whether s is its key's row of that name, and not one that was
// wiped or forgotten.
func (s *sub) attached() bool {
	r := s.e.subs[s.kind]
	return r != nil && r.rows[s.name] == s
}

func weigh(r state.Row) int64 {
	n := int64(0)
	for _, h := range r {
		n += 128 + int64(len(h.Payload.Bytes))
	}
	return n
}

func (k *keyState) size() int64 {
	return weigh(k.register) + weigh(k.expiry) + 56*int64(len(k.seen)) + 8*int64(len(k.live))
}

func (e *entry) size() int64 {
	n := 328 + int64(len(e.inner)) + e.keyState.size()
	if e.ends != nil {
		n += endsSize
	}
	return n
}

func (s *sub) size() int64 { return 184 + 2*int64(len(s.name)) + weigh(s.row) }
