// Package projector consumes causet.projection-events.v1 and applies it to the projections
// of one application.
//
// Each projection has a consumer group of its own, GROUP.PROJECTION: one that is paused
// holds up nobody, a new one begins at the topic's start, and its lag is what Kafka's tools
// say. A Projector has one Kafka client for each projection, with cooperative rebalancing,
// and one goroutine for each partition that it owns.
//
//	poll loop       records to their partition's inbox, and no further while that is full
//	partition       a Lane says what to do; projection.Store does it, in one transaction
//	committer       commits offsets of what is durable, every CommitEvery
//
// When a partition is taken away, its goroutine finishes the transaction that it is in and
// no other, its offset is committed, and then the partition is let go. When it is lost,
// nothing is committed. Two that believe they own one do no harm: see package projection.
//
// Events of unknown types and of tenant schemas that are not served are passed over and
// counted.
//
// # Deciding
//
// A Lane is one projection on one partition. Records go in, actions come out, and what came
// of each goes in again. It owns no goroutine, clock, random number or connection, so that
// every order of failures can be played from a script (testdata).
//
// The caller must
//
//  1. Offer records in the order of the partition, and fetch no more while Room is 0;
//  2. carry out what Next says, and tell Done what came of it before it asks again;
//  3. carry out Apply and Bury each in one transaction with the guards of its entities:
//     within it, projection.Judge each record, and park one whose entity is parked;
//  4. commit no offset above Position, and only what is durable in the database.
//
// # What happens to a failure
//
//	transient    the same again, later and later; after PauseAfter attempts the lane is
//	             paused, which means that it says so and goes on trying. Never a dead letter:
//	             an outage fills nothing
//	schema       paused at once: every event would fail
//	data         a batch is taken apart, so that only the record that fails waits. It is
//	             tried Retries times more, then buried: it becomes a dead letter, and later
//	             events of its entity are parked behind it. Others go on
//	data, many   Flood burials with no success between them: paused. What would be buried
//	             next is what the lane tries from then on
//	fenced       another owns the partition: the lane ends, and commits nothing
//
// What a crash leaves, at any point: effects, guards, dead letters and parked events
// are of one transaction each, and offsets follow. So what is done again finds its guard,
// and projection.Judge calls it a duplicate.
package projector

import (
	"fmt"
	"time"
)

// Class says what can be done about a failure.
type Class uint8

// The classes. The zero value is success.
const (
	OK        Class = iota
	Transient       // may work later: connection, deadlock, timeout
	Schema          // no event can work until somebody mends the database
	Data            // this event cannot work: a value, an expression, a constraint
	Decode          // these bytes are no event: they never will be
	Fenced          // another instance owns the partition now
)

func (c Class) String() string {
	return [...]string{"ok", "transient", "schema", "data", "decode", "fenced"}[c]
}

// Config bounds a lane. The zero value of each field is its default.
type Config struct {
	// Retries is how often an event that fails is tried again before it is buried (5).
	Retries int
	// PauseAfter is the number of attempts at something transient after which the lane
	// says that it is paused (8).
	PauseAfter int
	// Flood is the number of burials with no success between them that pauses the lane (10).
	Flood int
	// RetryBase is the wait before the first retry of an event (20 ms), Base before that of
	// anything else (100 ms). Each further wait is twice as long, up to Max (30 s).
	RetryBase, Base, Max time.Duration
	// Batch is the number of records that are applied in one transaction (256), Queue the
	// number that a lane holds (4096).
	Batch, Queue int
}

func (c Config) withDefaults() Config {
	for _, f := range []struct {
		field *int
		value int
	}{{&c.Retries, 5}, {&c.PauseAfter, 8}, {&c.Flood, 10}, {&c.Batch, 256}, {&c.Queue, 4096}} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{{&c.RetryBase, 20 * time.Millisecond}, {&c.Base, 100 * time.Millisecond}, {&c.Max, 30 * time.Second}} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	return c
}

