package reconcile

import (
	"bytes"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/internal/testkit/transcript"
)

var rewrite = flag.Bool("rewrite", false, "write what the transcripts in testdata now say")

// TestTranscripts runs the scripts in testdata. A script is commands, each followed
// by ---- and what it must print; -rewrite writes what it prints.
//
//	nodes NAME...                 each is an author; the first founds the store and made the rest writers
//	write NODE [n=1] [size=10]    entries of its own
//	connect A B | disconnect A B
//	settle                        until nothing is under way; prints the messages
//	quiet                         the same, prints only what is stored and refused
//	tick DURATION
//	hold NODE | go NODE           it does not get to its disk | it does again
//	crash NODE                    it loses what is not durable, and starts again
//	empty NODE                    it loses its disk but for the beginning of the store
//	branch NODE of=NAME at=SEQ n=1   it met another history of NAME, from SEQ on
//	prune NODE log=NAME upto=SEQ  it drops entries
//	forge NODE of=NAME at=SEQ     it changes that entry when it sends it
//	head NODE at=SIZE [from=SIZE] [by=NAME]   it knows a checkpoint, a proof from an older one, a cosignature
//	import NODE from=NAME         it takes over, as from a snapshot, what the other has pruned
//	set KEY VALUE of the configuration: turn, window
//	have [NODE...]                logs, entries without effect, root
func TestTranscripts(t *testing.T) {
	transcript.Run(t, *rewrite, func(t *testing.T) func(string) string {
		s := &script{t: t}
		return s.run
	})
}

type script struct {
	*world
	t         *testing.T
	out       strings.Builder
	partition *partition
}

func (s *script) run(line string) string {
	words := strings.Fields(line)
	named := map[string]string{}
	var args []string
	for _, f := range words[1:] {
		if k, v, ok := strings.Cut(f, "="); ok {
			named[k] = v
		} else {
			args = append(args, f)
		}
	}
	number := func(key string, otherwise int) int {
		if v, ok := named[key]; ok {
			n, err := strconv.Atoi(v)
			if err != nil {
				s.t.Fatal(line, err)
			}
			return n
		}
		return otherwise
	}
	s.out.Reset()
	switch words[0] {
	case "nodes":
		s.world = newWorld(s.t, args...)
		s.trace = func(l string) { fmt.Fprintln(&s.out, l) }
	case "set":
		n, _ := strconv.Atoi(args[1])
		old := s.world.config
		s.world.config = func(c *Config) {
			if old != nil {
				old(c)
			}
			switch args[0] {
			case "turn":
				c.Turn = n
			case "window":
				c.Window = n
			}
		}
		for _, n := range s.world.nodes {
			n.start()
		}
	case "write":
		s.node(args[0]).write(number("n", 1), number("size", 10))
	case "connect":
		s.connect(s.node(args[0]), s.node(args[1]))
	case "disconnect":
		s.disconnect(s.node(args[0]), s.node(args[1]))
	case "settle":
		s.settle()
	case "quiet":
		old := s.trace
		s.trace = func(l string) {
			if strings.Contains(l, " stores ") || strings.Contains(l, " refuses ") || strings.Contains(l, " drops ") {
				old(l)
			}
		}
		s.settle()
		s.trace = old
	case "tick":
		d, err := time.ParseDuration(args[0])
		s.check(err)
		s.tick(d.Milliseconds())
	case "hold", "go":
		s.node(args[0]).hold = words[0] == "hold"
	case "crash":
		s.node(args[0]).restart()
	case "empty":
		n := s.node(args[0])
		first := state.Writer{Author: s.genesis.Author, Incarnation: 1}
		for w := range n.disk.logs {
			if w != first {
				delete(n.disk.logs, w)
			}
		}
		n.disk.logs[first] = n.disk.logs[first][:len(s.nodes)]
		clear(n.disk.notes)
		n.restart()
	case "branch":
		s.branch(s.node(args[0]), named["of"], uint64(number("at", 1)), number("n", 1))
	case "prune":
		n := s.node(args[0])
		n.disk.base[state.Writer{Author: idOf(named["log"]), Incarnation: 1}] = uint64(number("upto", 1))
		e, err := n.r.Rebase(n.inventory(), n.now)
		s.check(err)
		n.do(e)
	case "import":
		n, from := s.node(args[0]), s.node(named["from"])
		for w, base := range from.disk.base {
			if uint64(len(n.disk.logs[w])) < base {
				n.disk.logs[w], n.disk.base[w] = slices.Clone(from.disk.logs[w][:base]), base
			}
		}
		n.m.Reset()
		n.refold()
		e, err := n.r.Rebase(n.inventory(), n.now)
		s.check(err)
		n.do(e)
	case "forge":
		s.forge(s.node(args[0]), state.Writer{Author: idOf(named["of"]), Incarnation: 1}, uint64(number("at", 1)))
	case "head":
		s.head(s.node(args[0]), number("at", 1), number("from", 0), named["by"])
	case "have":
		s.have(args)
	default:
		s.t.Fatalf("no command %q", line)
	}
	return s.out.String()
}

// forge has a node change an entry of a log whenever it sends it.
func (s *script) forge(n *node, log state.Writer, at uint64) {
	n.lie = func(_ *node, m Message) []Message {
		if b, ok := m.(Blocks); ok && b.Log == log && b.After < at && at <= b.After+uint64(len(b.Entries)) {
			b.Entries = slices.Clone(b.Entries)
			e := bytes.Clone(b.Entries[at-b.After-1])
			e[len(e)-80] ^= 1
			b.Entries[at-b.After-1] = e
			return []Message{b}
		}
		return []Message{m}
	}
}

// head has a node know of a partition's head: its own, or one that it cosigned.
func (s *script) head(n *node, at, from int, by string) {
	if s.partition == nil {
		s.partition = newPartition(s.world, n.name, "bob")
	}
	s.partition.fill(at, 0)
	all := []Statement{s.partition.term(), s.partition.head(at)}
	if by != "" {
		all[1] = s.partition.head(at, by)
	}
	if from > 0 {
		all = append(all, s.partition.prefix(from, at))
	}
	n.learn(s.partition, all...)
}

// branch gives a node another history of an author, as if it had met a copy of the
// author's node.
func (s *script) branch(n *node, of string, at uint64, count int) {
	w := state.Writer{Author: idOf(of), Incarnation: 1}
	l := append([]sigchain.Signed(nil), s.node(of).disk.logs[w][:at-1]...)
	for range count {
		x := s.after(of, l[len(l)-1], nil, s.put(w, "other", "history"))
		l = append(l, x)
	}
	n.disk.logs[w] = l
	delete(n.disk.notes, w)
	n.start()
}

func (s *script) have(names []string) {
	for _, n := range s.nodes {
		if len(names) > 0 && !strings.Contains(" "+strings.Join(names, " ")+" ", " "+n.name+" ") {
			continue
		}
		if s.partition != nil {
			fmt.Fprintf(&s.out, "%s: %s\n", n.name, n.sees(s.partition))
			continue
		}
		fmt.Fprintf(&s.out, "%s: %s, void %d, root %s\n", n.name, s.items(n.r.front.items), n.void, n.r.Root().Hash.Short())
	}
}
