package txn

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/internal/testkit/transcript"
)

var rewrite = flag.Bool("rewrite", false, "write what the transcripts in testdata now say")

// TestTranscripts runs the scripts in testdata. A script is commands, each
// followed by ---- and what it must print; -rewrite writes what it prints. WHO is a
// producer; it uses the id and epoch that it was told last, unless as= says others.
//
//	init WHO ID [timeout=] [as=PRODUCER/EPOCH|last]
//	add WHO PARTITION... | offsets WHO GROUP... | write WHO PARTITION | commit-offsets WHO GROUP
//	commit WHO | abort WHO
//	show ID | list | logs
//	refuse PARTITION|disk|kept [gone] | heal | hold | settle
//	advance DURATION | restart | crash | forget
func TestTranscripts(t *testing.T) {
	transcript.Run(t, *rewrite, func(t *testing.T) func(string) string {
		s := &script{t: t, world: newWorld(t), who: map[string]Request{}}
		return s.run
	})
}

type script struct {
	*world
	t    *testing.T
	out  []string
	who  map[string]Request
	hold bool
}

func (s *script) say(format string, args ...any) { s.out = append(s.out, fmt.Sprintf(format, args...)) }

// outcome prints an error by its sentinel's own words.
func outcome(err error) string {
	for _, known := range []error{
		ErrNotStored, ErrClosed, ErrInvalidRequest, ErrTooMany, ErrEpoch, ErrState, ErrProducer, ErrTimeout, ErrConcurrent, ErrFenced, ErrNotFound,
	} {
		if errors.Is(err, known) {
			return strings.TrimPrefix(known.Error(), "transaction: ")
		}
	}
	if err != nil {
		return "BROKEN: " + err.Error()
	}
	return "ok"
}

func (s *script) run(line string) string {
	s.out = nil
	words, named := []string{}, map[string]string{}
	for _, f := range strings.Fields(line)[1:] {
		if k, v, ok := strings.Cut(f, "="); ok {
			named[k] = v
		} else {
			words = append(words, f)
		}
	}
	s.command(strings.Fields(line)[0], words, named)
	if !s.hold {
		s.settle()
	}
	if err := s.verify(); err != nil {
		s.say("BROKEN: %v", err)
	}
	text := ""
	for _, line := range s.out {
		text += line + "\n"
	}
	return text
}

func (s *script) command(name string, words []string, named map[string]string) {
	switch name {
	case "init":
		s.initialise(words, named)
	case "add", "offsets", "write", "commit-offsets", "commit", "abort":
		s.request(name, words, named)
	case "show", "list", "logs":
		s.show(name, words)
	case "refuse":
		switch {
		case words[0] == "disk", words[0] == "kept":
			s.records.err, s.records.keep = errDisk, words[0] == "kept"
		case len(words) > 1:
			s.logs.refuse[s.part(words[0])] = lattice.E(lattice.NotFound, errors.New("gone"))
		default:
			s.logs.refuse[s.part(words[0])] = errDisk
		}
	case "heal":
		s.records.err = nil
		clear(s.logs.refuse)
	case "hold", "settle":
		s.hold = name == "hold"
		s.logs.hold = s.hold
	case "advance":
		d, err := time.ParseDuration(words[0])
		if err != nil {
			s.t.Fatal(err)
		}
		s.clock.Advance(d)
	case "crash":
		s.records.kept = clone(s.records.durable)
		s.restart(s.t)
	case "restart":
		s.restart(s.t)
	case "forget":
		s.forget()
	default:
		s.t.Fatalf("no command %q", name)
	}
}

// part reads a partition: a letter and a number.
func (s *script) part(word string) lattice.TopicPartition {
	n, err := strconv.Atoi(word[1:])
	if err != nil {
		s.t.Fatal(err)
	}
	return part(word[0], int32(n))
}

// as returns who a producer says it is.
func (s *script) as(who string, named map[string]string) Request {
	r := s.who[who]
	if text, ok := named["as"]; ok && text != "last" {
		id, epoch, _ := strings.Cut(text, "/")
		p, _ := strconv.ParseInt(id, 10, 64)
		e, _ := strconv.ParseInt(epoch, 10, 16)
		r.Producer, r.Epoch = p, int16(e)
	}
	return r
}

func (s *script) initialise(words []string, named map[string]string) {
	who, id := words[0], words[1]
	timeout := time.Minute
	if text, ok := named["timeout"]; ok {
		timeout, _ = time.ParseDuration(text)
	}
	r := InitRequest{ID: id, Timeout: timeout, Producer: -1, Epoch: -1}
	if _, ok := named["as"]; ok {
		as := s.as(who, named)
		r.Producer, r.Epoch = as.Producer, as.Epoch
	}
	s.Init(r, func(p Producer, err error) {
		if err != nil {
			s.say("%s: %s", who, outcome(err))
			return
		}
		s.who[who] = Request{id, p.ID, p.Epoch}
		s.say("%s: producer %d epoch %d", who, p.ID, p.Epoch)
	})
}

func (s *script) request(name string, words []string, named map[string]string) {
	who, r := words[0], s.as(words[0], named)
	reply := func(err error) { s.say("%s: %s %s", who, name, outcome(err)) }
	switch name {
	case "add":
		var all []lattice.TopicPartition
		for _, w := range words[1:] {
			all = append(all, s.part(w))
		}
		s.Add(r, all, nil, reply)
	case "offsets":
		s.Add(r, nil, words[1:], reply)
	case "write":
		reply(s.logs.append(s.Manager, s.part(words[1]), r.Producer, r.Epoch))
	case "commit-offsets":
		reply(s.OngoingFor(words[1], r))
	default:
		s.End(r, name == "commit", reply)
	}
}

func (s *script) show(name string, words []string) {
	print := func(t Transaction) {
		started := "-"
		if !t.Started.IsZero() {
			started = t.Started.Sub(epoch0).String()
		}
		s.say("%s %v producer=%d/%d last=%d/%d timeout=%v started=%s partitions=%d groups=%v",
			t.ID, t.State, t.Producer, t.Epoch, t.LastProducer, t.LastEpoch, t.Timeout, started, len(t.Partitions), t.Groups)
	}
	switch name {
	case "show":
		t, err := s.Describe(words[0])
		if err != nil {
			s.say("%s", outcome(err))
			return
		}
		print(t)
	case "list":
		for _, t := range s.List() {
			print(t)
		}
	case "logs":
		for _, tp := range s.logs.parts() {
			s.say("%c%d: %s", tp.Topic[0], tp.Partition, strings.Join(s.logs.log[tp], " "))
		}
		for _, g := range []string{"g", "h"} {
			if all := s.logs.offsets[g]; len(all) > 0 {
				s.say("group %s: %s", g, strings.Join(all, ", "))
			}
		}
	}
}
