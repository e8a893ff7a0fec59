package redis

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lattice-log/lattice/front/redis/resp"
)

func commandCommand() command {
	return command{name: "command", arity: -1, flags: "loading stale", acl: "connection", tips: "nondeterministic_output_order", since: "2.8.13",
		about: "what is served", do: commandAll, sub: []command{
			{name: "count", arity: 2, flags: "loading stale", acl: "connection", since: "2.8.13", about: "how many commands", do: commandCount},
			{name: "info", arity: -2, flags: "loading stale", acl: "connection", tips: "nondeterministic_output_order", since: "2.8.13", about: "of commands, or all: arity, flags, keys", do: commandInfo,
				note: "Key specifications come without their notes."},
			{name: "docs", arity: -2, flags: "loading stale", acl: "connection", tips: "nondeterministic_output_order", since: "7.0.0", about: "of commands, or all: what they are for", do: commandDocs,
				note: "Summary, since and group; not arguments, complexity and history."},
			{name: "list", arity: -2, flags: "loading stale", acl: "connection", tips: "nondeterministic_output_order", since: "7.0.0", about: "names, all or filtered", do: commandList},
			{name: "getkeys", arity: -4, flags: "loading stale", acl: "connection", since: "2.8.13", about: "the keys of a whole command", do: commandGetKeys},
			{name: "getkeysandflags", arity: -4, flags: "loading stale", acl: "connection", since: "7.0.0", about: "the keys of a whole command, and what it does to them", do: commandGetKeysAndFlags},
			helpRow(),
		}}
}

func commandAll(x *call) error {
	x.w.Array(len(x.srv.table.rows))
	for _, c := range x.srv.table.rows {
		c.writeInfo(x.w)
	}
	return nil
}

func commandCount(x *call) error {
	x.w.Int(int64(len(x.srv.table.rows)))
	return nil
}

// byFullName finds "get" and "client|id".
func (t *table) byFullName(name []byte) *command {
	first, second, sub := strings.Cut(string(name), "|")
	c := t.find([]byte(first))
	if c == nil || !sub {
		return c
	}
	return findIn(c.byName, []byte(second))
}

func commandInfo(x *call) error {
	if len(x.args) == 2 {
		return commandAll(x)
	}
	x.w.Array(len(x.args) - 2)
	for _, name := range x.args[2:] {
		if c := x.srv.table.byFullName(name); c != nil {
			c.writeInfo(x.w)
		} else {
			x.w.Null()
		}
	}
	return nil
}

// writeInfo writes what COMMAND INFO says of a command.
func (c *command) writeInfo(w *resp.Writer) {
	w.Array(10)
	w.BulkString(c.fullName())
	w.Int(int64(c.arity))
	flags := strings.Fields(c.flags)
	w.Set(len(flags))
	for _, f := range flags {
		w.Simple(f)
	}
	for _, n := range c.legacy {
		w.Int(int64(n))
	}
	categories := c.categories()
	w.Set(len(categories))
	for _, a := range categories {
		w.Simple(a)
	}
	tips := strings.Fields(c.tips)
	w.Set(len(tips))
	for _, t := range tips {
		w.BulkString(t)
	}
	w.Set(len(c.keySpecs))
	for _, k := range c.keySpecs {
		k.write(w)
	}
	w.Set(len(c.sub))
	for i := range c.sub {
		c.sub[i].writeInfo(w)
	}
}

// write writes a key specification as a map of maps.
func (k keySpec) write(w *resp.Writer) {
	w.Map(3)
	w.BulkString("flags")
	w.Set(len(k.flags))
	for _, f := range k.flags {
		w.Simple(f)
	}
	part := func(name, typ string, pairs ...any) {
		w.BulkString(name)
		w.Map(2)
		w.BulkString("type")
		w.BulkString(typ)
		w.BulkString("spec")
		w.Map(len(pairs) / 2)
		for _, p := range pairs {
			switch p := p.(type) {
			case string:
				w.BulkString(p)
			case int:
				w.Int(int64(p))
			}
		}
	}
	switch {
	case k.unknown:
		part("begin_search", "unknown")
	case k.keyword != "":
		part("begin_search", "keyword", "keyword", k.keyword, "startfrom", k.from)
	default:
		part("begin_search", "index", "index", k.index)
	}
	switch {
	case k.unknown:
		part("find_keys", "unknown")
	case k.keynum:
		part("find_keys", "keynum", "keynumidx", k.last, "firstkey", k.firstKey, "keystep", k.step)
	default:
		part("find_keys", "range", "lastkey", k.last, "keystep", k.step, "limit", k.limit)
	}
}

