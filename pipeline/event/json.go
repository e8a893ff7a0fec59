package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf8"

	lattice "github.com/lattice-log/lattice"
)

// encode is json.Marshal that leaves <, > and & as they are: consumers in other
// languages compare bytes with what the page shows.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("encode: %w", err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// object is a JSON object whose members are read one by one. The first mistake
// stays in err; what is read after it may be zero.
type object struct {
	members map[string]json.RawMessage
	err     error
}

// parseObject reads one object and nothing behind it. Member names are compared
// byte by byte, not without case as encoding/json does.
func parseObject(b []byte) (*object, error) {
	if len(b) > MaxMessage {
		return nil, lattice.E(lattice.TooLarge, fmt.Errorf("a message of %d bytes, the limit is %d", len(b), MaxMessage))
	}
	if err := checkJSON(b, MaxDepth); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, lattice.E(lattice.Invalid, errors.New("not a JSON object"))
	}
	o := &object{members: map[string]json.RawMessage{}}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, lattice.E(lattice.Invalid, fmt.Errorf("not JSON: %w", err))
		}
		name, _ := t.(string)
		if _, twice := o.members[name]; twice {
			return nil, lattice.E(lattice.Invalid, fmt.Errorf("member %q is there twice", clip(name)))
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, lattice.E(lattice.Invalid, fmt.Errorf("not JSON: member %q: %w", clip(name), err))
		}
		o.members[name] = v
	}
	return o, nil
}

// Members returns the members of one JSON object, under the bounds of messages.
func Members(b []byte) (map[string]json.RawMessage, error) {
	o, err := parseObject(b)
	if err != nil {
		return nil, err
	}
	return o.members, nil
}

// checkJSON reports what is wrong with bytes that should be one JSON value of at
// most depth nested arrays and objects.
func checkJSON(b []byte, depth int) error {
	if !utf8.Valid(b) {
		return lattice.E(lattice.Invalid, errors.New("not JSON: the bytes are not UTF-8"))
	}
	level, quoted, escaped := 0, false, false
	for _, c := range b {
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped, quoted = c == '\\', c != '"'
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			if level++; level > depth {
				return lattice.E(lattice.TooLarge, fmt.Errorf("nested deeper than %d levels", depth))
			}
		case c == '}' || c == ']':
			level--
		}
	}
	if !json.Valid(b) {
		// The decoder says where; Valid is the judge, since it sees what follows, too.
		d := json.NewDecoder(bytes.NewReader(b))
		var v json.RawMessage
		err := d.Decode(&v)
		if err == nil {
			err = errors.New("more follows the value")
		}
		if errors.Is(err, io.EOF) {
			err = errors.New("empty")
		}
		return lattice.E(lattice.Invalid, fmt.Errorf("not JSON: %w", err))
	}
	return nil
}

// CheckPayload reports what is wrong with a payload: it must be one JSON object
// within MaxPayload and MaxDepth.
func CheckPayload(b []byte) error {
	if len(b) > MaxPayload {
		return lattice.E(lattice.TooLarge, fmt.Errorf("payload has %d bytes, the limit is %d", len(b), MaxPayload))
	}
	if err := checkJSON(b, MaxDepth); err != nil {
		return fmt.Errorf("payload: %w", err)
	}
	if kind(b) != '{' {
		return lattice.E(lattice.Invalid, errors.New("payload is no JSON object"))
	}
	return nil
}

// kind returns the first byte of a JSON value, which says what it is; 0 for none.
func kind(b []byte) byte {
	b = bytes.TrimLeft(b, " \t\r\n")
	if len(b) == 0 {
		return 0
	}
	return b[0]
}

func (o *object) fail(err error) {
	if o.err == nil {
		o.err = err
	}
}

func (o *object) wrong(name, want string) {
	have := "is missing"
	if v, there := o.members[name]; there {
		have = "is " + clip(string(v))
	}
	o.fail(lattice.E(lattice.Invalid, fmt.Errorf("%s %s, want %s", name, have, want)))
}

// text reads a string that must be there and keeps to checkText.
func (o *object) text(name string, most int) string {
	var s string
	if kind(o.members[name]) != '"' || json.Unmarshal(o.members[name], &s) != nil {
		o.wrong(name, "a string")
		return ""
	}
	if err := checkText(name, s, most); err != nil {
		o.fail(err)
		return ""
	}
	return s
}

func (o *object) name(name string) string { return o.text(name, MaxName) }
func (o *object) id(name string) string   { return o.text(name, MaxID) }

// optional is text that may be absent, null or empty.
func (o *object) optional(name string, most int) string {
	v, there := o.members[name]
	if !there || string(v) == "null" || string(v) == `""` {
		return ""
	}
	return o.text(name, most)
}

// prose is a string that may hold anything, line feeds for example.
func (o *object) prose(name string) string {
	var s string
	if kind(o.members[name]) != '"' || json.Unmarshal(o.members[name], &s) != nil {
		o.wrong(name, "a string")
	}
	return s
}

// integer reads a whole number of at least least.
func (o *object) integer(name string, least int64) int64 {
	n, err := strconv.ParseInt(string(o.members[name]), 10, 64)
	if err != nil || n < least {
		o.wrong(name, fmt.Sprintf("a whole number from %d to %d", least, int64(math.MaxInt64)))
		return 0
	}
	return n
}

func (o *object) schema() string {
	s := o.text("tenantSchema", MaxName)
	if s != "" {
		if err := CheckSchema(s); err != nil {
			o.fail(err)
		}
	}
	return s
}

// bytes reads base64 that may be absent.
func (o *object) bytes(name string) []byte {
	v, there := o.members[name]
	if !there || string(v) == "null" {
		return nil
	}
	var b []byte
	if json.Unmarshal(v, &b) != nil {
		o.wrong(name, "base64")
	}
	return b
}

func (o *object) boolean(name string) bool {
	switch string(o.members[name]) {
	case "true":
		return true
	case "", "false":
		return false
	}
	o.wrong(name, "true or false")
	return false
}

func (o *object) payload() json.RawMessage {
	v := o.members["payload"]
	if kind(v) != '{' {
		o.wrong("payload", "an object")
		return nil
	}
	if len(v) > MaxPayload {
		o.fail(lattice.E(lattice.TooLarge, fmt.Errorf("payload has %d bytes, the limit is %d", len(v), MaxPayload)))
		return nil
	}
	return v
}

// projection reads the page's members, the type first: see ParseProjection.
func (o *object) projection() Projection {
	p := Projection{EventType: o.name("eventType"), EntityID: o.id("entityId")}
	p.ForkID, p.TenantSchema, p.IRVersion = o.name("forkId"), o.schema(), o.optional("irVersion", MaxName)
	p.SequenceNumber, p.TS, p.Payload = o.integer("sequenceNumber", 1), o.integer("ts", math.MinInt64), o.payload()
	return p
}
