package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/gateway/grant"
)

// Config is what all connections of a gateway share. It never changes. The zero value
// of a number is its default.
type Config struct {
	// Channel returns what a channel is called by; false: there is none.
	Channel func(name string) (Channel, bool)
	// Tenant returns the tenant schema of a fork; false: it is not served. An empty fork is
	// the application's own.
	Tenant func(fork string) (tenant, name string, ok bool)
	// Verify returns what a token grants.
	Verify func(token string, now time.Time) (grant.Grant, error)

	// Queue and QueueBytes bound what waits for one client (1,024 frames, 1 MiB). Half of
	// them, and patches of one row are merged; all of them, and it is closed.
	Queue, QueueBytes int
	// Subs bounds the subscriptions of a connection (25).
	Subs int
	// Rate and Burst bound the frames a client sends, a second and at once (50, 200).
	Rate, Burst float64
	// Hello is how long a client may take to say hello (5 s), Heartbeat how long either
	// side is silent before the server says ping (20 s), Silence how long a client may be
	// silent (60 s), Warn how long before its token's end a client is told (60 s).
	Hello, Heartbeat, Silence, Warn time.Duration
}

// WithDefaults fills what is zero.
func (c Config) WithDefaults() Config {
	for f, v := range map[*int]int{&c.Queue: 1024, &c.QueueBytes: 1 << 20, &c.Subs: 25} {
		if *f <= 0 {
			*f = v
		}
	}
	for f, v := range map[*float64]float64{&c.Rate: 50, &c.Burst: 200} {
		if *f <= 0 {
			*f = v
		}
	}
	for f, v := range map[*time.Duration]time.Duration{
		&c.Hello: 5 * time.Second, &c.Heartbeat: 20 * time.Second, &c.Silence: time.Minute, &c.Warn: time.Minute,
	} {
		if *f <= 0 {
			*f = v
		}
	}
	return c
}

// Channel is a projection as clients can follow it.
type Channel struct {
	// Streams are whose events write it.
	Streams []string
	// Narrow: each row belongs to one entity, so that stream:entity can be followed.
	Narrow bool
}

// Sub is one subscription. Its connection owns it.
type Sub struct {
	Selector
	From From

	at     address
	prefix []byte // of its patches' frames
	// cursor is what the client has when it has handled all that was popped.
	cursor string
	state  subState
	held   queue // patches that come while the snapshot is on its way
	round  int   // of snapshots: what belongs to an earlier one is passed over
	asOf   int64 // patches up to this are in the snapshot
}

type subState uint8

const (
	asking subState = iota
	snapshotting
	following
	ended
)

// Round names the snapshot that the subscription waits for; see Conn.Rows.
func (s *Sub) Round() int { return s.round }

// NeedsSnapshot reports whether the subscription waits for rows.
func (s *Sub) NeedsSnapshot() bool { return s.state == snapshotting }

// String names the subscription in logs.
func (s *Sub) String() string { return s.at.String() + "/" + s.at.channel }

// Conn is one connection. One goroutine uses it at a time.
type Conn struct {
	cfg   *Config
	id    string
	token string // that came before the hello
	fork  string
	grant grant.Grant

	greeted, warned, closed bool
	began                   time.Time
	heard, told             time.Time // when either side last sent something
	tokens                  float64   // of the bucket of frames
	refilled                time.Time

	subs  []*Sub
	out   queue
	close *Close
}

// Close says why a connection ends.
type Close struct {
	Code   int
	Name   string
	Reason string
}

// NewConn returns a connection that was just accepted, with a token if there was one in
// its request. A hello's own token wins.
func NewConn(cfg *Config, id, token string, now time.Time) *Conn {
	return &Conn{cfg: cfg, id: id, token: token, began: now, heard: now, told: now, refilled: now, tokens: cfg.Burst}
}

// ID names the connection.
func (c *Conn) ID() string { return c.id }

// Subject is who it is, for logs: the token's word.
func (c *Conn) Subject() string { return c.grant.Subject }

// Changes are subscriptions that began or ended.
type Changes struct{ Began, Ended []*Sub }