func commandDocs(x *call) error {
	var found []*command
	if len(x.args) == 2 {
		found = x.srv.table.rows
	}
	for _, name := range x.args[2:] {
		if c := x.srv.table.byFullName(name); c != nil {
			found = append(found, c)
		}
	}
	x.w.Map(len(found))
	for _, c := range found {
		c.writeDocs(x.w)
	}
	return nil
}

func (c *command) writeDocs(w *resp.Writer) {
	w.BulkString(c.fullName())
	n := 3
	if len(c.sub) > 0 {
		n++
	}
	w.Map(n)
	for _, p := range [][2]string{{"summary", c.about}, {"since", c.since}, {"group", c.group}} {
		w.BulkString(p[0])
		w.BulkString(p[1])
	}
	if len(c.sub) > 0 {
		w.BulkString("subcommands")
		w.Map(len(c.sub))
		for i := range c.sub {
			c.sub[i].writeDocs(w)
		}
	}
}

func commandList(x *call) error {
	keep := func(*command) bool { return true }
	switch {
	case len(x.args) == 2:
	case len(x.args) == 5 && x.is(2, "filterby"):
		value := string(x.args[4])
		switch lower(x.args[3]) {
		case "module":
			keep = func(*command) bool { return false }
		case "aclcat":
			keep = func(c *command) bool { return slices.Contains(c.categories(), "@"+strings.ToLower(value)) }
		case "pattern":
			keep = func(c *command) bool { return globMatch(x.args[4], []byte(c.fullName()), true) }
		default:
			return errSyntax
		}
	default:
		return errSyntax
	}
	var names []string
	for _, c := range x.srv.table.rows {
		if keep(c) {
			names = append(names, c.name)
		}
		for i := range c.sub {
			if keep(&c.sub[i]) {
				names = append(names, c.sub[i].fullName())
			}
		}
	}
	x.w.Array(len(names))
	for _, n := range names {
		x.w.BulkString(n)
	}
	return nil
}

// keysOfArgs resolves the command in the arguments behind the subcommand.
func (x *call) keysOfArgs() (c *command, args [][]byte, at []int, err error) {
	args = x.args[2:]
	c, err = x.srv.table.resolve(args)
	switch {
	case c == nil:
		return nil, nil, nil, replyError("ERR Invalid command specified")
	case len(c.keySpecs) == 0:
		return nil, nil, nil, replyError("ERR The command has no key arguments")
	case err != nil:
		return nil, nil, nil, replyError("ERR Invalid number of arguments specified for command")
	}
	at, ok := c.keysOf(args)
	if !ok {
		return nil, nil, nil, replyError("ERR Invalid arguments specified for command")
	}
	return c, args, at, nil
}

func commandGetKeys(x *call) error {
	_, args, at, err := x.keysOfArgs()
	if err != nil {
		return err
	}
	x.w.Array(len(at))
	for _, i := range at {
		x.w.Bulk(args[i])
	}
	return nil
}

// flagsFor returns what a command does to a key, where its other arguments decide.
func (c *command) flagsFor(k keySpec, args [][]byte) []string {
	if !slices.Contains(k.flags, "variable_flags") {
		return k.flags
	}
	switch c.name {
	case "set":
		if !slices.ContainsFunc(args[3:], func(a []byte) bool { return fold(a, "get") }) {
			return []string{"OW", "update"}
		}
	case "bitfield":
		for i := 2; i < len(args); i++ {
			switch {
			case fold(args[i], "get"):
				i += 2
			case fold(args[i], "overflow"):
				i++
			default:
				return []string{"RW", "access", "update"}
			}
		}
		return []string{"RO", "access"}
	}
	return slices.DeleteFunc(slices.Clone(k.flags), func(f string) bool { return f == "variable_flags" })
}

func commandGetKeysAndFlags(x *call) error {
	c, args, _, err := x.keysOfArgs()
	if err != nil {
		return err
	}
	type found struct {
		key   []byte
		flags []string
	}
	var all []found
	for _, k := range c.keySpecs {
		if k.unknown || slices.Contains(k.flags, "not_key") {
			continue
		}
		at, ok := k.find(args)
		if !ok {
			return fmt.Errorf("keys of %s", c.fullName())
		}
		for _, i := range at {
			all = append(all, found{args[i], c.flagsFor(k, args)})
		}
	}
	if c.name == "sort" {
		for _, i := range sortStore(args) {
			all = append(all, found{args[i], []string{"OW", "update"}})
		}
	}
	x.w.Array(len(all))
	for _, f := range all {
		x.w.Array(2)
		x.w.Bulk(f.key)
		x.w.Set(len(f.flags))
		for _, flag := range f.flags {
			x.w.Simple(flag)
		}
	}
	return nil
}
