package redis

import (
	"bytes"
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/structs"
)

// replyError is an error of Redis's own: the text is the reply, with its code.
type replyError string

func (e replyError) Error() string { return string(e) }

// errorf formats a reply. Bytes of the client end at a zero byte, as they do for
// Redis.
func errorf(format string, args ...any) error {
	for i, a := range args {
		if b, ok := a.([]byte); ok {
			b, _, _ = bytes.Cut(b, []byte{0})
			args[i] = b
		}
	}
	return replyError(fmt.Sprintf(format, args...))
}

// Errors that many commands answer.
const (
	errSyntax      = replyError("ERR syntax error")
	errNotInteger  = replyError("ERR value is not an integer or out of range")
	errNotPositive = replyError("ERR value is out of range, must be positive")
	errNotFloat    = replyError("ERR value is not a valid float")
	errWrongType   = replyError("WRONGTYPE Operation against a key holding the wrong kind of value")
	errNoKey       = replyError("ERR no such key")
	errDBIndex     = replyError("ERR DB index is out of range")
	errSameObject  = replyError("ERR source and destination objects are the same")
)

// text returns the reply of an error, and whether it is one that a command
// answers: false for failures of the engine, which undo the transaction.
func text(err error) (string, bool) {
	var r replyError
	if errors.As(err, &r) {
		return string(r), true
	}
	for _, m := range []struct {
		err  error
		text replyError
	}{
		{structs.ErrWrongType, errWrongType},
		{structs.ErrNoKey, errNoKey},
		{structs.ErrNotInteger, errNotInteger},
		{structs.ErrNotFloat, errNotFloat},
		{structs.ErrOverflow, "ERR increment or decrement would overflow"},
		{structs.ErrNotANumber, "ERR increment would produce NaN or Infinity"},
		{structs.ErrIndex, "ERR index out of range"},
		{structs.ErrTooLong, "ERR string exceeds maximum allowed size (proto-max-bulk-len)"},
	} {
		if errors.Is(err, m.err) {
			return string(m.text), true
		}
	}
	return failure(err), false
}

// failure is the reply for an error of the engine, by what the client can do.
// MISCONF is Redis's code for a disk that takes no writes, which clients know.
func failure(err error) string {
	switch lattice.KindOf(err) {
	case lattice.Storage:
		return "MISCONF Errors writing to the disk: " + err.Error() + ". Writes are refused until it takes them again; see the node's log."
	case lattice.Unavailable:
		return "LOADING The node is not ready for this or is stopping: " + err.Error()
	case lattice.TooLarge:
		return "ERR too large for one entry: " + err.Error()
	case lattice.Denied:
		return "NOPERM " + err.Error()
	case lattice.NotLeader, lattice.Fenced:
		return "READONLY " + err.Error()
	case lattice.Corrupt:
		return "MISCONF Stored bytes are damaged: " + err.Error() + ". Run \"lattice verify\" on the data directory."
	case lattice.Invalid, lattice.NotFound, lattice.Exists, lattice.OutOfRange, lattice.NotYet, lattice.Diverged,
		lattice.Conflict, lattice.Unsupported, lattice.Internal:
		return "ERR " + err.Error()
	}
	return "ERR " + err.Error()
}
