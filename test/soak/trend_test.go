package soak

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A trend says whether what the node uses stays the same. There are two for each kind:
//
//   - "in a life": the life that lasts a third of the run, after a warm-up of a sixth
//     of that life, in windows of equal length.
//   - "across lives": the brief lives, each one the median of its samples of the
//     first minute, so that like is compared with like. It shows what grows with what
//     is stored.
//
// The rule: the median of the last third of windows (or lives) is at most that of the
// first third, plus a tenth of it, plus a slack that covers the clients' coming and
// going (see slack). The slope, in units an hour, is the median of the slopes between
// all pairs of windows (Theil and Sen): one odd window moves neither.
type trend struct {
	what        string // "in a life" or "across lives"
	kind        int
	first, last float64 // medians of the first and the last third
	slope       float64 // an hour
	windows     int     // 0: too short to judge
}

// slack is how much more than a tenth is still flat. A node that grew by 12 MiB
// resident, or by 2.4 MiB of heap, in a life of 20 minutes was not.
var slack = [kinds]float64{rss: 6 << 20, heap: 3 << 19, handles: 20, goroutines: 20}

const (
	fewestWindows = 6
	perWindow     = 5 // samples, at least
)

func (t trend) flat() bool {
	return t.windows < fewestWindows || t.last <= t.first*1.1+slack[t.kind]
}

func (t trend) String() string {
	if t.windows < fewestWindows {
		return fmt.Sprintf("%s %s: too short to judge", kindNames[t.kind], t.what)
	}
	unit, div := "", 1.0
	if t.kind == rss || t.kind == heap {
		unit, div = " MiB", 1<<20
	}
	return fmt.Sprintf("%s %s %.1f to %.1f%s (%+.1f/h)", kindNames[t.kind], t.what, t.first/div, t.last/div, unit, t.slope/div)
}

// point is one window or life.
type point struct {
	at time.Duration
	of [kinds]float64
}

func (x *sampler) trends(p plan) []trend {
	x.mu.Lock()
	defer x.mu.Unlock()
	lives := map[int][]sample{}
	longest := 0
	for _, s := range x.samples {
		lives[s.life] = append(lives[s.life], s)
		if len(lives[s.life]) > len(lives[longest]) {
			longest = s.life
		}
	}
	var all []trend
	long := windows(lives[longest], p.length/18)
	var brief []point
	for life := range x.life + 1 {
		young := slices.DeleteFunc(slices.Clone(lives[life]), func(s sample) bool { return s.age > time.Minute })
		if life != longest && len(young) >= perWindow {
			brief = append(brief, middle(young))
		}
	}
	for kind := range kinds {
		all = append(all, judge("in a life", kind, long), judge("across lives", kind, brief))
	}
	return all
}

// windows cuts one life into twelve, or as many as hold enough samples.
func windows(life []sample, warm time.Duration) []point {
	life = slices.DeleteFunc(slices.Clone(life), func(s sample) bool { return s.age < warm })
	n := min(12, len(life)/perWindow)
	var all []point
	for i := range n {
		all = append(all, middle(life[i*len(life)/n:(i+1)*len(life)/n]))
	}
	return all
}

// middle is the medians of samples.
func middle(of []sample) point {
	p := point{at: of[len(of)/2].at}
	for kind := range kinds {
		var v []float64
		for _, s := range of {
			v = append(v, float64(s.of[kind]))
		}
		p.of[kind] = median(v)
	}
	return p
}

func judge(what string, kind int, points []point) trend {
	t := trend{what: what, kind: kind, windows: len(points)}
	if t.windows < fewestWindows {
		return t
	}
	var v, slopes []float64
	for i, p := range points {
		v = append(v, p.of[kind])
		for _, q := range points[:i] {
			if d := (p.at - q.at).Hours(); d > 0 {
				slopes = append(slopes, (p.of[kind]-q.of[kind])/d)
			}
		}
	}
	third := len(v) / 3
	t.first, t.last, t.slope = median(v[:third]), median(v[len(v)-third:]), median(slopes)
	return t
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// TestTrend: noise is flat, a leak is not, in a life or across lives.
func TestTrend(t *testing.T) {
	p := plan{length: time.Hour}
	for _, c := range []struct {
		name string
		grow func(at, age time.Duration) float64 // goroutines
		flat bool
	}{
		{"noise", func(at, age time.Duration) float64 { return 0 }, true},
		{"a warm-up", func(at, age time.Duration) float64 { return 300 * math.Exp(-age.Seconds()/20) }, true},
		{"one that is odd", func(at, age time.Duration) float64 {
			if at > 50*time.Minute && at < 51*time.Minute {
				return 5000
			}
			return 0
		}, true},
		{"a leak in a life", func(at, age time.Duration) float64 { return age.Seconds() / 8 }, false},
		{"a leak with what is stored", func(at, age time.Duration) float64 { return at.Seconds() / 20 }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			var x sampler
			age := time.Duration(0)
			for at := time.Duration(0); at < p.length; at += time.Second {
				if at < p.length/3 || at > 2*p.length/3 {
					if age > 30*time.Second {
						age = 0
					}
				}
				if age == 0 {
					x.life++
				}
				age += time.Second
				s := sample{life: x.life, age: age, at: at}
				s.of[goroutines] = 100 + rng.Int64N(30) + int64(c.grow(at, age))
				x.samples = append(x.samples, s)
			}
			flat := true
			for _, tr := range x.trends(p) {
				if tr.kind == goroutines {
					t.Log(tr)
				}
				flat = flat && tr.flat()
				if tr.windows < fewestWindows {
					t.Errorf("%s: an hour is too short to judge", tr.what)
				}
			}
			if flat != c.flat {
				t.Errorf("flat: %t, want %t", flat, c.flat)
			}
		})
	}
}
