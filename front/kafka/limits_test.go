package kafka

import (
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/record"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestInFlightLimit stops reading when enough is in work.
func TestInFlightLimit(t *testing.T) {
	f := newFixture(t, Config{MaxInFlight: 3})
	topic := f.topic("t", 1)
	c := f.dial()
	var reqs []kmsg.Request
	for range 10 {
		req := fetchReq(topic, 12, 0, 0)
		req.MaxWaitMillis = 20
		reqs = append(reqs, req)
	}
	c.send(reqs...)
	for range reqs {
		f.srv.mu.Lock()
		for conn := range f.srv.conns {
			conn.mu.Lock()
			if conn.inFlight > 3 {
				t.Errorf("%d in flight", conn.inFlight)
			}
			conn.mu.Unlock()
		}
		f.srv.mu.Unlock()
		c.recv()
	}
}

// TestClientThatNeverReads asks for much and reads nothing. It is disconnected,
// costs no more than its limits, and nobody else waits for it.
func TestClientThatNeverReads(t *testing.T) {
	f := newFixture(t, Config{WriteTimeout: 200 * time.Millisecond, MaxInFlight: 16})
	topic := f.topic("t", 1)
	other := f.dial()
	for range 8 {
		other.produce(topic, 9, 0, batch(record.None, strings.Repeat("x", 1_000_000)))
	}
	c := f.dial()
	c.Conn.(*net.TCPConn).SetReadBuffer(4096)
	req := fetchReq(topic, 12, 0, 0)
	req.MaxBytes = 8 << 20
	req.Topics[0].Partitions[0].PartitionMaxBytes = 8 << 20
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for i := range int32(10_000) {
			if _, err := c.Write(frame(req, i)); err != nil {
				return
			}
		}
	}()
	for i := range 20 {
		if p := other.produce(topic, 9, 0, batch(record.None, "y")); p.ErrorCode != 0 {
			t.Fatalf("append %d: %d", i, p.ErrorCode)
		}
	}
	<-gone // Write fails once the server has hung up
	f.healthy()
}

func TestConnectionLimits(t *testing.T) {
	f := newFixture(t, Config{MaxConnections: 5, MaxConnectionsPerAddress: 3})
	var open []*client
	for range 3 {
		c := f.dial()
		ask[*kmsg.ApiVersionsResponse](c, newReq[*kmsg.ApiVersionsRequest](0))
		open = append(open, c)
	}
	f.dial().closed()
	open[0].Close()
	for { // until the server has noticed
		c := f.dial()
		c.send(newReq[*kmsg.ApiVersionsRequest](0))
		if _, err := c.readFrame(); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
}

// TestManyIdleConnections holds ten thousand of them: a blocked goroutine each,
// and no buffer.
func TestManyIdleConnections(t *testing.T) {
	if testing.Short() {
		t.Log("fewer connections with -short")
	}
	n := 10_000
	if testing.Short() {
		n = 500
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	n = min(n, int(min(limit.Cur, 1<<30)/2)-500) // both ends are ours
	f := newFixture(t, Config{})
	f.topic("t", 1)
	memory := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	before := memory()
	conns := make([]net.Conn, 0, n)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	hello := frame(newReq[*kmsg.ApiVersionsRequest](3), 1)
	buf := make([]byte, 64<<10)
	for i := range n {
		// Many source addresses, so that ports do not run out.
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%100))}, Timeout: 30 * time.Second}
		c, err := d.Dial("tcp", f.addr)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		conns = append(conns, c)
		if i%10 == 0 { // some have worked before
			c.Write(hello)
			if _, err := c.Read(buf); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.healthy()
	for f.open() < n {
		time.Sleep(time.Millisecond)
	}
	each := (int64(memory()) - int64(before)) / int64(n)
	t.Logf("%d connections, %d bytes each, both ends", n, each)
	if each > 20<<10 {
		t.Errorf("an idle connection costs %d bytes", each)
	}
}

// open counts the connections.
func (f *fixture) open() int {
	f.srv.mu.Lock()
	defer f.srv.mu.Unlock()
	return len(f.srv.conns)
}

func (f *fixture) pendingRequests() (n int) {
	f.srv.mu.Lock()
	defer f.srv.mu.Unlock()
	for c := range f.srv.conns {
		c.mu.Lock()
		n += c.inFlight
		c.mu.Unlock()
	}
	return n
}

// TestClaimsHoldNoBudget opens connections that claim large frames and send
// little: others go on at once.
func TestClaimsHoldNoBudget(t *testing.T) {
	f := newFixture(t, Config{MaxRequestBytes: 64 << 20, MaxBufferedBytes: 64 << 20})
	topic := f.topic("t", 1)
	for range 20 {
		c := f.dial()
		c.raw(append([]byte{0x03, 0xf0, 0, 0}, make([]byte, 100)...))
	}
	c := f.dial()
	c.SetDeadline(time.Now().Add(20 * time.Second)) // less than the ReadTimeout of the others
	for range 3 {
		if p := c.produce(topic, 9, 0, batch(record.None, strings.Repeat("x", 900_000))); p.ErrorCode != 0 {
			t.Fatal(p.ErrorCode)
		}
	}
	// A whole large frame comes through, grown step by step.
	if p := c.produce(topic, 9, 0, batch(record.None, strings.Repeat("x", 20<<20))); p.ErrorCode != 10 {
		t.Errorf("20 MiB: %d, want MESSAGE_TOO_LARGE", p.ErrorCode)
	}
}

// TestBudgetMakesReadersWait lets one large frame through at a time.
func TestBudgetMakesReadersWait(t *testing.T) {
	f := newFixture(t, Config{MaxRequestBytes: 4 << 20, MaxBufferedBytes: 4 << 20})
	topic := f.topic("t", 1, "max.message.bytes", "5000000")
	done := make(chan int16, 8)
	for range cap(done) {
		c := f.dial()
		go func() { done <- c.produce(topic, 9, 0, batch(record.None, strings.Repeat("x", 3_000_000))).ErrorCode }()
	}
	for range cap(done) {
		if code := <-done; code != 0 {
			t.Errorf("error %d", code)
		}
	}
}
