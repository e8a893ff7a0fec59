package gateway_test

import (
	"bufio"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/lattice-log/lattice/pipeline/gateway"
)

// BenchmarkIdle measures the memory of a subscribed connection that waits, in this process: the
// gateway's side, and of the client's a socket alone.
func BenchmarkIdle(b *testing.B) {
	kafka := brokers(b)
	g, server := start(b, kafka, newProjector(b, kafka), func(o *gateway.Options) { o.Connections = 1 << 20 })
	used := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	address := strings.TrimPrefix(server.URL, "http://")
	before := used()
	const n = 2000
	var conns []net.Conn
	for range n {
		c, err := net.Dial("tcp", address)
		if err != nil {
			b.Fatal(err)
		}
		conns = append(conns, c)
		fmt.Fprintf(c, "GET /ws HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", address)
		r := bufio.NewReaderSize(c, 512)
		for line := ""; line != "\r\n"; {
			if line, err = r.ReadString('\n'); err != nil {
				b.Fatal(err)
			}
		}
		frame := append([]byte{0x81, 0x80 | 126, 0, byte(len(hello)), 0, 0, 0, 0}, hello...) // a mask of zeros
		if _, err := c.Write(frame); err != nil {
			b.Fatal(err)
		}
	}
	until(b, "all subscribed", func() bool { return metric(b, g, "lattice_gateway_subscriptions") == n })
	for b.Loop() {
	}
	b.ReportMetric(float64(used()-before)/n, "B/conn")
	for _, c := range conns {
		c.Close()
	}
}
