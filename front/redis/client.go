package redis

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lattice-log/lattice/front/redis/resp"
)

func clientCommands() command {
	return command{name: "client", arity: -2, since: "2.4.0", about: "connections", sub: []command{
		{name: "id", arity: 2, flags: "noscript loading stale", since: "5.0.0", about: "this connection's number", do: clientID},
		{name: "info", arity: 2, flags: "noscript loading stale", tips: "nondeterministic_output", since: "6.2.0", about: "this connection", do: clientInfo},
		{name: "list", arity: -2, flags: "admin noscript loading stale", tips: "nondeterministic_output", since: "2.4.0", about: "connections, of a type or with ids", do: clientList,
			note: "Fields that nothing stands behind here are left out: events, argv-mem, rbs, rbp."},
		{name: "getname", arity: 2, flags: "noscript loading stale", since: "2.6.9", about: "this connection's name", do: clientGetName},
		{name: "setname", arity: 3, flags: "noscript loading stale", since: "2.6.9", about: "name this connection", do: clientSetName},
		{name: "setinfo", arity: 4, flags: "noscript loading stale", tips: "request_policy:all_nodes response_policy:all_succeeded", since: "7.2.0", about: "name the client library", do: clientSetInfo,
			note: "Of Redis 7.2; CLIENT LIST shows it."},
		{name: "kill", arity: -3, flags: "admin noscript loading stale", since: "2.4.0", about: "close connections", do: clientKill},
		{name: "reply", arity: 3, flags: "noscript loading stale", since: "3.2.0", about: "whether this connection gets replies", do: clientReply},
		{name: "unblock", arity: -3, flags: "admin noscript loading stale", since: "5.0.0", about: "end a connection's wait", do: clientUnblock},
		{name: "pause", arity: -3, flags: "admin noscript loading stale", since: "2.9.50", about: "hold commands back for a while", do: clientPause},
		{name: "unpause", arity: 2, flags: "admin noscript loading stale", since: "6.2.0", about: "end a pause", do: clientUnpause},
		{name: "no-evict", arity: 3, flags: "admin noscript loading stale", since: "7.0.0", about: "never close this connection to save memory", do: clientNoEvict,
			note: "True of every connection: none is closed to save memory."},
		{name: "no-touch", arity: 3, flags: "noscript loading stale", since: "7.2.0", about: "leave access times of keys alone", do: clientNoTouch,
			note: "Of Redis 7.2. True of every connection: there are no access times."},
		{name: "getredir", arity: 2, flags: "noscript loading stale", since: "6.0.0", about: "where tracking messages go: -1", do: clientGetRedir},
		{name: "tracking", arity: -3, flags: "noscript loading stale", since: "6.0.0", about: "refused: client-side caching is not served", do: clientTracking,
			note: "OFF is answered OK; ON is refused by name."},
		helpRow(),
	}}
}

// sortedByID returns connections, oldest first.
func sortedByID(m map[int64]*conn) []*conn {
	return slices.SortedFunc(maps.Values(m), func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
}

func clientID(x *call) error {
	x.w.Int(x.c.id)
	return nil
}

// describe is a line of CLIENT LIST.
func (c *conn) describe() string {
	now := time.Now()
	c.mu.Lock()
	s, omem, closed := c.shown, c.queue.bytes, c.closed
	c.mu.Unlock()
	flags := ""
	for _, f := range []struct {
		on     bool
		letter string
	}{
		{s.subs+s.patterns+s.shard > 0, "P"}, {s.multi >= 0, "x"}, {c.blockedOn.Load(), "b"}, {closed, "A"}, {s.noEvict, "e"},
	} {
		if f.on {
			flags += f.letter
		}
	}
	last := "NULL"
	if cmd := c.last.Load(); cmd != nil {
		last = cmd.fullName()
	}
	version := 2
	if s.resp3 {
		version = 3
	}
	held, unread := c.inBytes.Load(), c.unread.Load()
	return fmt.Sprintf("id=%d addr=%s laddr=%s name=%s age=%d idle=%d flags=%s db=%d sub=%d psub=%d ssub=%d multi=%d watch=%d qbuf=%d qbuf-free=%d obl=%d omem=%d tot-mem=%d cmd=%s user=default redir=-1 resp=%d lib-name=%s lib-ver=%s",
		c.id, c.peer, c.local, s.name, int64(now.Sub(c.since).Seconds()), (now.UnixMilli()-c.lastAt.Load())/1000, or(flags, "N"),
		s.db, s.subs, s.patterns, s.shard, s.multi, s.watching, unread, max(0, held-unread), c.outBytes.Load(), omem,
		held+c.outBytes.Load()+int64(omem), last, version, s.libName, s.libVer)
}

func clientInfo(x *call) error {
	x.w.Verbatim("txt", x.c.describe()+"\n")
	return nil
}

// clientType is what CLIENT LIST and KILL call the type of a connection.
func (c *conn) clientType() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shown.subs+c.shown.patterns+c.shown.shard > 0 {
		return "pubsub"
	}
	return "normal"
}

