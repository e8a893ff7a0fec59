// Package live follows the rows of projections at a gateway: it connects, comes back
// when the connection is lost, resumes where it was, and sees by itself when something is
// missing. docs/protocol/gateway.md describes what travels.
//
//	f := live.New(live.Options{URL: "ws://127.0.0.1:8083/ws"})
//	followers := f.Follow("user_stream", "artist_followers")
//	go f.Run(ctx)
//	for range followers.Changes() {
//		followers.Read(func(v *live.View) { … })
//	}
//
// A View alone is for those who have another transport. Rows are as the projection has
// them: a patch that does not follow what the view has is never applied; the channel is
// read anew.
package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	lattice "github.com/lattice-log/lattice"
)

// Options say where the gateway is. The zero value of a field is its default.
type Options struct {
	URL    string // ws://HOST:PORT/ws, or wss://
	Fork   string // default: the application's own
	Header http.Header
	// Token returns a token each time that one is needed: for a connection, and again before
	// the last one ends. Nil: there are no tokens.
	Token func(ctx context.Context) (string, error)
	// MinWait and MaxWait bound the time before a connection is tried again (100 ms, 15 s); it
	// doubles, and a random part of it is waited for.
	MinWait, MaxWait time.Duration
	HTTPClient       *http.Client
	Logger           *slog.Logger
}

// Follower is one connection to a gateway that is made again when it is lost. Its
// methods are safe for concurrent use.
type Follower struct {
	o Options

	mu    sync.Mutex
	feeds map[address]*Feed
	ws    *websocket.Conn // nil while there is none
}

type address struct{ stream, channel string }

// Feed is one channel that is followed.
type Feed struct {
	f       *Follower
	at      address
	changes chan struct{}

	mu   sync.Mutex
	view View
	err  error
	subs int // how often it was subscribed to because something was missing
}

// New returns a follower. Run connects.
func New(o Options) *Follower {
	if o.MinWait <= 0 {
		o.MinWait = 100 * time.Millisecond
	}
	if o.MaxWait <= 0 {
		o.MaxWait = 15 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Follower{o: o, feeds: map[address]*Feed{}}
}

// Follow begins to follow a projection: of a stream, or as STREAM:ENTITY of one entity. It
// may be called before Run and meanwhile; twice, it returns the same.
func (f *Follower) Follow(stream, projection string) *Feed {
	at := address{stream, projection}
	f.mu.Lock()
	feed, ws := f.feeds[at], f.ws
	if feed == nil {
		feed = &Feed{f: f, at: at, changes: make(chan struct{}, 1)}
		f.feeds[at] = feed
		if ws != nil {
			go f.send(ws, feed.sub())
		}
	}
	f.mu.Unlock()
	return feed
}

// Unfollow ends it.
func (f *Follower) Unfollow(feed *Feed) {
	f.mu.Lock()
	delete(f.feeds, feed.at)
	ws := f.ws
	f.mu.Unlock()
	if ws != nil {
		f.send(ws, map[string]any{"type": "unsub", "stream_id": feed.at.stream, "channel": feed.at.channel})
	}
}

// Changes returns a channel that has something whenever the rows or UpToDate changed since it was
// last emptied.
func (d *Feed) Changes() <-chan struct{} { return d.changes }

// Read calls f with the view, which no one else uses meanwhile.
func (d *Feed) Read(f func(v *View)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.view)
}

// Err returns why the gateway does not serve the channel; nil: it does, or nobody knows yet.
func (d *Feed) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Gaps returns how often something was missing and the channel was read anew.
func (d *Feed) Gaps() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.subs
}

