// Package respclient is a Redis client for tests: it sends commands, or any
// bytes, and shows replies exactly as they came, type by type, so that two servers'
// replies can be compared.
package respclient

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// Value is one reply. Kind is its first byte on the wire.
type Value struct {
	Kind  byte
	Str   string  // of + - : $ , # ( = and what a null stands for ("*" or "$")
	Elems []Value // of * ~ > and, keys before values, %
	Null  bool
}

// String shows a reply on one line, in a form that keeps apart what differs.
func (v Value) String() string {
	switch {
	case v.Null:
		return string(v.Kind) + "null"
	case v.Kind == '$' || v.Kind == '=':
		return strconv.Quote(v.Str)
	case v.Elems == nil && v.Kind != '*' && v.Kind != '~' && v.Kind != '>' && v.Kind != '%':
		return string(v.Kind) + v.Str
	}
	parts := make([]string, len(v.Elems))
	for i, e := range v.Elems {
		parts[i] = e.String()
	}
	return string(v.Kind) + "[" + strings.Join(parts, " ") + "]"
}

// Err returns the reply's text when it is an error.
func (v Value) Err() string {
	if v.Kind == '-' {
		return v.Str
	}
	return ""
}

// Strings returns the texts of an array's elements.
func (v Value) Strings() []string {
	out := make([]string, len(v.Elems))
	for i, e := range v.Elems {
		out[i] = e.Str
	}
	return out
}

// Client is one connection. Not safe for concurrent use, but one goroutine may
// send while another receives.
type Client struct {
	Conn net.Conn
	// Timeout bounds each call; 0 means a minute.
	Timeout time.Duration
	r       *bufio.Reader
}

// Dial connects, to "host:port" or to a socket's path.
func Dial(addr string) (*Client, error) {
	network := "tcp"
	if strings.HasPrefix(addr, "/") {
		network = "unix"
	}
	c, err := net.Dial(network, addr)
	if err != nil {
		return nil, fmt.Errorf("connect to a Redis server: %w", err)
	}
	return &Client{Conn: c, r: bufio.NewReader(c)}, nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.Conn.Close() }

func (c *Client) deadline() time.Time {
	if c.Timeout > 0 {
		return time.Now().Add(c.Timeout)
	}
	return time.Now().Add(time.Minute)
}

// Encode returns a command as clients send it.
func Encode(args ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.Bytes()
}

// Send sends a command and does not wait.
func (c *Client) Send(args ...string) error { return c.SendRaw(Encode(args...)) }

// SendRaw sends bytes.
func (c *Client) SendRaw(b []byte) error {
	if err := c.Conn.SetWriteDeadline(c.deadline()); err != nil {
		return err
	}
	_, err := c.Conn.Write(b)
	return err
}

// Receive reads one reply or message.
func (c *Client) Receive() (Value, error) {
	if err := c.Conn.SetReadDeadline(c.deadline()); err != nil {
		return Value{}, err
	}
	return read(c.r)
}

// Do sends a command and reads its reply.
func (c *Client) Do(args ...string) (Value, error) {
	if err := c.Send(args...); err != nil {
		return Value{}, fmt.Errorf("send %.80q: %w", args, err)
	}
	v, err := c.Receive()
	if err != nil {
		return v, fmt.Errorf("reply to %.80q: %w", args, err)
	}
	return v, nil
}

// read reads one value.
func read(r *bufio.Reader) (Value, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return Value{}, err
	}
	if len(line) < 3 || !strings.HasSuffix(line, "\r\n") {
		return Value{}, fmt.Errorf("not a reply: %.80q", line)
	}
	v := Value{Kind: line[0], Str: line[1 : len(line)-2]}
	switch v.Kind {
	case '+', '-', ':', ',', '#', '(':
		return v, nil
	case '_':
		return Value{Kind: '_', Null: true}, nil
	case '$', '=':
		return readString(r, v)
	case '*', '~', '>', '%':
		return readElems(r, v)
	}
	return Value{}, fmt.Errorf("no such type of reply: %.80q", line)
}

func readString(r *bufio.Reader, v Value) (Value, error) {
	n, err := strconv.Atoi(v.Str)
	if err != nil {
		return Value{}, fmt.Errorf("length of a string: %w", err)
	}
	if n < 0 {
		return Value{Kind: v.Kind, Null: true}, nil
	}
	b := make([]byte, n+2)
	if _, err := io.ReadFull(r, b); err != nil {
		return Value{}, err
	}
	if !bytes.HasSuffix(b, []byte("\r\n")) {
		return Value{}, fmt.Errorf("a string of %d bytes does not end there", n)
	}
	v.Str = string(b[:n])
	return v, nil
}

func readElems(r *bufio.Reader, v Value) (Value, error) {
	n, err := strconv.Atoi(v.Str)
	if err != nil {
		return Value{}, fmt.Errorf("length of an array: %w", err)
	}
	v.Str = ""
	if n < 0 {
		return Value{Kind: v.Kind, Null: true}, nil
	}
	if v.Kind == '%' {
		n *= 2
	}
	v.Elems = make([]Value, 0, min(n, 1024))
	for range n {
		e, err := read(r)
		if err != nil {
			return Value{}, err
		}
		v.Elems = append(v.Elems, e)
	}
	return v, nil
}
