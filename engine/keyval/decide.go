package keyval

import "github.com/lattice-log/lattice/engine/signedlog"

// prepareEvery is after how many bytes of entries room is made for more.
const prepareEvery = 16 << 10

// UpdateLater is UpdateQuietly for who brings the writes of many, and calls Decide
// before waiting: until then it may be that nobody commits.
func (db *DB) UpdateLater(f func(*Tx) error) (Ticket, error) { return db.update(f, true, false) }

// Decide commits, on the caller's goroutine, what t waits for: that saves two changes of
// goroutines. At level Fsync it takes a sync.
func (db *DB) Decide(t Ticket) {
	for !t.decided() && db.commitNext(false) {
	}
	if db.o.Durability == signedlog.Fsync && db.unprepared.Load() >= prepareEvery {
		db.kick() // Run does it while the caller answers
	}
}

// prepare makes room ahead in this incarnation's log.
func (db *DB) prepare() {
	if db.o.Durability != signedlog.Fsync || db.unprepared.Swap(0) == 0 {
		return
	}
	if l := db.logs.get(db.own); l != nil {
		l.Prepare()
	}
}
