package compare

import (
	"fmt"
	"strconv"
	"strings"
)

// Markdown returns the report as the section of a page.
func (r *Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Made by `%s` at commit %s on %s: %s; load average %s before the run. Medians of %s in alternating order, "+
		"one server at a time, client and server sharing the machine. In brackets: the peer's rate divided by that of Lattice in the same class. "+
		"s/M: server CPU seconds for a million records.\n", r.Command, r.Commit, r.Date, r.Machine, r.Load, plural(r.Rounds, "round"))
	for _, w := range r.Without {
		fmt.Fprintf(&b, "\nLeft out: %s.\n", w)
	}
	for _, m := range r.Peers {
		if m.Failed != "" {
			fmt.Fprintf(&b, "\n%s, %s, failed: %s\n", m.Name, m.Class, strings.ReplaceAll(m.Failed, "\n", "; "))
		}
	}
	r.bulk(&b, "Produce", Produce)
	r.bulk(&b, "Fetch from the start", Consume)
	r.latency(&b)
	r.second(&b)
	r.history(&b)
	writeGoals(&b, r.Goals())
	r.legend(&b)
	return b.String()
}

// table writes a table; the first two columns are text, the others numbers.
func table(b *strings.Builder, title string, head []string, rows [][]string) {
	fmt.Fprintf(b, "\n### %s\n\n| %s |\n|---|---|%s\n", title, strings.Join(head, " | "), strings.Repeat("---:|", len(head)-2))
	for _, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
	}
}

func (r *Report) bulk(b *strings.Builder, title, what string) {
	head := []string{"server", "class"}
	var works []string
	for _, size := range r.Sizes {
		for _, n := range r.Partitions {
			head = append(head, fmt.Sprintf("%s, %s: records/s", sizeName(size), partitionsName(n)), "MiB/s", "s/M")
			works = append(works, Bulk(what, size, n))
		}
	}
	var rows [][]string
	for i := range r.Peers {
		m := &r.Peers[i]
		row := []string{m.Name, string(m.Class)}
		for _, w := range works {
			row = append(row, r.rate(m, w+"/"+Rate), cell(m, w+"/"+MiB, "%.0f"), cell(m, w+"/"+CPU, "%.2f"))
		}
		rows = append(rows, row)
	}
	table(b, title, head, rows)
}

func (r *Report) latency(b *strings.Builder) {
	var rows [][]string
	for i := range r.Peers {
		m := &r.Peers[i]
		memory := "–"
		if v, ok := m.Get(Memory); ok {
			memory = mib(v)
		}
		rows = append(rows, []string{
			m.Name, string(m.Class),
			cell(m, OneP50, "%.2f"), cell(m, OneP99, "%.2f"), cell(m, WayP50, "%.2f"), cell(m, WayP99, "%.2f"), memory,
		})
	}
	table(b, "Latency in ms, and memory", []string{
		"server", "class", "one at a time, p50", "p99", "produce to consume at 1,000/s, p50", "p99", "peak memory",
	}, rows)
}

func (r *Report) second(b *strings.Builder) {
	var rows [][]string
	for i := range r.Peers {
		m := &r.Peers[i]
		if _, ok := m.Get(SecondProduce, Rate); !ok {
			continue
		}
		rows = append(rows, []string{
			m.Name, string(m.Class),
			r.rate(m, SecondProduce+"/"+Rate), cell(m, SecondProduce+"/"+CPU, "%.2f"),
			r.rate(m, SecondConsume+"/"+Rate), cell(m, SecondConsume+"/"+CPU, "%.2f"),
		})
	}
	if len(rows) > 0 {
		table(b, "The same through librdkafka (kcat), 100 B, 1 partition", []string{"server", "class", "produce records/s", "s/M", "fetch records/s", "s/M"}, rows)
	}
}

func (r *Report) history(b *strings.Builder) {
	if len(r.History) == 0 {
		return
	}
	var rows [][]string
	f := func(format string, v float64) string { return fmt.Sprintf(format, v) }
	for _, p := range r.History {
		rows = append(rows, []string{
			gib(p.LogBytes), count(float64(p.IdleParts)),
			count(p.ProduceRate), f("%.2f", p.ProduceCPU), count(p.FetchRate), f("%.2f", p.FetchCPU),
			f("%.2f", p.OneP50Ms), f("%.2f", p.WayP50Ms), f("%.2f", p.MetadataP50Ms), f("%.2f", p.CommitP50Ms),
			f("%.2f", p.StartSeconds), mib(float64(p.IdleBytes)),
		})
	}
	table(b, "Lattice with a history (100 B, durable, at the tail of one partition)", []string{
		"log behind it", "other partitions", "produce records/s", "s/M", "fetch records/s", "s/M",
		"one at a time p50 ms", "produce to consume p50 ms", "metadata p50 ms", "group commit p50 ms", "start s", "idle memory",
	}, rows)
}

// writeGoals writes the table of goals.
func writeGoals(b *strings.Builder, all []Goal) {
	var rows [][]string
	met, known := 0, 0
	for _, g := range all {
		verdict := "not measured"
		if g.Met != nil {
			known++
			verdict = "**missed**"
			if *g.Met {
				met++
				verdict = "met"
			}
		}
		rows = append(rows, []string{g.Work, g.Want, g.Got, verdict})
	}
	table(b, fmt.Sprintf("Goals: %d of %d met", met, known), []string{"work", "goal", "figure (ours, theirs)", ""}, rows)
}

// legend says what stands behind each name.
func (r *Report) legend(b *strings.Builder) {
	b.WriteString("\n")
	for _, m := range r.Peers {
		fmt.Fprintf(b, "- %s, %s: %s. Version %s.\n", m.Name, m.Class, m.How, m.Version)
	}
}

// rate returns a rate and, for a peer, its ratio to ours in the same class.
func (r *Report) rate(m *Measured, name string) string {
	v, ok := m.Get(name)
	if !ok {
		return "–"
	}
	ours, ok := r.peer(Lattice, m.Class).Get(name)
	if !ok || m.Name == Lattice || ours == 0 {
		return count(v)
	}
	return fmt.Sprintf("%s (%.2f)", count(v), v/ours)
}

func cell(m *Measured, name, format string) string {
	v, ok := m.Get(name)
	if !ok {
		return "–"
	}
	return fmt.Sprintf(format, v)
}

// count writes a number with three significant digits and commas: nobody's run
// to run is steadier than that.
func count(v float64) string {
	if v >= 1000 {
		unit := 1.0
		for v/unit >= 1000 {
			unit *= 10
		}
		v = float64(int64(v/unit+0.5)) * unit
	}
	s := strconv.FormatInt(int64(v+0.5), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func mib(v float64) string { return fmt.Sprintf("%s MiB", count(v/(1<<20))) }

func gib(v int64) string { return strconv.FormatFloat(float64(v)/(1<<30), 'g', 3, 64) + " GiB" }

func sizeName(n int) string {
	if n >= 1024 && n%1024 == 0 {
		return fmt.Sprintf("%d KiB", n/1024)
	}
	return fmt.Sprintf("%d B", n)
}

func partitionsName(n int32) string { return plural(int(n), "partition") }

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
