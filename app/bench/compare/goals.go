package compare

import "fmt"

// Names of peers that goals speak of.
const (
	Lattice = "Lattice"
	Kafka   = "Apache Kafka"
	Kfake   = "kfake"
)

// Goal is something that a figure should reach.
type Goal struct {
	Work string `json:"work"`
	Want string `json:"want"`
	Got  string `json:"got"`
	// Met is nil when a figure is missing.
	Met *bool `json:"met"`
}

// Goals holds the figures against what Lattice is to reach: hashing, signing and
// checking included, which no peer here does.
func (r *Report) Goals() []Goal {
	g := goals{r: r}
	ours, fake := r.peer(Lattice, Durable), r.peer(Kfake, Durable)
	for _, w := range []struct {
		what, shown string
		size        int
		cpu         float64
	}{
		{Produce, "produce 100 B, durable", 100, 0.5},
		{Produce, "produce 1 KiB, durable", 1024, 2.3},
		{Consume, "fetch 100 B", 100, 0.4},
		{Consume, "fetch 1 KiB", 1024, 1.0},
	} {
		work := Bulk(w.what, w.size, 1)
		g.atLeast(w.shown, "kfake", ours, fake, work+"/"+Rate)
		g.below(w.shown+", server CPU s/M", ours, work+"/"+CPU, w.cpu, "%.2f")
	}
	one, ok1 := ours.Get(OneP50)
	other, ok2 := fake.Get(OneP50)
	g.add("one synchronous produce, durable, p50", "at most half of kfake's", fmt.Sprintf("%.2f ms, %.2f ms", one, other), ok1 && ok2, one <= other/2)
	g.below("produce to consume, page cache, p50 ms", r.peer(Lattice, PageCache), WayP50, 0.6, "%.2f")
	g.below("produce to consume, durable, p50 ms", ours, WayP50, 1.2, "%.2f")
	for _, class := range []Class{Durable, PageCache} {
		g.besideKafka(class)
	}
	g.start()
	return g.all
}

type goals struct {
	r   *Report
	all []Goal
}

func (g *goals) add(work, want, got string, known, met bool) {
	x := Goal{Work: work, Want: want, Got: got, Met: &met}
	if !known {
		x.Got, x.Met = "not measured", nil
	}
	g.all = append(g.all, x)
}

func (g *goals) below(work string, m *Measured, name string, limit float64, format string) {
	v, ok := m.Get(name)
	g.add(work, fmt.Sprintf("at most "+format, limit), fmt.Sprintf(format, v), ok, v <= limit)
}

func (g *goals) atLeast(work, whose string, ours, other *Measured, name string) {
	a, ok1 := ours.Get(name)
	b, ok2 := other.Get(name)
	g.add(work+", records/s", "at least "+whose+"'s", fmt.Sprintf("%s, %s", count(a), count(b)), ok1 && ok2, a >= b)
}

// besideKafka asks for at least Apache Kafka's rates, at most half of its CPU
// for a record, and a tenth of its memory. Of all work the worst counts.
func (g *goals) besideKafka(class Class) {
	ours, kafka := g.r.peer(Lattice, class), g.r.peer(Kafka, class)
	rate, cpu := worst{}, worst{}
	for _, what := range []string{Produce, Consume} {
		for _, size := range g.r.Sizes {
			for _, partitions := range g.r.Partitions {
				work := Bulk(what, size, partitions)
				shown := fmt.Sprintf("%s %s, %s", what, sizeName(size), partitionsName(partitions))
				rate.take(shown, work+"/"+Rate, ours, kafka, func(a, b float64) float64 { return a / b })
				cpu.take(shown, work+"/"+CPU, ours, kafka, func(a, b float64) float64 { return b / a })
			}
		}
	}
	g.add("all produce and fetch, "+string(class), "at least Apache Kafka's rates", rate.say("%.2f times its rate"), rate.known(), rate.ratio >= 1)
	g.add("server CPU for a record, "+string(class), "at most half of Apache Kafka's", cpu.say("its CPU is %.1f times ours"), cpu.known(), cpu.ratio >= 2)
	a, ok1 := ours.Get(Memory)
	b, ok2 := kafka.Get(Memory)
	g.add("peak memory, "+string(class), "a tenth of Apache Kafka's", fmt.Sprintf("%s, %s", mib(a), mib(b)), ok1 && ok2, a <= b/10)
}

// worst is the work with the lowest ratio. A work that one of the two lacks makes
// it unknown.
type worst struct {
	ratio   float64
	work    string
	seen    int
	missing bool
}

func (w *worst) take(shown, name string, ours, other *Measured, ratio func(ours, other float64) float64) {
	a, ok1 := ours.Get(name)
	b, ok2 := other.Get(name)
	if !ok1 || !ok2 || a == 0 || b == 0 {
		w.missing = true
		return
	}
	if r := ratio(a, b); w.seen == 0 || r < w.ratio {
		w.ratio, w.work = r, shown
	}
	w.seen++
}

func (w *worst) known() bool { return w.seen > 0 && !w.missing }

func (w *worst) say(format string) string {
	return "least in " + w.work + ": " + fmt.Sprintf(format, w.ratio)
}

// start holds the largest log to what a start may take.
func (g *goals) start() {
	var last *Point
	for i := range g.r.History {
		if p := &g.r.History[i]; last == nil || p.LogBytes > last.LogBytes {
			last = p
		}
	}
	const ten = 10 << 30
	known := last != nil && last.LogBytes >= ten
	if !known {
		last = &Point{}
	}
	g.add("start after a clean stop with 10 GiB of log", "under 2 s", fmt.Sprintf("%.2f s", last.StartSeconds), known, last.StartSeconds < 2)
	g.add("idle memory after it", "under 100 MiB", mib(float64(last.IdleBytes)), known, last.IdleBytes < 100<<20)
}