// UpToDate waits until the rows are complete and current.
func (d *Feed) UpToDate(ctx context.Context) error {
	for {
		d.mu.Lock()
		fresh, err := d.view.UpToDate(), d.err
		d.mu.Unlock()
		switch {
		case err != nil:
			return err
		case fresh:
			return nil
		}
		select {
		case <-d.changes:
		case <-time.After(50 * time.Millisecond): // another may have emptied the channel
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *Feed) changed() {
	select {
	case d.changes <- struct{}{}:
	default:
	}
}

func (d *Feed) sub() map[string]any {
	d.mu.Lock()
	defer d.mu.Unlock()
	return map[string]any{"type": "sub", "stream_id": d.at.stream, "channel": d.at.channel, "from_cursor": d.view.Cursor()}
}

// Run connects and reconnects until the context ends, or the gateway refuses in a way that
// coming back does not mend: a bad token with no one to ask for another, a defect.
func (f *Follower) Run(ctx context.Context) error {
	wait := f.o.MinWait
	for {
		began := time.Now()
		err := f.session(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var over *Closed
		if errors.As(err, &over) && over.Final(f.o.Token != nil) {
			return err
		}
		f.o.Logger.Info("connection to the gateway lost", "error", err)
		if time.Since(began) > 10*f.o.MinWait {
			wait = f.o.MinWait
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(rand.Int64N(int64(wait)) + int64(wait)/2)):
		}
		wait = min(2*wait, f.o.MaxWait)
	}
}

// Closed is why a gateway closed a connection.
type Closed struct {
	Code    int
	Name    string
	Message string
}

func (c *Closed) Error() string { return fmt.Sprintf("the gateway closed: %s: %s", c.Name, c.Message) }

// Final reports whether coming back makes no sense.
func (c *Closed) Final(tokens bool) bool {
	switch c.Name {
	case "bad_frame", "bad_cursor":
		return true
	case "unauthorized", "expired":
		return !tokens
	}
	return false
}

// session is one connection.
func (f *Follower) session(ctx context.Context) error {
	dial, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	ws, _, err := websocket.Dial(dial, f.o.URL, &websocket.DialOptions{HTTPHeader: f.o.Header, HTTPClient: f.o.HTTPClient})
	if err != nil {
		return lattice.E(lattice.Unavailable, err)
	}
	defer ws.CloseNow()
	ws.SetReadLimit(64 << 20)
	hello := map[string]any{"type": "hello", "v": 1, "fork_id": f.o.Fork, "sdk": map[string]string{"name": "lattice-go"}}
	if f.o.Token != nil {
		token, err := f.o.Token(dial)
		if err != nil {
			return fmt.Errorf("live: get a token: %w", err)
		}
		hello["token"] = token
	}
	if err := f.write(ws, hello); err != nil {
		return err
	}
	f.mu.Lock()
	f.ws = ws
	var feeds []*Feed
	for _, d := range f.feeds {
		feeds = append(feeds, d)
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.ws = nil
		f.mu.Unlock()
		for _, d := range feeds {
			d.mu.Lock()
			d.view.Stale()
			d.mu.Unlock()
			d.changed()
		}
	}()
	for _, d := range feeds {
		if err := f.write(ws, d.sub()); err != nil {
			return err
		}
	}
	return f.read(ctx, ws)
}

// read takes frames until the connection ends. Twice the heartbeat without any, and it is
// taken for dead.
func (f *Follower) read(ctx context.Context, ws *websocket.Conn) error {
	silence := time.Minute
	var closing *Closed
	for {
		wait, cancel := context.WithTimeout(ctx, silence)
		_, b, err := ws.Read(wait)
		cancel()
		if err != nil {
			if closing != nil {
				return closing
			}
			return lattice.E(lattice.Unavailable, err)
		}
		var frame Frame
		if err := json.Unmarshal(b, &frame); err != nil {
			return fmt.Errorf("live: read a frame: %w", err)
		}
		switch frame.Type {
		case "welcome":
			if frame.Heartbeat > 0 {
				silence = 2*time.Duration(frame.Heartbeat)*time.Millisecond + 5*time.Second
			}
		case "ping":
			err = f.write(ws, map[string]any{"type": "pong", "ts": frame.TS})
		case "auth_expiring":
			go f.refresh(ctx, ws)
		case "closing":
			closing = &Closed{frame.Status, frame.Code, frame.Message}
		default:
			err = f.handle(ws, &frame)
		}
		if err != nil {
			return err
		}
	}
}

// handle gives a frame to the channel that it is of.
func (f *Follower) handle(ws *websocket.Conn, frame *Frame) error {
	at := address{frame.StreamID, frame.Channel}
	f.mu.Lock()
	d := f.feeds[at]
	f.mu.Unlock()
	if d == nil {
		return nil
	}
	d.mu.Lock()
	var err error
	gap := false
	switch frame.Type {
	case "error":
		d.err = lattice.E(kindOf(frame.Code), fmt.Errorf("live: %s %s: %s", at.stream, at.channel, frame.Message))
	case "unsubscribed":
		// Ended by the gateway: forbidden is for good, the rest is tried again.
		d.view.Stale()
		if frame.Reason == "unavailable" || frame.Reason == "internal" {
			d.err = nil
			time.AfterFunc(f.o.MaxWait/4, func() { f.send(ws, d.sub()) })
		}
	default:
		d.err = nil
		if _, err = d.view.Apply(frame); errors.Is(err, ErrGap) {
			// What the view has cannot be trusted to be whole: from the beginning.
			d.view, gap, err = View{}, true, nil
			d.subs++
		}
	}
	d.mu.Unlock()
	d.changed()
	if gap {
		f.o.Logger.Warn("a patch is missing: reading the channel anew", "stream", at.stream, "channel", at.channel)
		if err := f.write(ws, map[string]any{"type": "unsub", "stream_id": at.stream, "channel": at.channel}); err != nil {
			return err
		}
		return f.write(ws, d.sub())
	}
	return err
}

func kindOf(code string) lattice.Kind {
	switch code {
	case "forbidden":
		return lattice.Denied
	case "not_found":
		return lattice.NotFound
	case "unavailable":
		return lattice.Unavailable
	case "too_large", "limit":
		return lattice.TooLarge
	case "internal":
		return lattice.Internal
	}
	return lattice.Invalid
}

// refresh sends a new token in the open connection.
func (f *Follower) refresh(ctx context.Context, ws *websocket.Conn) {
	if f.o.Token == nil {
		return
	}
	token, err := f.o.Token(ctx)
	if err != nil {
		f.o.Logger.Warn("get a new token", "error", err)
		return
	}
	f.send(ws, map[string]any{"type": "auth", "token": token})
}

// send writes; that the connection is lost shows when it is read.
func (f *Follower) send(ws *websocket.Conn, frame map[string]any) { _ = f.write(ws, frame) }

func (f *Follower) write(ws *websocket.Conn, frame map[string]any) error {
	b, err := json.Marshal(frame)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := ws.Write(ctx, websocket.MessageText, b); err != nil {
		return lattice.E(lattice.Unavailable, err)
	}
	return nil
}
