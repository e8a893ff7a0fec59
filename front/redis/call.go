package redis

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/front/redis/resp"
)

// call is one command under execution. Handlers get it; it is reused, and good
// until they return.
type call struct {
	srv  *Server
	c    *conn
	cmd  *command
	args [][]byte // with the command's name; good until the handler returns
	w    *resp.Writer

	rows   structs.Rows // the transaction; nil for commands without state
	db     int          // of the command
	now    time.Time    // when the command began
	fx     *effects
	inExec bool // as part of EXEC: nothing blocks
	own    structs.Map
}

// effects are what a transaction means to others, once it is certain that it
// takes place.
type effects struct {
	events  []event
	touched []dbKey // keys that changed, for those who wait for them
	served  []*waiter
	changes int64
	out     *outgoing // owns events, once it is there
}

func (f *effects) reset() {
	if f.out != nil {
		f.events, f.out = nil, nil
	}
	clear(f.events)
	clear(f.touched)
	clear(f.served)
	f.events, f.touched, f.served, f.changes = f.events[:0], f.touched[:0], f.served[:0], 0
}

// dbKey is a key of a database.
type dbKey struct {
	db  int
	key string
}

// mapNames are the names of the maps that are databases.
var mapNames = [Databases]string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"}

// m returns the database's map in the transaction.
func (x *call) m() *structs.Map {
	x.own.Become(x.rows, mapNames[x.db])
	return &x.own
}

// in returns a database's map in the transaction.
func (x *call) in(db int) *structs.Map { return structs.In(x.rows, mapNames[db]) }

// ok replies OK.
func (x *call) ok() error {
	x.w.Simple("OK")
	return nil
}

// int reads argument i as an integer.
func (x *call) int(i int) (int64, error) {
	n, ok := resp.Int(x.args[i])
	if !ok {
		return 0, errNotInteger
	}
	return n, nil
}

// is reports whether argument i is a word, in any case.
func (x *call) is(i int, word string) bool { return fold(x.args[i], word) }

// fold reports whether b is word, which is ASCII, in any case.
func fold(b []byte, word string) bool {
	return len(b) == len(word) && strings.EqualFold(string(b), word)
}

// lower returns an argument in lower case.
func lower(b []byte) string { return string(bytes.ToLower(b)) }

// touch says that the command changed a key.
func (x *call) touch(key []byte) { x.touchIn(x.db, key) }

func (x *call) touchIn(db int, key []byte) {
	x.fx.changes++
	if x.srv.blocked.any.Load() > 0 {
		x.fx.touched = append(x.fx.touched, dbKey{db, string(key)})
	}
}

// changed says that the command changed a key, and how: an event of that class.
func (x *call) changed(class notifyClass, event string, key []byte) {
	x.touch(key)
	x.notify(class, event, key)
}

// appendInt is strconv's.
func appendInt(b []byte, n int64) []byte { return strconv.AppendInt(b, n, 10) }
