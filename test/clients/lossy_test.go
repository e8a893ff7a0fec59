package clients

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// lossy stands between clients and a node. Now and then it passes a Produce
// request on, waits for the answer, and cuts the connection instead of giving
// it to the client.
type lossy struct {
	listener net.Listener
	upstream atomic.Pointer[string]
	lost     atomic.Int64 // answers that were withheld
	conns    sync.WaitGroup

	mu  sync.Mutex
	rng *rand.Rand
}

// produceKey is the API key whose answers are lost.
const produceKey = 0

func newLossy(t *testing.T) *lossy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	y := &lossy{listener: l, rng: rand.New(rand.NewPCG(1, 2))}
	y.conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			y.conns.Go(func() { y.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
	})
	return y
}

func (y *lossy) addr() string    { return y.listener.Addr().String() }
func (y *lossy) to(addr string)  { y.upstream.Store(&addr) }
func (y *lossy) withholds() bool { y.mu.Lock(); defer y.mu.Unlock(); return y.rng.IntN(5) == 0 }

// serve passes frames in both directions. Answers come in the order of their
// requests, so a queue of API keys tells what each answers.
func (y *lossy) serve(client net.Conn) {
	defer client.Close()
	node, err := net.Dial("tcp", *y.upstream.Load())
	if err != nil {
		return
	}
	defer node.Close()
	keys := make(chan uint16, 1<<16)
	var both sync.WaitGroup
	both.Go(func() {
		defer node.Close() // the client is gone
		_ = frames(client, func(frame []byte) error {
			keys <- binary.BigEndian.Uint16(frame[4:])
			_, err := node.Write(frame)
			return err
		})
	})
	both.Go(func() {
		defer client.Close()
		_ = frames(node, func(frame []byte) error {
			if <-keys == produceKey && y.withholds() {
				y.lost.Add(1)
				return errors.New("withheld")
			}
			_, err := client.Write(frame)
			return err
		})
	})
	both.Wait()
}

// frames calls pass for each length-prefixed frame, the prefix included.
func frames(from io.Reader, pass func([]byte) error) error {
	for {
		var size [4]byte
		if _, err := io.ReadFull(from, size[:]); err != nil {
			return err
		}
		frame := make([]byte, 4+binary.BigEndian.Uint32(size[:]))
		copy(frame, size[:])
		if _, err := io.ReadFull(from, frame[4:]); err != nil {
			return err
		}
		if err := pass(frame); err != nil {
			return err
		}
	}
}
