package redis

import (
	"bufio"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lattice-log/lattice/front/redis/resp"
	"github.com/lattice-log/lattice/internal/testkit/realredis"
	"github.com/lattice-log/lattice/internal/testkit/respclient"
)

// The same commands go to a real Redis and to this server, and the replies are
// compared one by one. What may differ is in the table known, with the reason,
// and on the coverage page.

var (
	seedFlag  = flag.Uint64("redis.seed", 0, "compare with Redis by this seed alone")
	countFlag = flag.Int("redis.commands", 800, "commands in each random stream that is compared with Redis")
	seedsFlag = flag.Int("redis.seeds", 2, "random streams of each family")
)

// pair is a real Redis and this server.
type pair struct {
	t           testing.TB
	real, ours  *respclient.Client
	log         []string // the commands so far
	queued      [][]string
	known       []difference
	differences int
}

func newPair(t testing.TB, sock string, proto string, f *fixture) *pair {
	t.Helper()
	p := &pair{t: t, known: knownDifferences()}
	var err error
	if p.real, err = respclient.Dial(sock); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.real.Close() })
	p.ours = f.dial().Client
	for _, c := range []*respclient.Client{p.real, p.ours} {
		for _, cmd := range [][]string{{"FLUSHALL"}, {"HELLO", proto}} {
			if v, err := c.Do(cmd...); err != nil || v.Err() != "" {
				t.Fatalf("%q: %v %v", cmd, v, err)
			}
		}
	}
	return p
}

// do sends a command to both, compares, and returns Redis's reply.
func (p *pair) do(args ...string) respclient.Value {
	p.t.Helper()
	p.log = append(p.log, fmt.Sprintf("%q", args))
	want, err := p.real.Do(args...)
	if err != nil {
		p.t.Fatalf("redis: %v", err)
	}
	got, err := p.ours.Do(args...)
	if err != nil {
		p.t.Fatalf("ours: %v\n%s", err, p.history())
	}
	if a, b := p.normalize(args, want), p.normalize(args, got); a != b && !near(args[0], want.Str, got.Str) {
		for _, k := range p.known {
			if k.covers(args, a, b) {
				return want
			}
		}
		p.t.Errorf("%.200q\n redis: %.400s\n ours:  %.400s\n%s", args, a, b, p.history())
		if p.differences++; p.differences > 10 {
			p.t.FailNow()
		}
	}
	switch {
	case want.Str == "QUEUED":
		p.queued = append(p.queued, args)
	case slices.Contains([]string{"exec", "discard", "multi", "reset"}, strings.ToLower(args[0])):
		p.queued = nil
	}
	return want
}

// normalize is the function of that name, and knows the commands of EXEC.
func (p *pair) normalize(args []string, v respclient.Value) string {
	if !strings.EqualFold(args[0], "exec") || len(v.Elems) != len(p.queued) {
		return normalize(args, v)
	}
	parts := make([]string, len(v.Elems))
	for i, e := range v.Elems {
		parts[i] = normalize(p.queued[i], e)
	}
	return "EXEC" + fmt.Sprint(parts)
}

// history shows the latest commands.
func (p *pair) history() string {
	return " after: " + strings.Join(p.log[max(0, len(p.log)-6):], " ")
}

// normalize shows a reply so that what has no order, or is random, compares.
func normalize(args []string, v respclient.Value) string {
	if v.Kind == '-' {
		return v.String()
	}
	switch name := strings.ToLower(args[0]); name {
	case "smembers", "sinter", "sunion", "sdiff", "keys", "hkeys", "hvals":
		return sortedElems(v, 1)
	case "hgetall":
		return sortedElems(v, 2)
	case "hscan", "zscan":
		if len(v.Elems) == 2 {
			return v.Elems[0].String() + sortedElems(v.Elems[1], 2)
		}
	case "spop", "srandmember", "hrandfield", "zrandmember", "randomkey":
		return shape(v)
	case "time", "dbsize":
		return shape(v)
	}
	return v.String()
}

// near reports whether replies are times that two clocks may tell.
func near(command, a, b string) bool {
	switch strings.ToLower(command) {
	case "ttl", "pttl", "expiretime", "pexpiretime":
		x, err := strconv.ParseInt(a, 10, 64)
		y, also := strconv.ParseInt(b, 10, 64)
		return err == nil && also == nil && x > 0 && y > 0 && max(x-y, y-x) < 60_000
	}
	return false
}

// sortedElems shows the elements, in groups of n, in order.
func sortedElems(v respclient.Value, n int) string {
	var groups []string
	for i := 0; i+n <= len(v.Elems); i += n {
		groups = append(groups, fmt.Sprint(v.Elems[i:i+n]))
	}
	slices.Sort(groups)
	return string(v.Kind) + strings.Join(groups, " ")
}

