package projector

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/internal/testkit/transcript"
	"github.com/lattice-log/lattice/pipeline/projection"
)

var rewrite = flag.Bool("rewrite", false, "write what the transcripts now compare with")

// TestTranscripts plays testdata/*.txt. Commands:
//
//	lane [batch N] [queue N]    a new lane, whose first record has offset 0
//	offer O... xO               records; x: undecodable
//	later                       what time it is: when the lane waits no longer
//	next                        what to do
//	CLASS [JITTER]              what came of it, and what is next
//	position, hold, release
//	judge APPLIED PARKED SEQUENCE [PREVIOUS]
func TestTranscripts(t *testing.T) {
	transcript.Run(t, *rewrite, func(*testing.T) func(string) string {
		s := &script{start: time.Unix(0, 0).UTC()}
		return s.run
	})
}

type script struct {
	lane  *Lane
	start time.Time
	now   time.Duration
}

func (s *script) run(line string) string {
	words := strings.Fields(line)
	classes := []string{"ok", "transient", "schema", "data", "decode", "fenced"}
	switch verb := words[0]; verb {
	case "lane":
		cfg := Config{}
		for i := 1; i+1 < len(words); i += 2 {
			n, _ := strconv.Atoi(words[i+1])
			switch words[i] {
			case "batch":
				cfg.Batch = n
			case "queue":
				cfg.Queue = n
			}
		}
		s.lane, s.now = NewLane(cfg, 0), 0
		return ""
	case "offer":
		var rs []Record
		for _, w := range words[1:] {
			o, bad := strings.CutPrefix(w, "x")
			n, _ := strconv.ParseInt(o, 10, 64)
			rs = append(rs, Record{n, bad})
		}
		if err := s.lane.Offer(rs...); err != nil {
			return err.Error() + "\n"
		}
		return s.next()
	case "later":
		if a := s.lane.Next(s.start.Add(s.now)); a.Kind == Wait {
			s.now = a.Until.Sub(s.start)
		}
		return s.next()
	case "next":
		return s.next()
	case "position":
		return fmt.Sprintf("%d, room %d, paused %q\n", s.lane.Position(), s.lane.Room(), s.lane.Paused())
	case "hold":
		s.lane.Hold()
		return s.next()
	case "release":
		s.lane.Release()
		return s.next()
	case "judge":
		var n []int64
		for _, w := range words[1:] {
			v, _ := strconv.ParseInt(w, 10, 64)
			n = append(n, v)
		}
		n = append(n, -1)
		return fmt.Sprintln(projection.Judge(projection.Guard{Applied: n[0], Parked: n[1]}, n[2], n[3]))
	default:
		i := slices.Index(classes, verb)
		if i < 0 {
			return "unknown command\n"
		}
		jitter := 0.0
		if len(words) > 1 {
			jitter, _ = strconv.ParseFloat(words[1], 64)
		}
		out := ""
		if n := s.lane.Done(s.start.Add(s.now), Class(i), jitter); n != "" {
			out = fmt.Sprintf("(%s)\n", n)
		}
		return out + s.next()
	}
}

func (s *script) next() string {
	a := s.lane.Next(s.start.Add(s.now))
	var offsets []string
	for _, r := range a.Records {
		offsets = append(offsets, strconv.FormatInt(r.Offset, 10))
	}
	text := strings.TrimSpace(a.Kind.String() + " " + strings.Join(offsets, " "))
	switch a.Kind {
	case Wait:
		text += fmt.Sprintf(" until %v", a.Until.Sub(s.start))
	case Bury:
		text += fmt.Sprintf(": %s, %d retries, first at %v", a.Class, a.Retries, a.FirstFailed.Sub(s.start))
	}
	return text + "\n"
}

