package share

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/group"
)

// Manager coordinates the share groups of one store. It is safe for concurrent use.
// Replies are called exactly once each, with no lock held, possibly before the call
// returns, and must not block.
//
// Locks are taken in this order: mu, entry.mu, queueMu. The Logs are asked with
// entry.mu held, never with mu or queueMu, and read with none. TopicsChanged takes
// none: the store may call it from inside its own lock.
type Manager struct {
	cfg   Config
	store Records
	logs  Logs
	names Names

	version  atomic.Uint64 // how often the topics changed; begins at 1
	sessions atomic.Int64  // open ones, of all groups
	parts    atomic.Int64  // partitions with a state, of all groups

	configMu sync.Mutex // held while a group is set to something

	mu      sync.Mutex
	groups  map[string]*entry
	configs map[string]map[string]string // what groups are set to; values are replaced
	closed  bool

	// queue holds the states that Run has not taken up yet. wake has room for one
	// signal that it is not empty.
	queueMu  sync.Mutex
	queue    []write
	queueEnd bool // nothing is queued any more
	wake     chan struct{}
}

// entry is one group.
type entry struct {
	name string

	mu           sync.Mutex
	gone, closed bool // out of the map: look again; the manager is closed
	settings     Settings
	members      *membership
	sessions     map[string]*Session // by member
	parts        map[lattice.TopicPartition]*delivery
	waiters      map[*waiter]struct{}
	changes      uint64 // how often something became available, or there was room
	queued       int    // writes that Run has not finished

	stop func() bool // ends the timer that fires at the time at; zero: no timer
	at   time.Time
}

// delivery is one partition of a group.
type delivery struct {
	w       *window
	durable bool  // where the group begins is
	term    int32 // of the log when the state was stored; -1: none
	fresh   bool  // compared with the log since the node started
}

// waiter is a member that waits for records.
type waiter struct{ wake func() }

// New loads the stored states. Nothing is written before Run runs, but every request
// that needs no disk is answered from now on.
func New(cfg Config, store Records, logs Logs, names Names) (*Manager, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	m := &Manager{
		cfg: cfg, store: store, logs: logs, names: names, wake: make(chan struct{}, 1),
		groups: map[string]*entry{}, configs: map[string]map[string]string{},
	}
	m.version.Store(1)
	err := store.LoadGroupConfigs(func(name string, set map[string]string) error {
		if _, err := ParseSettings(cfg.Defaults, set); err != nil {
			return fmt.Errorf("group %q: %w", name, err)
		}
		m.configs[name] = set
		return nil
	})
	if err == nil {
		err = store.LoadShares(m.load)
	}
	if err != nil {
		return nil, fmt.Errorf("load share groups: %w", err)
	}
	return m, nil
}

// load takes up a stored state, or has it removed when its topic is gone: a crash
// came between the two.
func (m *Manager) load(k group.Key, s State) error {
	e := m.groups[k.Group]
	if e == nil {
		if !m.names.Claim(k.Group) {
			return lattice.E(lattice.Corrupt, fmt.Errorf("%q is a share group and another one", k.Group))
		}
		e = m.newEntry(k.Group)
		m.groups[k.Group] = e
	}
	if _, ok := m.logs.TopicByID(k.Topic); !ok {
		m.save(e, k.TopicPartition, &effects{}, nobody)
		return nil
	}
	e.parts[k.TopicPartition] = &delivery{w: windowOf(s), durable: true, term: s.Term}
	m.parts.Add(1)
	return nil
}

func (m *Manager) newEntry(name string) *entry {
	settings, err := ParseSettings(m.cfg.Defaults, m.configs[name])
	if err != nil {
		settings = m.cfg.Defaults // it was checked when it was set, and when it was loaded
	}
	return &entry{
		name: name, settings: settings, members: newMembership(), sessions: map[string]*Session{},
		parts: map[lattice.TopicPartition]*delivery{}, waiters: map[*waiter]struct{}{},
	}
}

// with runs f on a group under its lock, then sends what f decided on. ErrClosed;
// ErrGroupNotFound unless create is set, or when another kind of group has the name;
// ErrMaxSize when there are too many groups.
func (m *Manager) with(name string, create bool, f func(e *entry, now time.Time, fx *effects)) error {
	for {
		e, err := m.find(name, create)
		if err != nil {
			return err
		}
		e.mu.Lock()
		if e.gone {
			e.mu.Unlock()
			m.drop(e)
			continue
		}
		if e.closed {
			e.mu.Unlock()
			return ErrClosed
		}
		now := m.cfg.Clock.Now()
		fx := &effects{}
		m.expire(e, now, fx)
		f(e, now, fx)
		m.leave(e, fx)
		return nil
	}
}

