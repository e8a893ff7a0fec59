package redis

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	osexec "os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/internal/testkit/respclient"
	"github.com/lattice-log/lattice/storage/disk"
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

// BenchmarkTraffic is redis-benchmark with 50 connections against the server over the
// engine, on the machine's disk: commands as make bench-redis sends them. cpu-ns/op is
// the server's processor time alone, which a busy machine changes least. Run it with a
// fixed number: -benchtime 300000x.
func BenchmarkTraffic(b *testing.B) {
	tool, err := osexec.LookPath("redis-benchmark")
	if err != nil {
		b.Skip("redis-benchmark is not installed")
	}
	for _, level := range []signedlog.Durability{signedlog.Fsync, signedlog.Interval} {
		for _, pipeline := range []int{1, 16} {
			for _, test := range []string{"set", "get", "incr", "hset", "zadd", "lpush"} {
				b.Run(fmt.Sprintf("%s/P%d/%s", level, pipeline, test), func(b *testing.B) {
					db := openEngineOn(b, disk.OS(), b.TempDir(), level)
					f := serve(b, Config{About: About{Durability: level.String()}}, Over(db))
					host, port, _ := net.SplitHostPort(f.addr)
					args := []string{"-h", host, "-p", port, "-c", "50", "-d", "3", "-r", "100000", "-P", strconv.Itoa(pipeline), "-q", "--csv"}
					if test == "get" { // something to read
						run(b, tool, append(args, "-n", "200000", "-t", "set"))
					}
					before := processorTime(b)
					b.ResetTimer()
					run(b, tool, append(args, "-n", strconv.Itoa(max(b.N, pipeline)), "-t", test))
					b.StopTimer()
					b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
					b.ReportMetric(0, "ns/op")
				})
			}
		}
	}
}

// run runs a program.
func run(b *testing.B, tool string, args []string) {
	if out, err := osexec.Command(tool, args...).CombinedOutput(); err != nil {
		b.Fatalf("%s %s: %v\n%s", tool, strings.Join(args, " "), err, out)
	}
}

// processorTime returns what this process has taken, in ns.
func processorTime(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
