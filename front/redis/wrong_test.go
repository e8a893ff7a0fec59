package redis

import (
	"slices"
	"strings"
	"testing"

	"github.com/lattice-log/lattice/internal/testkit/realredis"
)

// TestSameAsRedisWrong sends every command that Redis 7.0 has too with too few and
// too many arguments, with no such subcommand, and to keys of every type with
// arguments that mean nothing: the errors are Redis's, word for word.
func TestSameAsRedisWrong(t *testing.T) {
	p := newPair(t, realredis.Start(t), "2", newEngineFixture(t, Config{}))
	seed := [][]string{
		{"SET", "string", "v"}, {"RPUSH", "list", "v"}, {"HSET", "hash", "f", "v"}, {"SADD", "set", "v"}, {"ZADD", "zset", "1", "v"},
	}
	for _, args := range seed {
		p.do(args...)
	}
	var try func(c *command, words []string)
	try = func(c *command, words []string) {
		for i := range c.sub {
			if s := &c.sub[i]; s.name != "help" && s.since != "7.2.0" {
				try(s, append(slices.Clone(words), s.name))
			}
		}
		if len(c.sub) > 0 {
			p.do(append(slices.Clone(words), "nosuch", "x")...)
			return
		}
		for n := len(words); n < 8; n++ {
			args := slices.Clone(words)
			for len(args) < n {
				args = append(args, "x")
			}
			if !c.arityOK(n) {
				p.do(args...)
			}
		}
		if len(c.keySpecs) == 0 || c.keySpecs[0].index != len(words) || c.set&write == 0 && c.set&readonly == 0 {
			return
		}
		for _, key := range []string{"string", "list", "hash", "set", "zset"} {
			args := append(slices.Clone(words), key)
			for !c.arityOK(len(args)) {
				args = append(args, "x")
			}
			p.do(args...)
			for _, again := range append([][]string{{"FLUSHALL"}}, seed...) {
				p.do(again...)
			}
		}
	}
	// What is refused here by name, or has other subcommands.
	other := strings.Fields("quit wait debug memory latency function script dump restore swapdb")
	for _, c := range newTable().rows {
		if c.group != "lattice" && !slices.Contains(other, c.name) {
			try(c, []string{c.name})
		}
	}
}