// leave lets go of an entry's lock, and does what was decided under it.
func (m *Manager) leave(e *entry, fx *effects) {
	e.gone = e.gone || e.vacant()
	gone := e.gone
	if gone && e.stop != nil {
		e.stop()
	}
	e.mu.Unlock()
	if gone {
		m.drop(e)
	}
	fx.run()
}

// effects are the calls that wait until no lock is held.
type effects struct{ calls []func() }

func (fx *effects) add(f func()) { fx.calls = append(fx.calls, f) }

func (fx *effects) run() {
	for _, f := range fx.calls {
		f()
	}
}

func (m *Manager) find(name string, create bool) (*entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch e := m.groups[name]; {
	case m.closed:
		return nil, ErrClosed
	case e != nil:
		return e, nil
	case !create:
		return nil, ErrGroupNotFound
	case name == "" || len(name) > maxGroupBytes:
		return nil, fmt.Errorf("%w: a group's name of %d bytes", ErrInvalidRequest, len(name))
	case len(m.groups) >= m.cfg.MaxGroups:
		return nil, fmt.Errorf("%w: this node knows %d share groups already", ErrMaxSize, len(m.groups))
	case !m.names.Claim(name):
		return nil, fmt.Errorf("%w of that name: there is one of another type", ErrGroupNotFound)
	}
	e := m.newEntry(name)
	m.groups[name] = e
	return e, nil
}

// maxGroupBytes is the longest name: the longest string of the Kafka protocol.
const maxGroupBytes = 1<<15 - 1

// drop takes a gone entry out of the map. The caller holds no lock.
func (m *Manager) drop(e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.groups[e.name] == e {
		delete(m.groups, e.name)
		m.names.Unclaim(e.name)
	}
}

// entries returns all groups of the moment.
func (m *Manager) entries() []*entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*entry, 0, len(m.groups))
	for _, e := range m.groups {
		all = append(all, e)
	}
	return all
}

// vacant reports whether nothing would be lost with the entry.
func (e *entry) vacant() bool {
	return len(e.members.members)+len(e.parts)+len(e.sessions)+len(e.waiters)+e.queued == 0
}

// arm makes sure that the timer fires no later than t; zero: never mind.
func (m *Manager) arm(e *entry, now, t time.Time) {
	if t.IsZero() || !e.at.IsZero() && !t.Before(e.at) {
		return
	}
	if e.stop != nil {
		e.stop()
	}
	e.at = t
	e.stop = m.cfg.Clock.AfterFunc(max(t.Sub(now), 0), func() { m.fire(e, t) })
}

// fire is the timer's callback. at tells a timer that was replaced in the last
// moment from the one that counts.
func (m *Manager) fire(e *entry, at time.Time) {
	e.mu.Lock()
	if e.gone || e.closed || !e.at.Equal(at) {
		e.mu.Unlock()
		return
	}
	e.at, e.stop = time.Time{}, nil
	now := m.cfg.Clock.Now()
	fx := &effects{}
	m.end(e, now, fx)
	m.arm(e, now, e.members.deadline())
	for _, d := range e.parts {
		m.arm(e, now, d.w.until)
	}
	m.leave(e, fx)
}

// expire is what the timer does, for a request that comes when its time is there. It
// is cheap before.
func (m *Manager) expire(e *entry, now time.Time, fx *effects) {
	if !e.at.IsZero() && !now.Before(e.at) {
		m.end(e, now, fx)
	}
}

// end removes the members, and ends the locks, whose time is over.
func (m *Manager) end(e *entry, now time.Time, fx *effects) {
	for _, id := range e.members.expired(now) {
		e.members.remove(id)
	}
	for tp, d := range e.parts {
		if d.w.expire(now, e.settings.limits()) {
			m.changed(e, tp, fx)
		}
	}
}

// changed notes that records became available in a partition, which is written, and
// waited for by nobody.
func (m *Manager) changed(e *entry, tp lattice.TopicPartition, fx *effects) {
	m.save(e, tp, fx, nobody)
	e.stir(fx)
}

// stir wakes everybody who waits for records of the group.
func (e *entry) stir(fx *effects) {
	e.changes++
	for w := range e.waiters {
		fx.add(w.wake)
	}
	clear(e.waiters)
}

