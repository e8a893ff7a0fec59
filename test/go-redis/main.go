// Command go-redis is a Redis client for tests: it uses a server through go-redis
// as programs do, checks what comes back, and says for each case whether it is as
// it should be.
//
//	go-redis HOST:PORT CASE...
//
// A line {"case":"lists"} is a case that went well, one with "error" one that did not.
// The case "reconnect" prints {"event":"kill"} when the server is to be killed, and
// goes on when it reads a line. test/redis drives it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"
)

// limit bounds everything that a case waits for.
const limit = 60 * time.Second

// world is what a case works with.
type world struct {
	ctx   context.Context
	addr  string
	rdb   *redis.Client
	stdin *bufio.Scanner
}

// open returns a client of its own, which speaks the given version of RESP.
func (w *world) open(protocol int) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: w.addr, Protocol: protocol, ReadTimeout: limit, MaxRetries: -1})
}

// failure is what a case panics with.
type failure struct{ text string }

func failf(depth int, format string, args ...any) {
	_, _, line, _ := runtime.Caller(depth + 1)
	panic(failure{fmt.Sprintf("line %d: ", line) + fmt.Sprintf(format, args...)})
}

// is returns a check of a result and its error.
func is[T any](want T) func(T, error) {
	return func(got T, err error) {
		if err != nil {
			failf(1, "%v, want %v", err, want)
		}
		if !reflect.DeepEqual(got, want) {
			failf(1, "got %v, want %v", got, want)
		}
	}
}

// ok checks that there is no error.
func ok(err error) {
	if err != nil {
		failf(1, "%v", err)
	}
}

// fails checks the text of an error.
func fails(want string, err error) {
	if err == nil || err.Error() != want {
		failf(1, "error %v, want %s", err, want)
	}
}

// that checks a condition.
func that(holds bool, format string, args ...any) {
	if !holds {
		failf(1, format, args...)
	}
}

// until waits for a condition.
func until(what string, holds func() bool) {
	for end := time.Now().Add(limit); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			failf(1, "still not: %s", what)
		}
	}
}

func tell(v map[string]string) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(b))
}

func (w *world) run(name string) {
	report := map[string]string{"case": name}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			report["error"] = r.text
		default:
			panic(r)
		}
		tell(report)
	}()
	do, known := cases[name]
	if !known {
		failf(0, "there is no such case")
	}
	is("OK")(w.rdb.FlushAll(w.ctx).Result())
	do(w)
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: go-redis HOST:PORT CASE...")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*limit)
	defer cancel()
	w := &world{ctx: ctx, addr: os.Args[1], stdin: bufio.NewScanner(os.Stdin)}
	w.rdb = redis.NewClient(&redis.Options{Addr: w.addr, Protocol: 3})
	defer w.rdb.Close()
	for _, name := range os.Args[2:] {
		w.run(name)
	}
}