// shape shows the types of a reply, and how many elements there are.
func shape(v respclient.Value) string {
	if v.Null {
		return v.String()
	}
	s := string(v.Kind)
	if v.Elems != nil {
		s += fmt.Sprint(len(v.Elems))
	}
	for _, e := range v.Elems {
		s += shape(e)
	}
	return s
}

// state compares every key of the database.
func (p *pair) state() {
	p.t.Helper()
	keys := p.do("KEYS", "*")
	for _, k := range keys.Strings() {
		typ := p.do("TYPE", k)
		p.do("PEXPIRETIME", k)
		switch typ.Str {
		case "string":
			p.do("GET", k)
		case "list":
			p.do("LRANGE", k, "0", "-1")
		case "hash":
			p.do("HGETALL", k)
		case "set":
			p.do("SMEMBERS", k)
		case "zset":
			p.do("ZRANGE", k, "0", "-1", "WITHSCORES")
		}
		p.do("OBJECT", "REFCOUNT", k)
	}
}

// TestSameAsRedisRandom sends random commands of each family.
func TestSameAsRedisRandom(t *testing.T) {
	sock := realredis.Start(t)
	for name, gen := range generators() {
		for _, proto := range []string{"2", "3"} {
			for n := range *seedsFlag {
				seed := uint64(n + 1)
				if *seedFlag != 0 {
					seed = *seedFlag + uint64(n)
				}
				t.Run(fmt.Sprintf("%s/resp%s/seed%d", name, proto, seed), func(t *testing.T) {
					make := newFixture
					if n%2 == 1 {
						make = newEngineFixture
					}
					p := newPair(t, sock, proto, make(t, Config{}))
					r := &random{rand.New(rand.NewPCG(seed, 0))}
					for range *countFlag {
						p.do(gen(r)...)
					}
					p.state()
				})
			}
		}
	}
}

// TestSameAsRedisScripts sends the commands of testdata/compare, a line each.
func TestSameAsRedisScripts(t *testing.T) {
	sock := realredis.Start(t)
	files, err := filepath.Glob("testdata/compare/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		for _, proto := range []string{"2", "3"} {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txt")+"/resp"+proto, func(t *testing.T) {
				p := newPair(t, sock, proto, newEngineFixture(t, Config{}))
				f, err := os.Open(file)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				lines := bufio.NewScanner(f)
				lines.Buffer(nil, 1<<20)
				for lines.Scan() {
					line := lines.Text()
					if line == "" || strings.HasPrefix(line, "#") {
						continue
					}
					words, ok := resp.Split(nil, []byte(line))
					if !ok {
						t.Fatalf("%s: %s", file, line)
					}
					args := make([]string, len(words))
					for i, w := range words {
						args[i] = string(w)
					}
					p.do(args...)
				}
				if lines.Err() != nil {
					t.Fatal(lines.Err())
				}
			})
		}
	}
}

// random draws arguments from small sets, so that commands meet.
type random struct{ *rand.Rand }

func (r *random) of(words ...string) string { return words[r.IntN(len(words))] }

func (r *random) key() string { return "k" + r.of("1", "2", "3", "4", "5", "6") }

// word is a member, field or value.
func (r *random) word() string {
	switch r.IntN(12) {
	case 0:
		return ""
	case 1:
		return "a\x00\r\nb"
	case 2:
		return strings.Repeat("long", 20)
	case 3, 4, 5:
		return r.int()
	}
	return r.of("a", "b", "c", "d", "e", "f", "aa", "ab", "Z", "ü")
}

func (r *random) int() string {
	switch r.IntN(20) {
	case 0:
		return r.of("9223372036854775807", "-9223372036854775808", "9223372036854775808", "1e3", "x", "", " 1", "01", "+1", "-0")
	case 1:
		return fmt.Sprint(r.IntN(1000000))
	}
	return fmt.Sprint(r.IntN(12) - 4)
}

func (r *random) float() string {
	return r.of("0", "1", "-1", "2", "3", "0.5", "1.5", "-2.25", "1e3", "inf", "-inf", "nan", "x", "3.14159", "1e17", "+inf", "100")
}

// words are n to m words.
func (r *random) words(n, m int) []string {
	out := make([]string, n+r.IntN(m-n+1))
	for i := range out {
		out[i] = r.word()
	}
	return out
}

// maybe is words, one time in n.
func (r *random) maybe(n int, words ...string) []string {
	if r.IntN(n) == 0 {
		return words
	}
	return nil
}

// cmd makes a command of strings and lists of strings.
func cmd(parts ...any) []string {
	var out []string
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			out = append(out, p)
		case []string:
			out = append(out, p...)
		}
	}
	return out
}