// view is the topics as of now.
func (m *Manager) view() topicView {
	version := m.version.Load() // first, so that what is read is at least as new
	return topicView{Topics: m.logs, version: version}
}

// TopicsChanged says that topics were created, deleted or given partitions. Members
// hear of it with their next heartbeats.
func (m *Manager) TopicsChanged() { m.version.Add(1) }

// TopicDeleted drops the states of a topic incarnation. The topic must be gone from
// the Logs already. Calling it again is harmless, and right after a crash.
func (m *Manager) TopicDeleted(id lattice.TopicID) {
	m.TopicsChanged()
	for _, e := range m.entries() {
		e.mu.Lock()
		fx := &effects{}
		for tp := range e.parts {
			if tp.Topic == id {
				m.forget(e, tp, fx, nobody)
			}
		}
		e.stir(fx)
		m.leave(e, fx)
	}
}

// forget removes a partition's state; done is told when that is durable.
func (m *Manager) forget(e *entry, tp lattice.TopicPartition, fx *effects, done func(error)) {
	delete(e.parts, tp)
	m.parts.Add(-1)
	m.save(e, tp, fx, done)
}

// Heartbeat is a member's word that it is there. One that leaves, or is removed, may
// still have a session, and what it acquired: clients leave before they send their last
// acknowledgements. Those end with the session, its connection, or the locks.
//
// A member that we do not know, because it was removed or because we restarted, is
// told ErrUnknownMember even when we do not know the group either: that is what makes
// clients join again.
func (m *Manager) Heartbeat(r HeartbeatRequest) HeartbeatResult {
	refuse := func(err error) HeartbeatResult { return HeartbeatResult{Err: err, MemberID: r.MemberID} }
	if err := validHeartbeat(r, m.cfg.MaxMemberBytes); err != nil {
		return refuse(err)
	}
	var res HeartbeatResult
	err := m.with(r.Group, r.MemberEpoch == EpochJoin, func(e *entry, now time.Time, fx *effects) {
		if r.MemberEpoch == EpochLeave {
			res = HeartbeatResult{MemberID: r.MemberID, MemberEpoch: EpochLeave}
			if e.members.members[r.MemberID] == nil {
				res.Err = ErrUnknownMember
				return
			}
			e.members.remove(r.MemberID)
			return
		}
		res = e.members.heartbeat(now, r, e.settings, m.cfg.MaxSize, m.view())
		m.arm(e, now, e.members.deadline())
	})
	if errors.Is(err, ErrGroupNotFound) && r.MemberEpoch != EpochJoin {
		err = ErrUnknownMember
	}
	if err != nil {
		return refuse(err)
	}
	return res
}

// letGo makes available what a member has.
func (m *Manager) letGo(e *entry, member string, fx *effects) {
	for tp, d := range e.parts {
		if d.w.leave(member, e.settings.limits()) {
			m.changed(e, tp, fx)
		}
	}
}

// Config returns what a group is set to, beyond the defaults.
func (m *Manager) Config(name string) map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.configs[name])
}

// Configured returns the groups that are set to something, sorted.
func (m *Manager) Configured() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.configs))
}

// SetConfig replaces what a group is set to, durably before it returns, whether the
// group exists or not. It applies to what happens from then on: a lock that is held
// keeps its time. Errors: *SettingError, ErrMaxSize, or of Kind Storage.
func (m *Manager) SetConfig(name string, set map[string]string) error {
	settings, err := ParseSettings(m.cfg.Defaults, set)
	if err != nil {
		return err
	}
	if name == "" || len(name) > maxGroupBytes {
		return fmt.Errorf("%w: a group's name of %d bytes", ErrInvalidRequest, len(name))
	}
	m.configMu.Lock()
	defer m.configMu.Unlock()
	m.mu.Lock()
	full := m.configs[name] == nil && len(m.configs) >= m.cfg.MaxGroups
	m.mu.Unlock()
	if full && len(set) > 0 {
		return fmt.Errorf("%w: this node has configs of %d groups already", ErrMaxSize, m.cfg.MaxGroups)
	}
	if err := m.store.PutGroupConfig(name, set); err != nil {
		return fmt.Errorf("configs of group %q: %w", name, err)
	}
	m.mu.Lock()
	m.configs[name] = maps.Clone(set)
	if len(set) == 0 {
		delete(m.configs, name)
	}
	e := m.groups[name]
	m.mu.Unlock()
	if e == nil {
		return nil
	}
	e.mu.Lock()
	fx := &effects{}
	e.settings = settings
	e.stir(fx)
	m.leave(e, fx)
	return nil
}
