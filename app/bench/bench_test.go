package bench

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	lattice "github.com/lattice-log/lattice"
)

func TestServerCPU(t *testing.T) {
	if runtime.GOOS != "linux" {
		if got := ServerCPU(os.Getpid()); got != 0 {
			t.Fatalf("without Linux's clocks: %v", got)
		}
		return
	}
	start := ServerCPU(os.Getpid())
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end) && ServerCPU(os.Getpid()) == start; {
		bytes.Repeat([]byte("x"), 1<<20)
	}
	if start <= 0 || ServerCPU(os.Getpid()) <= start {
		t.Error("the CPU time of a busy process does not grow")
	}
	if got := ServerCPU(0); got != 0 {
		t.Errorf("no process: %v", got)
	}
}

// TestServerCPUOfAnother checks that the clock is the other process's, not ours.
func TestServerCPUOfAnother(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux's clocks")
	}
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
		bytes.Repeat([]byte("x"), 1<<20)
	}
	if got, ours := ServerCPU(cmd.Process.Pid), ServerCPU(os.Getpid()); got <= 0 || got >= ours {
		t.Errorf("a process that sleeps used %v, this one %v", got, ours)
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
		if _, err := Latency(t.Context(), c); lattice.KindOf(err) != lattice.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
