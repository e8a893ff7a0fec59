package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
)

// Bounds of what a client sends.
const (
	MaxFrame = 64 << 10 // bytes of one frame
	maxSubs  = 64       // in one hello
)

// frame is what a client sends. Members that are not known are passed over.
type frame struct {
	Type     string          `json:"type"`
	V        json.RawMessage `json:"v"`
	StreamID string          `json:"stream_id"`
	ForkID   string          `json:"fork_id"`
	Channel  string          `json:"channel"`
	From     json.RawMessage `json:"from_cursor"`
	Subs     []frameSub      `json:"subs"`
	Token    string          `json:"token"`
	TS       json.RawMessage `json:"ts"`
}

type frameSub struct {
	StreamID string          `json:"stream_id"` // default: the hello's
	Channel  string          `json:"channel"`
	From     json.RawMessage `json:"from_cursor"`
}

// parseFrame reads one frame and checks its bounds.
func parseFrame(b []byte) (frame, error) {
	var f frame
	if len(b) > MaxFrame {
		return f, lattice.E(lattice.TooLarge, fmt.Errorf("a frame of %d bytes, the limit is %d", len(b), MaxFrame))
	}
	if _, err := event.Members(b); err != nil { // one object, UTF-8, not deep, no member twice
		return f, err
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return f, lattice.E(lattice.Invalid, fmt.Errorf("read the frame: %w", err))
	}
	if len(f.Subs) > maxSubs {
		return f, lattice.E(lattice.TooLarge, fmt.Errorf("%d subscriptions in one hello, the limit is %d", len(f.Subs), maxSubs))
	}
	return f, nil
}

// ParseFrom reads from_cursor: absent, null, 0 and "" ask for a snapshot, -1 for what
// comes from now on, any other text is a cursor.
func ParseFrom(raw []byte) (From, error) {
	switch s := string(raw); s {
	case "", "null", "0", `""`, `"0"`:
		return From{}, nil
	case "-1", `"-1"`:
		return From{Live: true}, nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return From{}, ErrCursor
	}
	if _, _, err := ParseCursor(text); err != nil {
		return From{}, err
	}
	return From{Cursor: text}, nil
}

// address is how a client names what it follows.
type address struct{ stream, entity, channel string }

// addressOf reads stream[:entity] and the channel.
func addressOf(stream, channel string) (address, error) {
	a := address{channel: channel}
	var narrow bool
	a.stream, a.entity, narrow = strings.Cut(stream, ":")
	err := errors.Join(event.CheckName("stream_id", a.stream), event.CheckName("channel", channel))
	if narrow {
		err = errors.Join(err, event.CheckID("the entity in stream_id", a.entity))
	}
	return a, err
}

func (a address) String() string {
	if a.entity != "" {
		return a.stream + ":" + a.entity
	}
	return a.stream
}

// begin starts a frame of the server's.
func begin(kind string) []byte { return field([]byte{'{'}, "type", kind) }

// end closes it.
func end(b []byte) []byte {
	b[len(b)-1] = '}'
	return b
}

// on starts a frame about one subscription.
func on(kind string, a address) []byte {
	return field(field(begin(kind), "stream_id", a.String()), "channel", a.channel)
}

// echo returns a number or a short text that a client sent, or 0: what is sent back must not
// be a way to have us write.
func echo(ts json.RawMessage) json.RawMessage {
	var n float64
	if len(ts) > 32 || json.Unmarshal(ts, &n) != nil || math.IsInf(n, 0) {
		return json.RawMessage("0")
	}
	return ts
}