// readType reads the name of a type.
func readType(b []byte) (string, error) {
	switch t := lower(b); t {
	case "normal", "pubsub", "master", "replica":
		return t, nil
	case "slave":
		return "replica", nil
	}
	return "", errorf("ERR Unknown client type '%s'", b)
}

func clientList(x *call) error {
	var b strings.Builder
	switch {
	case len(x.args) == 4 && x.is(2, "type"):
		t, err := readType(x.args[3])
		if err != nil {
			return err
		}
		for _, c := range x.srv.clients() {
			if c.clientType() == t {
				b.WriteString(c.describe() + "\n")
			}
		}
	case len(x.args) > 3 && x.is(2, "id"):
		for _, a := range x.args[3:] {
			id, ok := resp.Int(a)
			if !ok {
				return replyError("ERR Invalid client ID")
			}
			if c := x.srv.client(id); c != nil {
				b.WriteString(c.describe() + "\n")
			}
		}
	case len(x.args) != 2:
		return errSyntax
	default:
		for _, c := range x.srv.clients() {
			b.WriteString(c.describe() + "\n")
		}
	}
	x.w.Verbatim("txt", b.String())
	return nil
}

func clientGetName(x *call) error {
	x.c.mu.Lock()
	name := x.c.shown.name
	x.c.mu.Unlock()
	if name == "" {
		x.w.Null()
		return nil
	}
	x.w.BulkString(name)
	return nil
}

func clientSetName(x *call) error {
	if err := x.setName(x.args[2]); err != nil {
		return err
	}
	return x.ok()
}

func clientSetInfo(x *call) error {
	value := string(x.args[3])
	if strings.ContainsFunc(value, func(r rune) bool { return r < '!' || r > '~' }) || len(value) > maxName {
		return errorf("ERR %s cannot contain spaces, newlines or special characters.", lower(x.args[2]))
	}
	switch lower(x.args[2]) {
	case "lib-name":
		x.c.show(func(s *shown) { s.libName = value })
	case "lib-ver":
		x.c.show(func(s *shown) { s.libVer = value })
	default:
		return errorf("ERR Unrecognized option '%s'", x.args[2])
	}
	return x.ok()
}

// killing says which connections CLIENT KILL means.
type killing struct {
	addr, laddr, typ string
	id               int64
	skipMe           bool
}

func (k killing) means(c, me *conn) bool {
	return (k.addr == "" || c.peer == k.addr) && (k.laddr == "" || c.local.String() == k.laddr) &&
		(k.typ == "" || c.clientType() == k.typ) && (k.id == 0 || c.id == k.id) && (c != me || !k.skipMe)
}

func clientKill(x *call) error {
	k := killing{skipMe: true}
	old := len(x.args) == 3
	if old {
		k = killing{addr: string(x.args[2])}
	} else if err := k.read(x); err != nil {
		return err
	}
	killed := 0
	for _, c := range x.srv.clients() {
		if !k.means(c, x.c) {
			continue
		}
		killed++
		if c == x.c {
			c.ending = true // after the reply
		} else {
			c.close()
		}
	}
	switch {
	case old && killed == 0:
		return replyError("ERR No such client")
	case old:
		return x.ok()
	}
	x.w.Int(int64(killed))
	return nil
}

