package signedlog

import (
	"context"
	"sync"
)

// A Committer makes many logs durable with a few goroutines: a log with
// something to sync or to certify stands in a queue once, whatever its number of
// waiting writers, so that writers share syncs and thousands of idle logs cost
// nothing.
//
// New starts nothing; Run owns the goroutines. Work that is queued before Run,
// or after it returned, waits.
type Committer struct {
	syncs *queue // logs with written bytes that are not durable
	certs *queue // logs with durable blocks that no checkpoint covers

	pieces sync.Pool // *[]byte: blocks that a follower writes at once
}

// NewCommitter returns a committer that does nothing until Run.
func NewCommitter() *Committer {
	return &Committer{syncs: newQueue(), certs: newQueue()}
}

const (
	// syncWorkers bounds how many logs are in fdatasync at once. A disk takes
	// several flushes in one go, so more than one helps; many would only queue
	// inside the kernel.
	syncWorkers = 8
	// certWorkers bounds hashing: it is processor work and must leave room for
	// the front ends.
	certWorkers = 2
)

// Run works until ctx ends, then finishes what is in hand and returns nil.
func (c *Committer) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	work := func(q *queue, do func(*Log)) {
		defer wg.Done()
		for {
			l, ok := q.pop()
			if !ok {
				return
			}
			do(l)
		}
	}
	wg.Add(syncWorkers + certWorkers)
	for range syncWorkers {
		go work(c.syncs, (*Log).syncOnce)
	}
	for range certWorkers {
		go work(c.certs, (*Log).certifyOnce)
	}
	<-ctx.Done()
	c.syncs.close()
	c.certs.close()
	wg.Wait()
	return nil
}

// queue is a first-in first-out set of logs.
type queue struct {
	mu     sync.Mutex
	ready  sync.Cond
	logs   []*Log
	member map[*Log]bool
	closed bool
}

func newQueue() *queue {
	q := &queue{member: map[*Log]bool{}}
	q.ready.L = &q.mu
	return q
}

// push adds l unless it stands in the queue already.
func (q *queue) push(l *Log) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.member[l] {
		return
	}
	q.member[l] = true
	q.logs = append(q.logs, l)
	q.ready.Signal()
}

// pop waits for a log; ok is false once the queue is closed and empty.
func (q *queue) pop() (l *Log, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.logs) == 0 {
		if q.closed {
			return nil, false
		}
		q.ready.Wait()
	}
	l = q.logs[0]
	n := copy(q.logs, q.logs[1:])
	q.logs[n] = nil
	q.logs = q.logs[:n]
	delete(q.member, l)
	return l, true
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ready.Broadcast()
}
