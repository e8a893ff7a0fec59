package redis

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// command is one row of the table: what Redis says of a command, and what
// executes it.
type command struct {
	name  string // lower case; of a subcommand the part behind the bar
	arity int    // with the name; negative: at least
	flags string // Redis's words, as COMMAND INFO shows them
	// specs says where keys are, as COMMAND INFO shows it: flags, then @ and where
	// to begin (an index, or a word and where to look for it, or ?), then what to
	// find: "last,step,limit", or "n" and "number's place,first,step", or ?.
	specs string
	acl   string // categories beyond those of flags and group, without @
	tips  string
	since string
	about string // for people, in a few words
	note  string // what differs from Redis, for the coverage page

	// do executes the command. A replyError, or an error of engine/structs that has a Redis text, is
	// the reply; any other error is a failure of the engine.
	do func(x *call) error
	// sub holds the subcommands, for a container.
	sub []command

	parent   *command
	group    string
	set      flagSet
	keySpecs []keySpec
	legacy   [3]int // first key, last key, step
	byName   map[string]*command
	stats    *commandStats
}

// flagSet is what execution must know of a command.
type flagSet uint32

const (
	write    flagSet = 1 << iota // changes state: needs an Update
	readonly                     // reads state: needs a View
	blocks                       // may wait: executed by itself
	noMulti                      // not inside MULTI
	pubsubOK                     // allowed to RESP2 subscribers
	alone                        // a transaction or a state change by itself
	noSlowlog
	confirms // replies by messages, which CLIENT REPLY does not silence
)

// commandStats counts what a server executed of a command.
type commandStats struct {
	calls, micros, rejected, failed atomic.Int64
}

// fullName is what INFO and errors call a command.
func (c *command) fullName() string {
	if c.parent != nil {
		return c.parent.name + "|" + c.name
	}
	return c.name
}

// arityOK reports whether a number of arguments, name included, is right.
func (c *command) arityOK(n int) bool { return n == c.arity || c.arity < 0 && n >= -c.arity }

// has reports a flag of Redis's.
func (c *command) has(flag string) bool {
	for f := range strings.FieldsSeq(c.flags) {
		if f == flag {
			return true
		}
	}
	return false
}

// state reports whether the command runs in a transaction.
func (c *command) state() bool { return c.set&(write|readonly) != 0 }

// prepare fills in what follows from the row.
func (c *command) prepare(group string, parent *command) {
	c.group, c.parent, c.stats = group, parent, new(commandStats)
	for flag, bit := range map[string]flagSet{
		"write": write, "readonly": readonly, "blocking": blocks, "no_multi": noMulti, "skip_slowlog": noSlowlog,
	} {
		if c.has(flag) {
			c.set |= bit
		}
	}
	for s := range strings.SplitSeq(c.specs, ";") {
		if s = strings.TrimSpace(s); s != "" {
			c.keySpecs = append(c.keySpecs, parseKeySpec(s))
		}
	}
	c.legacy = legacyRange(c.keySpecs)
	if len(c.sub) > 0 {
		c.byName = map[string]*command{}
		for i := range c.sub {
			s := &c.sub[i]
			s.prepare(group, c)
			c.byName[s.name] = s
		}
	}
}

// table is every command that a server serves.
type table struct {
	rows   []*command // in order of families
	byName map[string]*command
}

// family is the rows of one file.
type family struct {
	group string
	rows  []command
}

// newTable returns the table. It is made for each server, since its rows carry
// the server's counters.
func newTable() *table {
	t := &table{byName: map[string]*command{}}
	for _, f := range families() {
		for i := range f.rows {
			c := &f.rows[i]
			c.prepare(f.group, nil)
			if t.byName[c.name] != nil {
				panic(fmt.Sprintf("command %s stands twice in the table", c.name))
			}
			t.rows = append(t.rows, c)
			t.byName[c.name] = c
		}
	}
	return t
}

// longestName bounds the names that are looked up.
const longestName = 32

// find returns a command by name in any case, nil when it is not served.
func (t *table) find(name []byte) *command { return findIn(t.byName, name) }

func findIn(m map[string]*command, name []byte) *command {
	var low [longestName]byte
	if len(name) > longestName {
		return nil
	}
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		low[i] = c
	}
	return m[string(low[:len(name)])]
}

// resolve returns the command of args, a container's subcommand included. The
// error is the reply of Redis for what it does not know or cannot accept.
func (t *table) resolve(args [][]byte) (*command, error) {
	c := t.find(args[0])
	if c == nil {
		return nil, unknownCommand(args)
	}
	if c.byName != nil && len(args) > 1 {
		s := findIn(c.byName, args[1])
		if s == nil {
			return nil, errorf("ERR unknown subcommand '%.128s'. Try %s HELP.", args[1], strings.ToUpper(c.name))
		}
		c = s
	}
	if !c.arityOK(len(args)) {
		c.stats.rejected.Add(1)
		return c, errorf("ERR wrong number of arguments for '%s' command", c.fullName())
	}
	return c, nil
}

// unknownCommand is Redis's answer to a command that is not served.
func unknownCommand(args [][]byte) error {
	var b []byte
	for _, a := range args[1:] {
		room := 128 - len(b)
		if room <= 0 {
			break
		}
		a, _, _ = bytes.Cut(a, []byte{0})
		b = append(b, '\'')
		b = append(b, a[:min(len(a), room)]...)
		b = append(b, "' "...)
	}
	return errorf("ERR unknown command '%.128s', with args beginning with: %s", args[0], b)
}

