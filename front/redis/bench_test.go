package redis

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/lattice-log/lattice/internal/testkit/respclient"
)

// BenchmarkWire is what the front end costs by itself: one connection, over
// memory.
func BenchmarkWire(b *testing.B) {
	for _, c := range []struct {
		name  string
		cmd   []string
		reply int // bytes
	}{
		{"PING", []string{"PING"}, 7}, {"GET", []string{"GET", "key"}, 9}, {"SET", []string{"SET", "key", "xxx"}, 5},
	} {
		for _, pipeline := range []int{1, 16, 128} {
			b.Run(fmt.Sprintf("%s/P%d", c.name, pipeline), func(b *testing.B) {
				f := newFixture(b, Config{})
				cl := f.dial()
				cl.want("+OK", "SET", "key", "xxx")
				batch := bytes.Repeat(respclient.Encode(c.cmd...), pipeline)
				r := bufio.NewReader(cl.Conn)
				b.ReportAllocs()
				b.ResetTimer()
				for i := 0; i < b.N; i += pipeline {
					if err := cl.SendRaw(batch); err != nil {
						b.Fatal(err)
					}
					if _, err := io.CopyN(io.Discard, r, int64(c.reply*pipeline)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
