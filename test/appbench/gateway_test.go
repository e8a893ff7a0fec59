package appbench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	appbench "github.com/lattice-log/lattice/app/bench"
	"github.com/lattice-log/lattice/internal/testkit/realnode"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/topic"
)

// crowd are the clients of one gateway: sockets, and of those that follow something a reader each.
type crowd struct {
	b        *bench
	at       string
	mu       sync.Mutex
	conns    []net.Conn
	readers  sync.WaitGroup
	got      atomic.Int64
	latency  []time.Duration // mu
	finished atomic.Bool     // they are closed by us
	closed   atomic.Int64    // by the gateway
}

// gateway measures one gateway with 10,000 connections, a tenth of which follow one of ten
// entities each: so each patch reaches a hundred.
func (b *bench) gateway() {
	connections, subscribed, entities, rate, within := 10_000, 1_000, 10, 1_000, 10*time.Second
	if b.short {
		connections, subscribed, within = 1_000, 100, time.Second
	}
	node := realnode.Start(b.t, b.bin, b.t.TempDir(), "--redis", "")
	defer node.Kill()
	client, err := kgo.NewClient(kgo.SeedBrokers(node.Kafka), kgo.DefaultProduceTopic(topic.Patches), kgo.ProducerLinger(0))
	if err != nil {
		b.t.Fatal(err)
	}
	defer client.Close()
	if err := topic.Ensure(b.t.Context(), client, topic.Spec{Name: topic.Patches}); err != nil {
		b.t.Fatal(err)
	}
	at := realnode.FreeAddress(b.t)
	p := b.start("app", "gateway", b.concertapp(), "--bootstrap", node.Kafka, "--projections", b.stores()[0].url(), "--http", at)
	defer p.Kill()
	b.answers(at, "/readyz")
	empty := memory(p.pid)
	c := &crowd{b: b, at: at}
	defer c.end()
	began := time.Now()
	c.connect(connections, subscribed, entities)
	b.until("all are connected", 20*time.Millisecond, func() bool {
		return b.metric(at, "lattice_gateway_connections") == connections && b.metric(at, "lattice_gateway_subscriptions") == subscribed
	})
	connected, full := time.Since(began), memory(p.pid)

	cpu := appbench.ServerCPU(p.pid)
	sent, took := b.publish(client, entities, rate, within)
	want := int64(sent) * int64(subscribed/entities)
	for end := time.Now().Add(30 * time.Second); c.got.Load() < want && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	}
	lasted, busy := time.Since(began)-connected, memory(p.pid)
	cpu = appbench.ServerCPU(p.pid) - cpu
	got, gone := c.got.Load(), c.closed.Load()
	c.end()
	per := func(bytes int64) string {
		return fmt.Sprintf("%.1f KiB", float64(bytes-empty)/1024/float64(connections))
	}
	b.table(fmt.Sprintf("One gateway, %s WebSocket connections, %s of them subscribed, each patch for %d", count(float64(connections)), count(float64(subscribed)), subscribed/entities),
		[]string{"", "figure"}, [][]string{
			{"connections made a second", count(float64(connections) / connected.Seconds())},
			{"memory for each connection, idle", per(full)},
			{"memory for each connection, with patches", per(busy)},
			{"resident in all", fmt.Sprintf("%d MiB", busy>>20)},
			{"patches a second", count(float64(sent) / took.Seconds())},
			{"frames a second", count(float64(got) / lasted.Seconds())},
			{"from publishing to the client, p50 ms", quantile(c.latency, 0.5)},
			{"p99 ms", quantile(c.latency, 0.99)},
			{"gateway, CPU s for a million frames", fmt.Sprintf("%.1f", cpu.Seconds()*1e6/float64(max(got, 1)))},
		})
	b.goal("gateway: patches that reach their clients, connections that are closed", "all, none", fmt.Sprintf("%s of %s, %d", count(float64(got)), count(float64(want)), gone), got == want && gone == 0)
	b.goal("gateway: patches a second", fmt.Sprintf("at least %d", rate*95/100), count(float64(sent)/took.Seconds()), float64(sent)/took.Seconds() >= float64(rate)*0.95)
}