// read reads the options of CLIENT KILL.
func (k *killing) read(x *call) (err error) {
	for i := 2; i < len(x.args); i += 2 {
		if i+1 == len(x.args) {
			return errSyntax
		}
		value := x.args[i+1]
		switch lower(x.args[i]) {
		case "id":
			n, ok := resp.Int(value)
			if !ok || n < 1 {
				return replyError("ERR client-id should be greater than 0")
			}
			k.id = n
		case "type":
			if k.typ, err = readType(value); err != nil {
				return err
			}
		case "addr":
			k.addr = string(value)
		case "laddr":
			k.laddr = string(value)
		case "user":
			if string(value) != "default" {
				return errorf("ERR No such user '%s'", value)
			}
		case "skipme":
			switch lower(value) {
			case "yes":
				k.skipMe = true
			case "no":
				k.skipMe = false
			default:
				return errSyntax
			}
		default:
			return errSyntax
		}
	}
	return nil
}

func clientReply(x *call) error {
	s := &x.c.sess
	switch lower(x.args[2]) {
	case "on":
		s.replies = replyOn
		return x.ok()
	case "off":
		s.replies = replyOff
	case "skip":
		if s.replies != replyOff {
			s.replies = replySkipNext
		}
	default:
		return errSyntax
	}
	return nil
}

func clientUnblock(x *call) error {
	reply := ""
	if len(x.args) == 4 {
		switch lower(x.args[3]) {
		case "timeout":
		case "error":
			reply = "UNBLOCKED client unblocked via CLIENT UNBLOCK"
		default:
			return replyError("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
		}
	} else if len(x.args) > 4 {
		return x.subSyntax()
	}
	id, err := x.int(2)
	if err != nil {
		return err
	}
	if x.srv.blocked.unblock(id, reply) {
		x.w.Int(1)
	} else {
		x.w.Int(0)
	}
	return nil
}

func clientPause(x *call) error {
	all := true
	if len(x.args) == 4 {
		switch lower(x.args[3]) {
		case "write":
			all = false
		case "all":
		default:
			return replyError("ERR CLIENT PAUSE mode must be WRITE or ALL")
		}
	} else if len(x.args) > 4 {
		return x.subSyntax()
	}
	ms, ok := resp.Int(x.args[2])
	switch {
	case !ok:
		return replyError("ERR timeout is not an integer or out of range")
	case ms < 0:
		return replyError("ERR timeout is negative")
	}
	x.srv.pause.begin(time.Now().Add(time.Duration(min(ms, 1<<40))*time.Millisecond), all)
	return x.ok()
}

func clientUnpause(x *call) error {
	x.srv.pause.end()
	return x.ok()
}

// onOff reads ON or OFF.
func (x *call) onOff(i int) (bool, error) {
	switch lower(x.args[i]) {
	case "on":
		return true, nil
	case "off":
		return false, nil
	}
	return false, errSyntax
}

func clientNoEvict(x *call) error {
	on, err := x.onOff(2)
	if err != nil {
		return err
	}
	x.c.show(func(s *shown) { s.noEvict = on })
	return x.ok()
}

func clientNoTouch(x *call) error {
	on, err := x.onOff(2)
	if err != nil {
		return err
	}
	x.c.show(func(s *shown) { s.noTouch = on })
	return x.ok()
}

func clientGetRedir(x *call) error {
	x.w.Int(-1)
	return nil
}

func clientTracking(x *call) error {
	on, err := x.onOff(2)
	if err != nil {
		return err
	}
	if on {
		return replyError("ERR CLIENT TRACKING is not served: the node does not remember what a client has read")
	}
	return x.ok()
}

// subSyntax is Redis's answer to a subcommand with a wrong number of arguments.
func (x *call) subSyntax() error {
	return errorf("ERR unknown subcommand or wrong number of arguments for '%.128s'. Try %s HELP.", x.args[1], strings.ToUpper(x.cmd.parent.name))
}

// helpRow is the subcommand HELP of a container.
func helpRow() command {
	return command{name: "help", arity: 2, flags: "loading stale", since: "2.0.0", about: "this list", do: func(x *call) error {
		p := x.cmd.parent
		x.w.Array(1 + 2*len(p.sub))
		x.w.Simple(strings.ToUpper(p.name) + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")
		for i := range p.sub {
			x.w.Simple(strings.ToUpper(p.sub[i].name))
			x.w.Simple("    " + p.sub[i].about)
		}
		return nil
	}}
}