// categories returns the ACL categories of a command, in Redis's order.
func (c *command) categories() []string {
	is := map[string]bool{}
	for a := range strings.FieldsSeq(c.acl) {
		is[a] = true
	}
	switch c.group {
	case "generic", "server":
	case "sorted-set":
		is["sortedset"] = true
	case "transactions":
		is["transaction"] = true
	case "pubsub": // by flag
	default:
		if len(c.sub) == 0 {
			is[c.group] = true
		}
	}
	for flag, category := range map[string]string{
		"write": "write", "readonly": "read", "admin": "admin", "pubsub": "pubsub", "fast": "fast", "blocking": "blocking",
	} {
		if c.has(flag) {
			is[category] = true
		}
	}
	if is["admin"] {
		is["dangerous"] = true
	}
	if !is["fast"] {
		is["slow"] = true
	}
	var out []string
	for _, name := range aclCategories() {
		if is[name] {
			out = append(out, "@"+name)
		}
	}
	return out
}

// aclCategories are Redis's categories, in its order.
func aclCategories() []string {
	return []string{"keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap", "hyperloglog", "geo",
		"stream", "pubsub", "admin", "fast", "slow", "blocking", "dangerous", "connection", "transaction", "scripting"}
}

// keySpec says where a command's keys are.
type keySpec struct {
	flags   []string
	index   int    // where to begin
	keyword string // or: the word behind which to begin,
	from    int    // looked for from here on; negative: backwards from the end

	unknown  bool // begin or find is not known
	keynum   bool // a number says how many keys there are
	last     int  // range: relative to the begin, negative from the end; keynum: place of the number
	step     int
	limit    int
	firstKey int // keynum: relative to the begin
}

func parseKeySpec(s string) keySpec {
	var k keySpec
	flags, where, _ := strings.Cut(s, "@")
	k.flags = strings.Fields(flags)
	begin, find, _ := strings.Cut(where, " ")
	if begin == "?" || find == "?" {
		k.unknown = true
		return k
	}
	if word, from, ok := strings.Cut(begin, ":"); ok {
		k.keyword, k.from = word, atoi(from)
	} else {
		k.index = atoi(begin)
	}
	find, k.keynum = strings.CutPrefix(find, "n")
	var n [3]int
	for i, f := range strings.Split(find, ",") {
		n[i] = atoi(f)
	}
	k.last, k.step, k.limit = n[0], n[1], n[2]
	if k.keynum {
		k.firstKey, k.step, k.limit = n[1], n[2], 0
	}
	return k
}

// atoi reads a number of the table.
func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic("command table: " + err.Error())
	}
	return n
}

// legacyRange is the one range of keys that old clients know of, when the specs
// form one: first, last, step.
func legacyRange(specs []keySpec) (r [3]int) {
	for i, k := range specs {
		if k.unknown || k.keynum || k.keyword != "" {
			return r
		}
		last := k.last
		if last >= 0 {
			last += k.index
		}
		switch {
		case i == 0:
			r = [3]int{k.index, last, k.step}
		case k.step != 1 || r[1] < 0 || k.index != r[1]+1:
			return r
		default:
			r[1] = last
		}
	}
	return r
}

// keysOf returns where the keys of args are, by the command's specs. ok is false
// when args do not fit them.
func (c *command) keysOf(args [][]byte) (at []int, ok bool) {
	for _, k := range c.keySpecs {
		if k.unknown || slices.Contains(k.flags, "not_key") {
			continue
		}
		found, good := k.find(args)
		if !good {
			return nil, false
		}
		at = append(at, found...)
	}
	if c.name == "sort" {
		at = append(at, sortStore(args)...)
	}
	return at, true
}

// sortStore returns where SORT's arguments name the key that it writes, which no
// specification can tell.
func sortStore(args [][]byte) (at []int) {
	for i := 2; i < len(args); i++ {
		switch {
		case fold(args[i], "limit"):
			i += 2
		case fold(args[i], "get"), fold(args[i], "by"):
			i++
		case fold(args[i], "store") && i+1 < len(args):
			i++
			at = []int{i} // the last one counts
		}
	}
	return at
}

// find returns the places that one spec names.
func (k keySpec) find(args [][]byte) ([]int, bool) {
	first := k.index
	if k.keyword != "" {
		i := slices.IndexFunc(args, func(a []byte) bool { return strings.EqualFold(string(a), k.keyword) })
		if i < 0 {
			return nil, true
		}
		first = i + 1
	}
	last, step := first+k.last, k.step
	switch {
	case k.keynum:
		if first+k.last >= len(args) {
			return nil, false
		}
		n, err := strconv.Atoi(string(args[first+k.last]))
		if err != nil || n < 0 || n > len(args) {
			return nil, false
		}
		first += k.firstKey
		last = first + (n-1)*step
	case k.last < 0:
		last = len(args) + k.last
		if k.limit > 1 {
			last = first + (len(args)-first)/k.limit + k.last
		}
	}
	if last >= len(args) {
		return nil, false
	}
	var at []int
	for i := first; i <= last; i += step {
		at = append(at, i)
	}
	return at, true
}
