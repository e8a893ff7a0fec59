package redis

import (
	"strings"
)

// replyMode is what CLIENT REPLY chose.
type replyMode uint8

const (
	replyOn replyMode = iota
	replyOff
	replySkipNext // from the next command on: skip it
	replySkip     // this one
)

// session is what a client has set on its connection. Owned by its goroutine;
// what others may see is in shown.
type session struct {
	db      int
	multi   *multi // between MULTI and EXEC
	watched map[dbKey]watched
	replies replyMode

	// Guarded by the server's pubsub: what is subscribed to. Its sizes are read by
	// the owner alone, since only it changes them.
	channels, patterns, shards map[string]struct{}

	// prefixes are those that LATTICE.WATCH watches.
	prefixes map[dbKey]*prefixWatch
}

// start is the session of a new connection.
func (c *conn) start() {
	c.sess = session{}
	c.show(func(s *shown) { *s = shown{multi: -1, libName: s.libName, libVer: s.libVer} })
}

// subscribed reports whether messages may come.
func (s *session) subscribed() bool {
	return len(s.channels)+len(s.patterns)+len(s.shards)+len(s.prefixes) > 0
}

// mute reports whether the reply of the command that begins now is left out.
func (s *session) mute() bool { return s.replies == replyOff || s.replies == replySkip }

// nextReply says that a command, with whatever reply, is over.
func (s *session) nextReply() {
	switch s.replies {
	case replySkip:
		s.replies = replyOn
	case replySkipNext:
		s.replies = replySkip
	}
}

// shown is what CLIENT LIST says of a connection. Guarded by its mu.
type shown struct {
	name, libName, libVer string
	db                    int
	resp3                 bool
	multi                 int // commands queued; -1: none
	watching              int
	subs, patterns, shard int
	noEvict, noTouch      bool
}

// show updates what others see.
func (c *conn) show(f func(*shown)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.shown)
}

// codeOf returns the code that an error's text begins with.
func codeOf(msg string) string {
	code, _, _ := strings.Cut(msg, " ")
	return code[:min(len(code), 32)]
}

// trimCode returns an error's text without the code ERR.
func trimCode(msg string) string { return strings.TrimPrefix(msg, "ERR ") }