// Record is one record of the partition.
type Record struct {
	Offset int64
	// Undecodable records are no events; they are buried without being tried.
	Undecodable bool
}

// ActionKind is what is to be done next.
type ActionKind uint8

// The actions.
const (
	Idle  ActionKind = iota // nothing: Offer more
	Wait                    // nothing before Until
	Apply                   // apply Records in one transaction
	Bury                    // make Records[0] a dead letter and park its entity
	Stop                    // nothing any more
)

func (k ActionKind) String() string {
	return [...]string{"idle", "wait", "apply", "bury", "stop"}[k]
}

// Action is what the caller does next.
type Action struct {
	Kind    ActionKind
	Records []Record  // of Apply and Bury; valid until Done
	Until   time.Time // of Wait

	// Of Bury: why, after how many retries, and when it failed first.
	Class       Class
	Retries     int
	FirstFailed time.Time
}

// Notice is what people should be told of. It is empty when nothing changed.
type Notice string

// Lane decides what happens to the records of one partition for one projection.
// It is used by one goroutine.
type Lane struct {
	cfg   Config
	queue []Record

	applied int64 // offset behind the last record that is done with
	single  int64 // records below this offset are applied one by one

	tries       int // failures of the head that are its own, since it came up
	outages     int // failures that are not the head's, since the last success
	class       Class
	firstFailed time.Time // when the head failed first by its own fault
	bury        bool      // the head is to be buried
	until       time.Time
	burials     int    // since the last success
	paused      string // why; "" while it is not
	held        bool   // by an operator
	ended       bool
	busy        bool // doing is under way
	doing       Action
}

// NewLane returns a lane whose first record has at least this offset.
func NewLane(cfg Config, offset int64) *Lane { return &Lane{cfg: cfg.withDefaults(), applied: offset} }

// Room returns how many records the lane still takes.
func (l *Lane) Room() int { return l.cfg.Queue - len(l.queue) }

// Offer adds the next records. It refuses what is out of order or more than Room.
func (l *Lane) Offer(records ...Record) error {
	if len(records) > l.Room() {
		return fmt.Errorf("lane: %d records, and there is room for %d", len(records), l.Room())
	}
	next := l.applied
	if n := len(l.queue); n > 0 {
		next = l.queue[n-1].Offset + 1
	}
	for _, r := range records {
		if r.Offset < next {
			return fmt.Errorf("lane: offset %d comes behind %d", r.Offset, next-1)
		}
		next = r.Offset + 1
	}
	l.queue = append(l.queue, records...)
	return nil
}

// Position returns the offset up to which all is done: what may be committed.
func (l *Lane) Position() int64 { return l.applied }

// Paused returns why the lane is paused, or "".
func (l *Lane) Paused() string {
	if l.held {
		return "by an operator"
	}
	return l.paused
}

// flood reports a lane that buries nothing any more.
func (l *Lane) flood() bool { return l.burials >= l.cfg.Flood }

// Next returns what to do at this time. It says the same until Done.
func (l *Lane) Next(now time.Time) Action {
	switch {
	case l.busy:
		return l.doing
	case l.ended:
		return Action{Kind: Stop}
	case l.held || len(l.queue) == 0 || l.queue[0].Undecodable && l.flood():
		return Action{Kind: Idle}
	case now.Before(l.until):
		return Action{Kind: Wait, Until: l.until}
	}
	l.busy = true
	switch head := l.queue[0]; {
	case head.Undecodable:
		l.doing = Action{Kind: Bury, Records: l.queue[:1:1], Class: Decode, FirstFailed: now}
	case l.bury:
		l.doing = Action{Kind: Bury, Records: l.queue[:1:1], Class: l.class, Retries: l.tries - 1, FirstFailed: l.firstFailed}
	default:
		n := l.batch()
		l.doing = Action{Kind: Apply, Records: l.queue[:n:n]}
	}
	return l.doing
}