// TestEveryRecordOnce plays random records, poison, outages and lacking columns. Every
// record is applied or buried, once and in order; what is buried is poison; nothing is
// ever done that the database could not do; the position never passes what is not done.
func TestEveryRecordOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{Batch: rapid.IntRange(1, 5).Draw(t, "batch"), Queue: rapid.IntRange(5, 20).Draw(t, "queue"), Flood: 4}
		l := NewLane(cfg, 0)
		now := time.Unix(0, 0)
		poison := map[int64]bool{}
		var next int64
		var done []int64
		total := rapid.Int64Range(1, 60).Draw(t, "records")
		for steps := 0; int64(len(done)) < total; steps++ {
			if steps > 20_000 {
				t.Fatalf("stuck at %d of %d: %s", len(done), total, l.Paused())
			}
			for next < total && l.Room() > 0 {
				poison[next] = rapid.IntRange(0, 3).Draw(t, "poison") == 0
				if err := l.Offer(Record{next, poison[next] && rapid.Bool().Draw(t, "undecodable")}); err != nil {
					t.Fatal(err)
				}
				next++
			}
			a := l.Next(now)
			switch a.Kind {
			case Stop:
				t.Fatal("the lane ended")
			case Idle: // only a flood of undecodable records, or nothing more to do
				if l.Paused() == "" {
					t.Fatal("idle with records")
				}
				l.Release()
				continue
			case Wait:
				if !a.Until.After(now) || a.Until.Sub(now) > 30*time.Second {
					t.Fatalf("waits from %v to %v", now, a.Until)
				}
				if strings.Contains(l.Paused(), "in a row") {
					l.Release()
				}
				now = a.Until
				continue
			}
			class := OK
			switch rapid.IntRange(0, 5).Draw(t, "database") {
			case 0:
				class = Transient
			case 1:
				class = Schema
			default:
				if a.Kind == Apply && slices.ContainsFunc(a.Records, func(r Record) bool { return poison[r.Offset] }) {
					class = Data
				}
			}
			if class == OK {
				for _, r := range a.Records {
					if int64(len(done)) != r.Offset {
						t.Fatalf("%s of %d, and %d are done", a.Kind, r.Offset, len(done))
					}
					if a.Kind == Bury && !poison[r.Offset] {
						t.Fatalf("%d was buried and is no poison", r.Offset)
					}
					done = append(done, r.Offset)
				}
			}
			l.Done(now, class, rapid.Float64Range(0, 1).Draw(t, "jitter"))
			if l.Position() != int64(len(done)) {
				t.Fatalf("position %d, and %d are done", l.Position(), len(done))
			}
		}
	})
}

// TestOutageBuriesNothing checks that no number of failures that are not the event's
// makes a dead letter.
func TestOutageBuriesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := NewLane(Config{}, 0)
		_ = l.Offer(Record{Offset: 0}, Record{Offset: 1})
		now := time.Unix(0, 0)
		for range rapid.IntRange(1, 200).Draw(t, "failures") {
			a := l.Next(now)
			if a.Kind == Wait {
				now = a.Until
				a = l.Next(now)
			}
			if a.Kind != Apply {
				t.Fatalf("%v", a.Kind)
			}
			l.Done(now, rapid.SampledFrom([]Class{Transient, Schema}).Draw(t, "class"), 0)
		}
		now = now.Add(time.Minute)
		if a := l.Next(now); a.Kind != Apply {
			t.Fatalf("%v", a.Kind)
		}
		l.Done(now, OK, 0)
		if l.Paused() != "" {
			t.Fatalf("paused: %s", l.Paused())
		}
	})
}

// TestGuard plays deliveries of one entity's events with duplicates, early ones and
// poison, crashes and retries of what is parked. Whatever comes, the effects are those of each
// event once, in order.
func TestGuard(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 12).Draw(t, "events")
		broken := map[int64]bool{}
		for s := int64(1); s <= n; s++ {
			broken[s] = rapid.IntRange(0, 4).Draw(t, "broken") == 0
		}
		var g projection.Guard
		var effects, parked []int64
		deliver := func(s int64) {
			switch projection.Judge(g, s, s-1) {
			case projection.Fresh:
				if broken[s] {
					parked, g.Parked = append(parked, s), s
					return
				}
				effects, g.Applied = append(effects, s), s
			case projection.Behind:
				parked, g.Parked = append(parked, s), s
			}
		}
		retry := func() {
			done := 0
			for done < len(parked) && !broken[parked[done]] {
				effects = append(effects, parked[done])
				done++
			}
			if len(parked) > 0 {
				g = g.Retry(parked, done)
				parked = parked[done:]
			}
		}
		for range rapid.IntRange(0, 40).Draw(t, "deliveries") {
			if rapid.IntRange(0, 6).Draw(t, "operator") == 0 {
				broken = map[int64]bool{rapid.Int64Range(1, n).Draw(t, "still"): rapid.Bool().Draw(t, "broken still")}
				retry()
				continue
			}
			deliver(rapid.Int64Range(1, n).Draw(t, "sequence"))
		}
		broken = nil
		retry()
		for s := int64(1); s <= n; s++ { // from the topic's beginning
			deliver(s)
		}
		for i, s := range effects {
			if s != int64(i+1) {
				t.Fatalf("effects %v", effects)
			}
		}
		if int64(len(effects)) != n || g.Parked != 0 {
			t.Fatalf("effects %v of %d, guard %+v", effects, n, g)
		}
	})
}

func TestClassify(t *testing.T) {
	for _, k := range lattice.Kinds() {
		want := Data
		switch k {
		case lattice.Unavailable, lattice.Storage, lattice.NotLeader, lattice.NotYet:
			want = Transient
		case lattice.Fenced:
			want = Fenced
		case lattice.Unsupported, lattice.Denied:
			want = Schema
		}
		if got := Classify(fmt.Errorf("apply: %w", lattice.E(k, errors.New("x")))); got != want {
			t.Errorf("%v is %v, want %v", k, got, want)
		}
	}
	if Classify(nil) != OK || Classify(errors.New("x")) != Data || Classify(ErrFenced) != Fenced {
		t.Error("no error, an unknown one, or a lost partition")
	}
}
