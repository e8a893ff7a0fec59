package compare

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// fakeKeys is a server of keys whose rate is that it was made with, times the round.
type fakeKeys struct {
	rate float64
	log  *[]int64
	fail error
}

func (f *fakeKeys) Version() string { return "1" }
func (f *fakeKeys) PID() int        { return os.Getpid() }
func (f *fakeKeys) Stop() error     { return nil }

func (f *fakeKeys) Bench(_ context.Context, w KeyWork, requests int64) (float64, error) {
	*f.log = append(*f.log, requests)
	return f.rate * float64(w.Pipeline), f.fail
}

func keyPeer(name string, class Class, rate float64, log *[]int64, fail error) KeyPeer {
	round := 0.0
	return KeyPeer{Name: name, Class: class, How: "for a test", Start: func(context.Context) (KeyServer, error) {
		round++
		return &fakeKeys{rate * round, log, fail}, nil
	}}
}

func testKeys(t *testing.T) (*KeysReport, map[string]*[]int64) {
	t.Helper()
	logs := map[string]*[]int64{}
	made := func(name string, class Class, rate float64, fail error) KeyPeer {
		log := &[]int64{}
		logs[name+" "+string(class)] = log
		return keyPeer(name, class, rate, log, fail)
	}
	plan := KeyPlan{Rounds: 3, Works: []KeyWork{{"set", 1, false}, {"get", 16, true}}, Warm: 100, For: 2 * time.Second}
	peers, rounds, err := plan.Run(t.Context(), []KeyPeer{
		made(Redis, Durable, 12_345, nil), made(Lattice, Durable, 11_000, nil),
		made(Redis, EverySecond, 20, nil), made(Lattice, EverySecond, 15, nil),
		made("broken", EverySecond, 1, errors.New("out of order")),
	})
	if err != nil || rounds != 3 {
		t.Fatalf("%d rounds, %v", rounds, err)
	}
	return &KeysReport{
		Command: "make bench-redis", Flags: "-c 50", Commit: "abc", Date: "2026-01-02", Machine: "2 cores", Load: "0.1", Rounds: 3,
		Works: plan.Works, Peers: peers,
		Folds: []Fold{{Log: "SET", Operations: 1_000_000, Seconds: 2, CPUSeconds: 1.5}, {Log: "INCR", Operations: 1_000_000, Seconds: 4}},
	}, logs
}

// TestKeysRequests holds the plan to the same number of requests for all peers of
// a class in all rounds, by the rate of the first.
func TestKeysRequests(t *testing.T) {
	_, logs := testKeys(t)
	round := []int64{100, 25_000, 100, 400_000} // 2 s at 12,345/s and at 16 times as many
	want := slices.Concat(round, round, round)
	for _, name := range []string{"Redis durable", "Lattice durable"} {
		if got := *logs[name]; !slices.Equal(got, want) {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	if got := *logs["Lattice every second"]; got[1] != 100 {
		t.Errorf("fewer requests than warm up: %d", got)
	}
	if got := *logs["broken every second"]; len(got) != 1 {
		t.Errorf("a peer that failed goes on: %d", got)
	}
}

func TestKeysGoals(t *testing.T) {
	r, _ := testKeys(t)
	for _, g := range r.Goals() {
		want := map[string]bool{
			"SET -P 1, durable": false, "GET -P 16, durable": true, "SET -P 1, every second": true, "GET -P 16, every second": true,
			"fold: SET": true, "fold: INCR": false,
		}
		if met, ok := want[g.Work]; !ok || g.Met == nil || *g.Met != met {
			t.Errorf("%s: %+v, want %v", g.Work, g, met)
		}
	}
	r.Peers = r.Peers[:1]
	if g := r.Goals()[0]; g.Met != nil {
		t.Errorf("a goal without figures: %+v", g)
	}
}

func TestKeysMarkdown(t *testing.T) {
	r, _ := testKeys(t)
	page := r.Markdown()
	for _, want := range []string{
		"broken, every second, failed: warm up set/-P 1: out of order", "`redis-benchmark -c 50`",
		"| SET | 1 | 22,000 |", "| 24,700 |", "| 0.89 |", "| SET | 1000000 | 0 MiB | 500,000 | 1.50 |", "Goals: 4 of 6 met",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "NaN") || strings.Contains(page, "Inf") || strings.Contains(page, "%!") {
		t.Error(page)
	}
	if err := r.Failures(); err == nil || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("failures: %v", err)
	}
}
