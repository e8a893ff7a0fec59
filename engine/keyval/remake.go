package keyval

import "errors"

// remake folds everything again, once nothing is undecided and no round under way.
// db.mu is held.
func (db *DB) remake() {
	if db.broken != nil {
		db.turnAway(db.broken)
		return
	}
	if db.flying != nil {
		return // its end has us look again
	}
	doubt := db.takeBase()
	err := db.rebuild()
	if err == nil {
		err = db.find()
	}
	if err == nil {
		db.meet()
	}
	if err != nil {
		err = db.breaks(err)
	}
	db.turnAway(errors.Join(err, doubt))
	db.changing = false
	db.room.Broadcast()
}