// batch returns how many records are applied together: one while the lane is in trouble.
func (l *Lane) batch() int {
	if l.tries > 0 || l.paused != "" || l.queue[0].Offset < l.single {
		return 1
	}
	n := 0
	for n < min(len(l.queue), l.cfg.Batch) && !l.queue[n].Undecodable {
		n++
	}
	return n
}

// Done says what came of the last action. jitter, from 0 to 1, shortens a wait by up to
// a half, so that lanes that failed together do not come back together.
func (l *Lane) Done(now time.Time, class Class, jitter float64) Notice {
	if !l.busy {
		return ""
	}
	l.busy = false
	a := l.doing
	switch {
	case class == Fenced:
		l.ended = true
		return "another instance owns the partition: this lane ends"
	case class == OK:
		return l.success(a)
	case class == Schema && a.Kind == Apply:
		return l.schema(now, jitter)
	case class == Transient || a.Kind == Bury: // that a burial fails is not the event's fault
		return l.transient(now, jitter)
	case len(a.Records) > 1:
		// Take the batch apart: which record it is shows when each is alone.
		l.single, l.until = a.Records[len(a.Records)-1].Offset+1, time.Time{}
		return ""
	}
	return l.data(now, class, jitter)
}

func (l *Lane) success(a Action) Notice {
	last := a.Records[len(a.Records)-1]
	l.applied = last.Offset + 1
	l.queue = l.queue[len(a.Records):]
	l.tries, l.outages, l.bury, l.until, l.firstFailed, l.class = 0, 0, false, time.Time{}, time.Time{}, OK
	was := l.paused
	l.paused = ""
	if a.Kind == Bury {
		notice := Notice(fmt.Sprintf("offset %d is a dead letter (%s)", last.Offset, a.Class))
		if l.burials++; l.flood() {
			l.paused = fmt.Sprintf("%d events in a row failed", l.burials)
			notice += Notice("; paused: " + l.paused)
		}
		return notice
	}
	l.burials = 0
	if was != "" {
		return "resumed"
	}
	return ""
}

// wait sets when the lane goes on after its nth failure of a kind.
func (l *Lane) wait(now time.Time, n int, base time.Duration, jitter float64) {
	wait := l.cfg.Max
	if n--; n < 30 && base<<n < wait {
		wait = base << n
	}
	l.until = now.Add(wait - time.Duration(min(max(jitter, 0), 1)*float64(wait)/2))
}

func (l *Lane) transient(now time.Time, jitter float64) Notice {
	l.outages++
	l.wait(now, l.outages, l.cfg.Base, jitter)
	if l.outages < l.cfg.PauseAfter || l.paused != "" {
		return ""
	}
	l.paused = fmt.Sprintf("%d attempts failed", l.outages)
	return Notice("paused: " + l.paused)
}

func (l *Lane) schema(now time.Time, jitter float64) Notice {
	l.outages++
	l.wait(now, l.outages, l.cfg.Base, jitter)
	if l.paused != "" {
		return ""
	}
	l.paused = "the database lacks what every event needs"
	return Notice("paused: " + l.paused)
}

// data counts a failure of the event itself. In a flood nothing is buried: the event is
// what the lane goes on trying.
func (l *Lane) data(now time.Time, class Class, jitter float64) Notice {
	if l.tries++; l.tries == 1 {
		l.firstFailed = now
	}
	l.class = class
	switch {
	case l.flood():
		l.wait(now, l.tries, l.cfg.Base, jitter)
	case l.tries > l.cfg.Retries:
		l.bury, l.until = true, time.Time{}
	default:
		l.wait(now, l.tries, l.cfg.RetryBase, jitter)
	}
	return ""
}

// Hold pauses the lane until Release. What is under way is finished.
func (l *Lane) Hold() { l.held = true }

// Release ends Hold, and any other pause: the next record is tried at once, and a flood
// is counted anew.
func (l *Lane) Release() {
	l.held, l.paused, l.until, l.burials, l.outages = false, "", time.Time{}, 0, 0
	if !l.bury {
		l.tries = 0
	}
}
