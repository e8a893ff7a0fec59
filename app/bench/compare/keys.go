package compare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lattice-log/lattice/app/bench"
)

// EverySecond is the class of an acknowledgement that precedes the sync by up to
// a second: Redis's everysec, Lattice's interval.
const EverySecond Class = "every second"

// Redis is a peer that goals speak of.
const Redis = "Redis"

// KeyWork is one of redis-benchmark's tests.
type KeyWork struct {
	Test     string `json:"test"`     // as redis-benchmark -t names it
	Pipeline int    `json:"pipeline"` // requests that each client sends at once
	Reads    bool   `json:"reads"`    // it changes nothing
}

// Name names the work in figures.
func (w KeyWork) Name() string { return fmt.Sprintf("%s/-P %d", w.Test, w.Pipeline) }

// KeyPeer is a server of keys that can be started.
type KeyPeer struct {
	Name  string // the same in every class
	Class Class
	How   string // what makes it one of its class
	Start func(ctx context.Context) (KeyServer, error)
}

// KeyServer is a running KeyPeer. One method at a time is called.
type KeyServer interface {
	Version() string
	PID() int
	// Bench does the work that many times, and returns the rate.
	Bench(ctx context.Context, w KeyWork, requests int64) (perSecond float64, err error)
	// Stop ends the process and removes its data.
	Stop() error
}

// KeyPlan is what a run measures of servers of keys.
type KeyPlan struct {
	Rounds int
	Budget time.Duration // no round begins that would likely end later; 0: no limit
	Works  []KeyWork     // in this order: reads find what was written before
	Warm   int64         // requests of each work that are not counted
	For    time.Duration // how long a work takes, about, with the first peer of a class
	// Settle and Say are as in Plan.
	Settle func()
	Say    func(format string, args ...any)
}

// Run measures all peers, in rounds of alternating order, and returns in how many
// rounds. How often a work is done is found out with the first peer of its class
// and is the same for all that follow. Errors are as with Plan.Run.
func (p KeyPlan) Run(ctx context.Context, peers []KeyPeer) (_ []Measured, rounds int, _ error) {
	all := make([]Measured, len(peers))
	for i, peer := range peers {
		all[i] = Measured{Name: peer.Name, Class: peer.Class, How: peer.How, Figures: map[string]*Figure{}}
	}
	requests := map[string]int64{}
	t := turns{p.Rounds, p.Budget, p.Say}
	rounds, err := t.run(ctx, all, func(i int) error { return p.one(ctx, peers[i], &all[i], requests) })
	return all, rounds, err
}

// one starts a peer, does every work once, and stops it.
func (p KeyPlan) one(ctx context.Context, peer KeyPeer, m *Measured, requests map[string]int64) (err error) {
	s, err := peer.Start(ctx)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	m.Version = s.Version()
	for _, w := range p.Works {
		rate, err := s.Bench(ctx, w, p.Warm)
		if err != nil {
			return fmt.Errorf("warm up %s: %w", w.Name(), err)
		}
		at := string(peer.Class) + "/" + w.Name()
		if requests[at] == 0 {
			requests[at] = max(p.Warm, round2(rate*p.For.Seconds()))
		}
		n := requests[at]
		if p.Settle != nil {
			p.Settle()
		}
		cpu := bench.ServerCPU(s.PID())
		if rate, err = s.Bench(ctx, w, n); err != nil {
			return fmt.Errorf("%s: %w", w.Name(), err)
		}
		m.add(w.Name()+"/"+Rate, rate)
		if cpu = bench.ServerCPU(s.PID()) - cpu; cpu > 0 {
			m.add(w.Name()+"/"+CPU, cpu.Seconds()*1e6/float64(n))
		}
	}
	if _, peak := bench.Memory(s.PID()); peak > 0 {
		m.add(Memory, float64(peak))
	}
	return nil
}

// round2 rounds to two significant digits.
func round2(v float64) int64 {
	unit := 1.0
	for v/unit >= 100 {
		unit *= 10
	}
	return int64(v/unit+0.5) * int64(unit)
}
