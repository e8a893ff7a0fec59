package main

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/app/bench/compare"
)

func TestRESP(t *testing.T) {
	stream := "*1\r\n*2\r\n$1\r\ns\r\n*2\r\n" +
		"*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nv\r\n$3\r\na\r\n\r\n" +
		"*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nv\r\n$0\r\n\r\n"
	c := &resp{r: bufio.NewReader(strings.NewReader("+PONG\r\n" + stream + "*-1\r\n-ERR no\r\n?\r\n"))}
	if r, err := c.read(); err != nil || r.text != "PONG" {
		t.Fatalf("%+v, %v", r, err)
	}
	r, err := c.read()
	if err != nil {
		t.Fatal(err)
	}
	if got := entries(r); len(got) != 2 || got[0] != (entry{"1-0", "a\r\n"}) || got[1] != (entry{"1-1", ""}) {
		t.Errorf("entries %q", got)
	}
	if r, err := c.read(); err != nil || entries(r) != nil {
		t.Errorf("null: %+v, %v", r, err)
	}
	if _, err := c.read(); err == nil || !strings.Contains(err.Error(), "ERR no") {
		t.Errorf("an error reply: %v", err)
	}
	if _, err := c.read(); err == nil {
		t.Error("garbage is taken")
	}
}

func TestDelivery(t *testing.T) {
	d := newDelivery(compare.Work{Size: 20, Rate: 1000, For: 50 * time.Millisecond})
	d.arrived(7) // not sent yet
	i := uint64(0)
	way, err := d.send(t.Context(), func(value []byte) error {
		if len(value) != 20 {
			t.Errorf("a value of %d bytes", len(value))
		}
		i++
		go d.arrived(i)
		return nil
	})
	if err != nil || len(way) != 50 {
		t.Fatalf("%d arrived, %v", len(way), err)
	}
	for _, x := range way {
		if x < 0 {
			t.Errorf("arrived %v before it was sent", -x)
		}
	}
}

func TestQuantile(t *testing.T) {
	if got := *quantile([]time.Duration{3e6, 1e6, 2e6}, 0.5); got != 2 {
		t.Errorf("the middle of 1, 2, 3 ms is %v", got)
	}
	if quantile(nil, 0.5) != nil {
		t.Error("there is none of nothing")
	}
}

// TestMissing checks that a peer which is not here is named with the way to get
// it, unless it is left out by name.
func TestMissing(t *testing.T) {
	e := env{bins: t.TempDir(), classpath: "nowhere/classpath", dir: t.TempDir()}
	_, _, err := e.peers(nil, nil)
	for _, want := range []string{"kafka needs nowhere/classpath: scripts/bench.sh, which asks Maven (apt-get install maven)", "-without jetstream"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	if _, _, err := e.peers(nil, []string{"nobody"}); err == nil || !strings.Contains(err.Error(), `no peer "nobody"`) {
		t.Errorf("an unknown peer: %v", err)
	}
	peers, left, err := e.peers(nil, []string{"lattice", "kfake", "kafka", "jetstream", "redis"})
	if len(peers) != 0 || len(left) != 5 || err != nil {
		t.Errorf("%d peers, left out %v, %v", len(peers), left, err)
	}
}

func TestBothPlansMeasureTheSame(t *testing.T) {
	long, past := plans(false, nil)
	short, shortPast := plans(true, nil)
	if len(long.Sizes) != len(short.Sizes) || len(long.Partitions) != len(short.Partitions) ||
		len(past.bytes) != len(shortPast.bytes) || len(past.idle) != len(shortPast.idle) {
		t.Error("the short run leaves out work")
	}
	for _, size := range long.Sizes {
		if long.Records[size] == 0 || short.Records[size] == 0 {
			t.Errorf("no records of %d bytes", size)
		}
	}
	if past.bytes[len(past.bytes)-1] < 10<<30 {
		t.Error("the goal is for 10 GiB")
	}
}

func TestPerSecond(t *testing.T) {
	out := "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"74626.87\",\"0.346\"\n"
	if v, err := perSecond([]byte(out)); err != nil || v != 74626.87 {
		t.Errorf("%v, %v", v, err)
	}
	for _, bad := range []string{"", "SET: 1\n", out + out} {
		if v, err := perSecond([]byte(bad)); err == nil {
			t.Errorf("%q is taken for %v", bad, v)
		}
	}
}

func TestBothKeysPlansMeasureTheSame(t *testing.T) {
	long, folds := keysPlan(false, nil)
	short, shortFolds := keysPlan(true, nil)
	if len(long.Works) != len(short.Works) || len(folds) != len(shortFolds) {
		t.Error("the short run leaves out work")
	}
	for i := range folds {
		if shortFolds[i].requests < 1000 || shortFolds[i].test != folds[i].test {
			t.Errorf("%+v is the short form of %+v", shortFolds[i], folds[i])
		}
	}
}