// Receive takes one frame. For each subscription that began, the caller asks the feed and calls
// Resumed.
func (c *Conn) Receive(now time.Time, raw []byte) Changes {
	if c.close != nil {
		return Changes{}
	}
	c.heard = now
	c.tokens = min(c.cfg.Burst, c.tokens+now.Sub(c.refilled).Seconds()*c.cfg.Rate)
	c.refilled = now
	if c.tokens--; c.tokens < 0 {
		return c.End(Flood, fmt.Sprintf("more than %g frames a second", c.cfg.Rate))
	}
	f, err := parseFrame(raw)
	if err != nil {
		return c.End(BadFrame, err.Error())
	}
	switch {
	case !c.greeted && f.Type != "hello":
		return c.End(BadFrame, "the first frame must be a hello")
	case c.greeted && f.Type == "hello":
		return c.End(BadFrame, "a second hello")
	}
	switch f.Type {
	case "hello":
		return c.hello(now, f)
	case "sub":
		if a := (address{f.StreamID, "", f.Channel}); f.ForkID != "" && f.ForkID != c.fork {
			return c.refuse(a, "invalid", "a connection follows one fork: that of its hello")
		}
		return c.sub(f.StreamID, f.Channel, f.From)
	case "unsub":
		return c.unsub(f)
	case "auth":
		return c.auth(now, f.Token)
	case "ping":
		c.frame(end(append(append(append(begin("pong"), `"ts":`...), echo(f.TS)...), ',')))
		return Changes{}
	case "pong":
		return Changes{}
	}
	return c.End(BadFrame, fmt.Sprintf("type %q: want hello, sub, unsub, auth, ping or pong", clip(f.Type)))
}

func (c *Conn) hello(now time.Time, f frame) Changes {
	if string(f.V) != "1" {
		return c.End(BadFrame, `hello: want "v":1`)
	}
	if f.Token == "" {
		f.Token = c.token
	}
	if !c.Greet(now, f.Token, f.ForkID) {
		return Changes{}
	}
	var all Changes
	for _, s := range f.Subs {
		stream := s.StreamID
		if stream == "" {
			stream = f.StreamID
		}
		ch := c.sub(stream, s.Channel, s.From)
		all.Began, all.Ended = append(all.Began, ch.Began...), append(all.Ended, ch.Ended...)
	}
	if c.close != nil {
		all.Began = nil
	}
	return all
}

// Greet checks the token and says welcome; false: the connection ends. Of SSE, which
// has no hello, the caller does this.
func (c *Conn) Greet(now time.Time, token, fork string) bool {
	g, err := c.cfg.Verify(token, now)
	if err != nil {
		c.End(Unauthorized, err.Error())
		return false
	}
	c.grant, c.greeted, c.fork, c.token = g, true, fork, ""
	b := number(field(begin("welcome"), "conn_id", c.id), "v", 1)
	b = number(b, "server_ts", now.UnixMilli())
	b = number(b, "heartbeat_ms", c.cfg.Heartbeat.Milliseconds())
	if !g.Expires.IsZero() {
		b = number(b, "expires_ts", g.Expires.UnixMilli())
	}
	c.frame(end(b))
	return true
}

func (c *Conn) sub(stream, channel string, raw json.RawMessage) Changes {
	from, err := ParseFrom(raw)
	if err != nil {
		return c.End(BadCursor, err.Error())
	}
	return c.Subscribe(stream, channel, from)
}

// Subscribe begins to follow a channel. It refuses with an error frame: the
// connection's other subscriptions go on.
func (c *Conn) Subscribe(stream, channel string, from From) Changes {
	a, err := addressOf(stream, channel)
	if err != nil {
		return c.refuse(a, "invalid", err.Error())
	}
	tenant, fork, ok := c.cfg.Tenant(c.fork)
	if !ok {
		return c.refuse(a, "not_found", "this fork is not served here")
	}
	ch, ok := c.cfg.Channel(channel)
	switch {
	case !ok || !slices.Contains(ch.Streams, a.stream):
		return c.refuse(a, "not_found", "there is no such projection of this stream")
	case a.entity != "" && !ch.Narrow:
		return c.refuse(a, "invalid", "rows of this projection are not of one entity each: follow the whole stream")
	case !c.grant.Allows(tenant, fork, ch.Streams, a.entity):
		return c.refuse(a, "forbidden", "the token does not allow this")
	case c.find(a) != nil:
		return c.refuse(a, "exists", "this connection follows that already")
	case len(c.subs) >= c.cfg.Subs:
		return c.refuse(a, "limit", fmt.Sprintf("%d subscriptions on one connection are the limit", c.cfg.Subs))
	}
	s := &Sub{From: from, at: a, Selector: Selector{Projection: Projection{tenant, fork, channel}}}
	if a.entity != "" {
		s.Stream, s.Entity = a.stream, a.entity
	}
	s.prefix = on("patch", a)
	c.subs = append(c.subs, s)
	return Changes{Began: []*Sub{s}}
}

