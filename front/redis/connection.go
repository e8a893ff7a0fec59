package redis

import (
	"strings"

	"github.com/lattice-log/lattice/front/redis/resp"
)

func connectionCommands() family {
	return family{"connection", []command{
		{name: "ping", arity: -1, flags: "fast", tips: "request_policy:all_shards response_policy:all_succeeded", since: "1.0.0", about: "answers PONG, or what it is given",
			set: pubsubOK, do: ping},
		{name: "echo", arity: 2, flags: "fast", since: "1.0.0", about: "answers what it is given", do: echo},
		{name: "quit", arity: -1, flags: "noscript loading stale fast no_auth allow_busy", since: "1.0.0", about: "close the connection", set: pubsubOK, do: quit},
		{name: "select", arity: 2, flags: "loading stale fast", since: "1.0.0", about: "choose the database", do: selectDB,
			note: "Databases 0 to 15 are the store's maps of those names."},
		{name: "hello", arity: -1, flags: "noscript loading stale fast no_auth allow_busy", since: "6.0.0", about: "choose RESP2 or RESP3", do: hello},
		{name: "auth", arity: -2, flags: "noscript loading stale fast no_auth allow_busy", since: "1.0.0", about: "authenticate", do: auth,
			note: "There is one user, `default`, without a password."},
		{name: "reset", arity: 1, flags: "noscript loading stale fast no_auth allow_busy", since: "6.2.0", about: "as if newly connected", set: pubsubOK, do: reset},
		clientCommands(),
	}}
}

func ping(x *call) error {
	if len(x.args) > 2 {
		return errorf("ERR wrong number of arguments for '%s' command", x.cmd.fullName())
	}
	if !x.w.RESP3() && x.c.sess.subscribed() {
		x.w.Array(2)
		x.w.BulkString("pong")
		if len(x.args) == 2 {
			x.w.Bulk(x.args[1])
		} else {
			x.w.BulkString("")
		}
		return nil
	}
	if len(x.args) == 2 {
		x.w.Bulk(x.args[1])
	} else {
		x.w.Simple("PONG")
	}
	return nil
}

func echo(x *call) error {
	x.w.Bulk(x.args[1])
	return nil
}

func quit(x *call) error {
	x.c.ending = true
	return x.ok()
}

func selectDB(x *call) error {
	db, err := x.dbIndex(1)
	if err != nil {
		return err
	}
	x.c.sess.db = db
	x.c.show(func(s *shown) { s.db = db })
	return x.ok()
}

// dbIndex reads argument i as the number of a database.
func (x *call) dbIndex(i int) (int, error) {
	n, ok := resp.Int(x.args[i])
	switch {
	case !ok:
		return 0, errNotInteger
	case n < 0 || n >= Databases:
		return 0, errDBIndex
	}
	return int(n), nil
}

// hello chooses the protocol's version, and says who answers.
func hello(x *call) error {
	version := int64(0)
	if len(x.args) > 1 {
		n, ok := resp.Int(x.args[1])
		switch {
		case !ok:
			return replyError("ERR Protocol version is not an integer or out of range")
		case n < 2 || n > 3:
			return replyError("NOPROTO unsupported protocol version")
		}
		version = n
	}
	for i := 2; i < len(x.args); i++ {
		left := len(x.args) - 1 - i
		switch {
		case x.is(i, "auth") && left >= 2:
			if !allowed(x.args[i+1]) {
				return errWrongPass
			}
			i += 2
		case x.is(i, "setname") && left >= 1:
			if err := x.setName(x.args[i+1]); err != nil {
				return err
			}
			i++
		default:
			return errorf("ERR Syntax error in HELLO option '%s'", x.args[i])
		}
	}
	if version != 0 {
		x.c.setRESP3(version == 3)
	}
	proto := int64(2)
	if x.w.RESP3() {
		proto = 3
	}
	x.w.Map(7)
	for _, p := range [][2]string{{"server", "redis"}, {"version", Version}} {
		x.w.BulkString(p[0])
		x.w.BulkString(p[1])
	}
	x.w.BulkString("proto")
	x.w.Int(proto)
	x.w.BulkString("id")
	x.w.Int(x.c.id)
	for _, p := range [][2]string{{"mode", "standalone"}, {"role", "master"}} {
		x.w.BulkString(p[0])
		x.w.BulkString(p[1])
	}
	x.w.BulkString("modules")
	x.w.Array(0)
	return nil
}

// setRESP3 chooses the version of replies and messages from here on.
func (c *conn) setRESP3(on bool) {
	c.w.SetRESP3(on)
	c.pushRESP3.Store(on)
	c.show(func(s *shown) { s.resp3 = on })
}

const errWrongPass = replyError("WRONGPASS invalid username-password pair or user is disabled.")

// allowed reports whether a user may log in. The only one, default, has no
// password, so that Redis takes any.
func allowed(user []byte) bool { return string(user) == "default" }

func auth(x *call) error {
	switch {
	case len(x.args) > 3:
		return errSyntax
	case len(x.args) == 2:
		return replyError("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
	case !allowed(x.args[1]):
		return errWrongPass
	}
	return x.ok()
}

// reset makes the connection as it was in the beginning.
func reset(x *call) error {
	c := x.c
	c.discard()
	c.leave()
	c.absorbQueue()
	c.start()
	c.setRESP3(false)
	x.w.Simple("RESET")
	return nil
}

// setName names the connection; an empty name takes it away.
func (x *call) setName(name []byte) error {
	if strings.ContainsFunc(string(name), func(r rune) bool { return r < '!' || r > '~' }) {
		return replyError("ERR Client names cannot contain spaces, newlines or special characters.")
	}
	if len(name) > maxName {
		return errorf("ERR a client's name has at most %d bytes", maxName)
	}
	x.c.show(func(s *shown) { s.name = string(name) })
	return nil
}

// maxName bounds the names that a connection keeps, in bytes.
const maxName = 4 << 10
