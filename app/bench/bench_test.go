package bench

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	lattice "github.com/lattice-log/lattice"
)

func TestParseStat(t *testing.T) {
	for _, c := range []struct {
		stat string
		want time.Duration
		ok   bool
	}{
		{"7 (lattice) S 1 7 7 0 -1 4194304 1 0 0 0 250 50 0 0 20 0 8 0 1 1 1", 3 * time.Second, true},
		{"7 (a) b) (c) S 1 7 7 0 -1 4194304 1 0 0 0 1 1 0 0 20 0", 20 * time.Millisecond, true},
		{"7 (lattice) S 1 7", 0, false},
		{"", 0, false},
	} {
		if got, ok := parseStat([]byte(c.stat)); got != c.want || ok != c.ok {
			t.Errorf("%q: %v, %v; want %v, %v", c.stat, got, ok, c.want, c.ok)
		}
	}
}

func TestServerCPU(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		if got := serverCPU(os.Getpid()); got != 0 {
			t.Fatalf("without /proc: %v", got)
		}
		return
	}
	start := serverCPU(os.Getpid())
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end) && serverCPU(os.Getpid()) == start; {
		bytes.Repeat([]byte("x"), 1<<20)
	}
	if serverCPU(os.Getpid()) <= start {
		t.Error("the CPU time of a busy process does not grow")
	}
	if got := serverCPU(0); got != 0 {
		t.Errorf("no process: %v", got)
	}
}

func TestPercentile(t *testing.T) {
	var all []time.Duration
	for i := 100; i >= 1; i-- {
		all = append(all, time.Duration(i)*time.Millisecond)
	}
	for q, want := range map[float64]float64{0.5: 50, 0.99: 99, 1: 100, 0: 1} {
		if got := percentile(all, q); *got != want {
			t.Errorf("percentile %v = %v, want %v", q, *got, want)
		}
	}
	if percentile(nil, 0.5) != nil {
		t.Error("there is no percentile of nothing")
	}
}

// TestPayloads checks that values have the asked size, are the same each time
// and are neither noise nor all alike, so that compression costs what it costs
// on real records.
func TestPayloads(t *testing.T) {
	for _, size := range []int{0, 1, 100, 1024} {
		for i, v := range payloads(size) {
			if len(v) != size || !bytes.Equal(v, payloads(size)[i]) {
				t.Fatalf("size %d: %d bytes", size, len(v))
			}
		}
	}
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	all := bytes.Join(payloads(1024), nil)
	if ratio := float64(len(e.EncodeAll(all, nil))) / float64(len(all)); ratio < 0.1 || ratio > 0.7 {
		t.Errorf("compresses to %.2f", ratio)
	}
}

func TestCheck(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"nobody":      func(c *Config) { c.Bootstrap = nil },
		"records":     func(c *Config) { c.Records = 0 },
		"partitions":  func(c *Config) { c.Partitions = 0 },
		"compression": func(c *Config) { c.Compression = "rar" },
		"acks":        func(c *Config) { c.Acks = "2" },
		"size":        func(c *Config) { c.Size = 2_000_000 },
	} {
		c := Default()
		c.Bootstrap = []string{"127.0.0.1:1"}
		change(&c)
		if _, err := Produce(t.Context(), c); lattice.KindOf(err) != lattice.Invalid {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Consume(t.Context(), c); lattice.KindOf(err) != lattice.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