func (c *Conn) find(a address) *Sub {
	for _, s := range c.subs {
		if s.at == a {
			return s
		}
	}
	return nil
}

func (c *Conn) refuse(a address, code, message string) Changes {
	c.frame(end(field(field(on("error", a), "code", code), "message", message)))
	return Changes{}
}

func (c *Conn) unsub(f frame) Changes {
	a, err := addressOf(f.StreamID, f.Channel)
	if err != nil {
		return c.refuse(a, "invalid", err.Error())
	}
	s := c.find(a)
	if s == nil {
		return c.refuse(a, "not_found", "this connection does not follow that")
	}
	return c.drop(s, "asked")
}

// drop ends one subscription, and says where it stands.
func (c *Conn) drop(s *Sub, reason string) Changes {
	c.out.purge(s)
	s.state, s.held = ended, queue{}
	s.round++
	c.subs = slices.DeleteFunc(c.subs, func(o *Sub) bool { return o == s })
	c.frame(end(field(field(on("unsubscribed", s.at), "reason", reason), "cursor", s.cursor)))
	return Changes{Ended: []*Sub{s}}
}

// auth takes a new token in the open connection. What it does not allow ends.
func (c *Conn) auth(now time.Time, token string) Changes {
	g, err := c.cfg.Verify(token, now)
	if err != nil {
		return c.End(Unauthorized, err.Error())
	}
	c.grant, c.warned = g, false
	b := begin("auth_ok")
	if !g.Expires.IsZero() {
		b = number(b, "expires_ts", g.Expires.UnixMilli())
	}
	c.frame(end(b))
	var all Changes
	for _, s := range slices.Clone(c.subs) {
		ch, _ := c.cfg.Channel(s.Name)
		if !g.Allows(s.Tenant, s.Fork, ch.Streams, s.Entity) {
			all.Ended = append(all.Ended, c.drop(s, "forbidden").Ended...)
		}
	}
	return all
}

// Resumed gives the feed's answer to a subscription that began.
func (c *Conn) Resumed(s *Sub, a Answer, err error) Changes {
	switch {
	case c.close != nil || s.state == ended:
		return Changes{}
	case errors.Is(err, ErrAhead) || errors.Is(err, ErrCursor):
		return c.End(BadCursor, err.Error())
	case err != nil:
		return c.Fail(s, err)
	}
	if s.cursor = s.From.Cursor; a.Kind != Replay {
		s.cursor = a.Cursor
	}
	b := field(on("resume", s.at), "answer", a.Kind.String())
	switch a.Kind {
	case Reset:
		b = field(b, "reason", a.Reason)
		s.state = snapshotting
		s.round++
	case Replay:
		b = number(b, "missed", int64(len(a.Items)))
	}
	c.frame(end(field(b, "cursor", s.cursor)))
	if a.Kind == Reset {
		return Changes{}
	}
	s.state = following
	for _, it := range a.Items {
		if ch := c.Offer(s, it); c.close != nil {
			return ch
		}
	}
	c.upToDate(s, a.Cursor)
	return Changes{}
}

// upToDate marks the end of catching up.
func (c *Conn) upToDate(s *Sub, cursor string) {
	b := number(on("up_to_date", s.at), "as_of", s.asOf)
	c.out.push(entry{sub: s, frame: end(field(b, "cursor", cursor)), cursor: cursor})
}

// Fail ends a subscription that cannot be served now.
func (c *Conn) Fail(s *Sub, err error) Changes {
	if c.close != nil || s.state == ended {
		return Changes{}
	}
	code := "internal"
	switch lattice.KindOf(err) {
	case lattice.Unavailable, lattice.Storage:
		code = "unavailable"
	case lattice.TooLarge:
		code = "too_large"
	}
	c.refuse(s.at, code, err.Error())
	return c.drop(s, code)
}

func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
