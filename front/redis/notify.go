package redis

import (
	"slices"
	"sync"
)

// notifyClass is a class of keyspace events.
type notifyClass uint32

const (
	notifyGeneric notifyClass = 1 << iota
	notifyString
	notifyList
	notifySet
	notifyHash
	notifyZset
	notifyExpired
	notifyEvicted
	notifyStream
	notifyModule
	notifyKeyspace // what is sent, not what of: channels named by key
	notifyKeyevent // channels named by event

	notifyAll = notifyGeneric | notifyString | notifyList | notifySet | notifyHash | notifyZset | notifyExpired |
		notifyEvicted | notifyStream | notifyModule
)

// notifyLetters are the letters of notify-keyspace-events, in the order in which
// Redis shows them. Evicted keys, streams and modules have no events, since there
// are none.
const notifyLetters = "g$lshzxetdKE"

// parseNotify reads the value of notify-keyspace-events. Key misses (m) and new
// keys (n) are not served, and refused.
func parseNotify(s string) (n notifyClass, ok bool) {
	for _, r := range s {
		if r == 'A' {
			n |= notifyAll
			continue
		}
		i := slices.Index([]rune(notifyLetters), r)
		if i < 0 {
			return 0, false
		}
		n |= 1 << i
	}
	return n, true
}

func (n notifyClass) String() string {
	var b []byte
	if n&notifyAll == notifyAll {
		b = append(b, 'A')
		n &^= notifyAll
	}
	for i := range len(notifyLetters) {
		if n&(1<<i) != 0 {
			b = append(b, notifyLetters[i])
		}
	}
	return string(b)
}

// notify says that something of a class happened to a key of the command's
// database.
func (x *call) notify(class notifyClass, what string, key []byte) {
	x.notifyIn(x.db, class, what, key)
}

func (x *call) notifyIn(db int, class notifyClass, what string, key []byte) {
	if on := notifyClass(x.srv.settings.notify.Load()); on&class != 0 {
		x.fx.events = appendEvents(x.fx.events, on, db, what, key)
	}
}

// appendEvents appends the messages of one event.
func appendEvents(to []event, on notifyClass, db int, what string, key []byte) []event {
	if on&notifyKeyspace != 0 {
		to = append(to, event{channel: slices.Concat([]byte("__keyspace@"+mapNames[db]+"__:"), key), message: []byte(what)})
	}
	if on&notifyKeyevent != 0 {
		to = append(to, event{channel: []byte("__keyevent@" + mapNames[db] + "__:" + what), message: slices.Clone(key)})
	}
	return to
}

// endExpired ends the keys of a command that writes, as far as they have expired,
// so that it is heard that they did: the write would end them in silence.
func (x *call) endExpired() error {
	if x.cmd.set&write == 0 || len(x.cmd.keySpecs) == 0 || notifyClass(x.srv.settings.notify.Load())&notifyExpired == 0 {
		return nil
	}
	at, _ := x.cmd.keysOf(x.args)
	for _, i := range at {
		all, err := x.m().Reap(x.args[i])
		if err != nil {
			return err
		}
		if all {
			x.srv.stats.expired.Add(1)
			x.touch(x.args[i])
			x.notify(notifyExpired, "expired", x.args[i])
		}
	}
	return nil
}

// Expired says that a key of a map ended because its time had come, by whoever
// removes such keys. It is called once the removal is durable.
func (s *Server) Expired(m string, key []byte) {
	s.stats.expired.Add(1)
	db := slices.Index(mapNames[:], m)
	on := notifyClass(s.settings.notify.Load())
	if db < 0 || on&notifyExpired == 0 {
		return
	}
	for _, e := range appendEvents(nil, on, db, "expired", key) {
		s.pubsub.send(e)
	}
}

// outbox sends the messages of transactions in the order of the transactions,
// each once it is durable. Safe for concurrent use.
type outbox struct {
	mu    sync.Mutex
	queue []*outgoing
}

// outgoing is the messages of one transaction.
type outgoing struct {
	events []event
	state  outState
}

type outState uint8

const (
	outOpen      outState = iota // the transaction may still fail
	outCommitted                 // it is on its way to the disk
	outDone                      // it is durable
	outDropped                   // it never happened
)

// add takes the messages of a transaction, inside of it. The slice is the
// outbox's from now on.
func (o *outbox) add(events []event) *outgoing {
	out := &outgoing{events: events}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue = append(o.queue, out)
	return out
}

// commit says that the transaction was accepted.
func (out *outgoing) commit(s *Server) {
	s.outbox.mu.Lock()
	defer s.outbox.mu.Unlock()
	out.state = outCommitted
}

// drop says that the transaction was undone; nil is allowed.
func (out *outgoing) drop(s *Server) {
	if out == nil {
		return
	}
	s.outbox.mu.Lock()
	defer s.outbox.mu.Unlock()
	out.state = outDropped
	s.outbox.send(s, nil)
}

// settle says that the transaction, and so every one before it, is durable, or
// failed.
func (out *outgoing) settle(s *Server, failed error) {
	s.outbox.mu.Lock()
	defer s.outbox.mu.Unlock()
	if failed != nil {
		out.state = outDropped
		s.outbox.send(s, nil)
		return
	}
	out.state = outDone
	s.outbox.send(s, out)
}

// send sends what is at the front of the queue and durable: up to and with
// durable, unless that is nil, also what waits for its owner to find out. The
// caller holds mu.
func (o *outbox) send(s *Server, durable *outgoing) {
	upTo := slices.Index(o.queue, durable)
	n := 0
	for ; n < len(o.queue); n++ {
		out := o.queue[n]
		if out.state == outOpen || out.state == outCommitted && n > upTo {
			break
		}
		if out.state != outDropped {
			for _, e := range out.events {
				s.pubsub.send(e)
			}
		}
		out.state = outDropped // not a second time
	}
	o.queue = slices.Delete(o.queue, 0, n)
}