// publish writes patches of each entity's one row at a steady rate. The new value is the
// time at which it was written.
func (b *bench) publish(client *kgo.Client, entities, rate int, within time.Duration) (sent int, took time.Duration) {
	began := time.Now()
	last := make([]int64, entities)
	for ; time.Since(began) < within; sent++ {
		if wait := time.Duration(sent) * time.Second / time.Duration(rate); wait > time.Since(began) {
			time.Sleep(wait - time.Since(began))
		}
		k := sent % entities
		p := event.Patch{
			Projection: "follows", TenantSchema: "platform1_concertapp_prod", ForkID: "prod", Stream: "user_stream", EntityID: fmt.Sprint("user-", k), EventType: "ARTIST_FOLLOWED",
			Key: fmt.Appendf(nil, `{"user_id":"user-%d","artist_id":"artist-1"}`, k), PrevCursor: last[k], Cursor: int64(sent) + 1, Epoch: 1, TS: 1,
			Operations: []event.Operation{{Op: event.OpReplace, Path: "/since", Value: json.RawMessage(strconv.FormatInt(time.Now().UnixNano(), 10))}},
		}
		last[k] = p.Cursor
		value, err := p.Encode()
		if err != nil {
			b.t.Fatal(err)
		}
		client.Produce(context.Background(), &kgo.Record{Key: []byte(p.EntityID), Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				b.t.Error(err)
			}
		})
	}
	return sent, time.Since(began)
}

// connect opens n connections; the first subscribed of them follow an entity each.
func (c *crowd) connect(n, subscribed, entities int) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || c.b.t.Failed() {
					return
				}
				hello := `{"type":"hello","v":1,"subs":[]}`
				if i < subscribed {
					hello = fmt.Sprintf(`{"type":"hello","v":1,"stream_id":"user_stream:user-%d","subs":[{"channel":"follows","from_cursor":-1}]}`, i%entities)
				}
				if err := c.one(hello, i < subscribed); err != nil {
					c.b.t.Errorf("connection %d: %v", i, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// one connects and says hello. What a client that follows nothing is sent stays in the socket.
func (c *crowd) one(hello string, follows bool) error {
	conn, err := net.Dial("tcp", c.at)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.conns = append(c.conns, conn)
	c.mu.Unlock()
	fmt.Fprintf(conn, "GET /ws HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", c.at)
	r := bufio.NewReaderSize(conn, 2048)
	status, err := r.ReadString('\n')
	if err != nil || !strings.Contains(status, " 101 ") {
		return fmt.Errorf("the answer is %q, %w", status, err)
	}
	for line := ""; line != "\r\n"; {
		if line, err = r.ReadString('\n'); err != nil {
			return err
		}
	}
	frame := append([]byte{0x81, 0x80 | 126, 0, byte(len(hello)), 0, 0, 0, 0}, hello...) // a mask of zeros
	if _, err := conn.Write(frame); err != nil {
		return err
	}
	if follows {
		c.readers.Go(func() { c.read(r) })
	}
	return nil
}

// read notes when patches come.
func (c *crowd) read(r *bufio.Reader) {
	var mine []time.Duration
	var payload []byte
	mark := []byte(`"path":"/since","value":`)
	for {
		var err error
		if payload, err = frame(r, payload); err != nil {
			break
		}
		_, rest, ok := bytes.Cut(payload, mark)
		end := bytes.IndexByte(rest, '}')
		if !ok || end < 0 {
			continue
		}
		if at, err := strconv.ParseInt(string(rest[:end]), 10, 64); err == nil {
			mine = append(mine, time.Since(time.Unix(0, at)))
			c.got.Add(1)
		}
	}
	if !c.finished.Load() {
		c.closed.Add(1)
	}
	c.mu.Lock()
	c.latency = append(c.latency, mine...)
	c.mu.Unlock()
}

// frame reads one frame of a server into buf.
func frame(r *bufio.Reader, buf []byte) ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:2]); err != nil {
		return buf, err
	}
	n := uint64(head[1] & 0x7f)
	if n == 126 {
		if _, err := io.ReadFull(r, head[:2]); err != nil {
			return buf, err
		}
		n = uint64(binary.BigEndian.Uint16(head[:2]))
	} else if n == 127 {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return buf, err
		}
		n = binary.BigEndian.Uint64(head[:])
	}
	if n > 4<<20 {
		return buf, fmt.Errorf("a frame of %d bytes", n)
	}
	buf = slices.Grow(buf[:0], int(n))[:n]
	_, err := io.ReadFull(r, buf)
	return buf, err
}

// end closes the connections and waits until their readers have told what they saw.
func (c *crowd) end() {
	c.finished.Store(true)
	c.mu.Lock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
	c.mu.Unlock()
	c.readers.Wait()
}

// metric reads the sum of a metric.
func (b *bench) metric(at, name string) int {
	resp, err := http.Get("http://" + at + "/metrics")
	if err != nil {
		return -1
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	sum := 0.0
	for line := range strings.Lines(string(text)) {
		if series, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && (series == name || strings.HasPrefix(series, name+"{")) {
			v, _ := strconv.ParseFloat(value, 64)
			sum += v
		}
	}
	return int(sum)
}

func memory(pid int) int64 {
	now, _ := appbench.Memory(pid)
	return now
}
