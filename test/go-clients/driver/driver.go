// Package driver is what the drivers of Go's clients share: it reads requests
// from stdin, one JSON object a line, and answers each with one line.
// ../../field/driver_test.go says what is asked and answered.
package driver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Request is what is asked.
type Request struct {
	Do          string            `json:"do"`
	Bootstrap   string            `json:"bootstrap"`
	Topic       string            `json:"topic"`
	Partitions  int               `json:"partitions"`
	Replication int               `json:"replication"`
	Configs     map[string]string `json:"configs"`
	Codec       string            `json:"codec"`
	Records     []Record          `json:"records"`
	Time        int64             `json:"time"` // ms since 1970
	Offset      int64             `json:"offset"`
	Group       string            `json:"group"`
	Instance    string            `json:"instance"`
	Balancer    string            `json:"balancer"`
}

// Record is one record, in and out. Null keys, values and header values are null.
type Record struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"` // ms since 1970; 0: the client's choice
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []Header `json:"headers"`
}

// Header is one header of a record.
type Header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// Answer is what is answered; what was not asked for is left out.
type Answer struct {
	Version    string            `json:"version,omitempty"`
	Partitions int               `json:"partitions,omitempty"`
	Names      []string          `json:"names,omitempty"`
	Configs    map[string]string `json:"configs,omitempty"`
	Records    []Record          `json:"records,omitempty"`
	Members    int               `json:"members,omitempty"`
	Offsets    map[int32]int64   `json:"offsets,omitempty"`
	Error      *Refusal          `json:"error,omitempty"`
}

// Refusal is an error: its code in Kafka's protocol, or -1.
type Refusal struct {
	Code int    `json:"code"`
	Text string `json:"text"`
}

// Event is what a member prints: "assigned" and "revoked" with partitions,
// "read" with a place, and "left" last.
type Event struct {
	Event      string  `json:"event"`
	Partitions []int32 `json:"partitions"`
	Partition  int32   `json:"partition"`
	Offset     int64   `json:"offset"`
}

// Serve answers requests until stdin ends. member is a group's member until its
// context ends. code tells the code of an error, if it has one.
func Serve(act func(context.Context, Request) (Answer, error), member func(context.Context, Request, func(Event)) error, code func(error) (int, bool)) {
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	tell := func(v any) {
		mu.Lock()
		defer mu.Unlock()
		if err := out.Encode(v); err != nil {
			fail(err)
		}
	}
	for {
		var r Request
		if err := in.Decode(&r); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			fail(err)
		}
		if r.Do == "member" {
			ctx, cancel := context.WithCancel(context.Background())
			go func() {
				defer cancel()
				_, _ = io.Copy(io.Discard, os.Stdin) // its end is all that matters
			}()
			if err := member(ctx, r, func(e Event) { tell(e) }); err != nil {
				fail(err)
			}
			tell(Event{Event: "left"})
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		a, err := act(ctx, r)
		cancel()
		if err != nil {
			a.Error = &Refusal{Code: -1, Text: err.Error()}
			if n, ok := code(err); ok {
				a.Error.Code = n
			}
		}
		tell(a)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
