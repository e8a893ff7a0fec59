package sqldb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	lattice "github.com/lattice-log/lattice"
)

// ErrUnknown means that the connection broke while a commit was under way: it
// may have happened, or not. Ask by a key of your own before doing it again.
var ErrUnknown = lattice.E(lattice.Unavailable, errors.New("the connection broke in the commit; whether it happened is unknown"))

// Class says what can be done about a database's error.
type Class uint8

const (
	// ClassOther is no error of the database, or one that is not classified.
	ClassOther Class = iota
	// ClassTransient passes: connection, shutdown, deadlock, lock, timeout, a full
	// disk. The same transaction may work later.
	ClassTransient
	// ClassData: a value does not fit its column. This row can never work.
	ClassData
	// ClassConstraint: the row breaks a constraint.
	ClassConstraint
	// ClassSchema: a table, column or right is missing. No row can work until
	// somebody mends that.
	ClassSchema
)

var classNames = [...]string{"other", "transient", "data", "constraint", "schema"}

// String returns the class's name.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return fmt.Sprintf("class %d", c)
}

// Classify says what can be done about err. A context that ended is transient.
func Classify(err error) Class {
	var pg *pgconn.PgError
	var lite *sqlite.Error
	var conn *pgconn.ConnectError
	var network net.Error
	switch {
	case err == nil:
		return ClassOther
	case errors.As(err, &pg):
		return classifyState(pg.Code)
	case errors.As(err, &lite):
		return classifySQLite(lite)
	case errors.Is(err, ErrUnknown), errors.As(err, &conn), errors.As(err, &network), pgconn.Timeout(err), pgconn.SafeToRetry(err),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ENOENT),
		lattice.KindOf(err) == lattice.Unavailable, lattice.KindOf(err) == lattice.Storage:
		return ClassTransient
	}
	return ClassOther
}

// classifyState reads a SQLSTATE: PostgreSQL, appendix A.
func classifyState(code string) Class {
	switch {
	case code == "":
		return ClassOther
	case strings.HasPrefix(code, "08"), // connection
		strings.HasPrefix(code, "40"), // rollback: serialization_failure, deadlock_detected
		strings.HasPrefix(code, "53"), // resources: disk full, too many connections
		strings.HasPrefix(code, "57"), // intervention: shutdown, cancelled, cannot connect now
		strings.HasPrefix(code, "58"), // system: I/O
		code == "55P03",               // lock_not_available
		code == "25006",               // read_only_sql_transaction: a standby, until it leads
		code == "25P03",               // idle_in_transaction_session_timeout
		code == "0A000":               // feature_not_supported: "cached plan must not change result type"
		return ClassTransient
	case strings.HasPrefix(code, "22"): // data
		return ClassData
	case strings.HasPrefix(code, "23"): // integrity
		return ClassConstraint
	case strings.HasPrefix(code, "42"), strings.HasPrefix(code, "3D"), strings.HasPrefix(code, "3F"): // names, types, rights
		return ClassSchema
	}
	return ClassOther
}

func classifySQLite(err *sqlite.Error) Class {
	switch err.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM,
		sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL:
		return ClassTransient
	case sqlite3.SQLITE_CONSTRAINT:
		// A STRICT table refuses a value of another type as a constraint.
		if err.Code() == sqlite3.SQLITE_CONSTRAINT_DATATYPE {
			return ClassData
		}
		return ClassConstraint
	case sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_RANGE:
		return ClassData
	case sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return ClassSchema
	case sqlite3.SQLITE_ERROR:
		// SQLite gives one code to all that its parser finds.
		for _, says := range []string{"no such table", "no such column", "has no column named", "no such index"} {
			if strings.Contains(err.Error(), says) {
				return ClassSchema
			}
		}
		for _, says := range []string{"malformed JSON", "integer overflow"} {
			if strings.Contains(err.Error(), says) {
				return ClassData
			}
		}
	}
	return ClassOther
}

// kinded gives a database's error the kind that says what the caller can do. An
// error that has a kind keeps it.
func kinded(err error) error {
	if err == nil || lattice.KindOf(err) != lattice.Internal {
		return err
	}
	switch Classify(err) {
	case ClassTransient:
		return lattice.E(lattice.Unavailable, err)
	case ClassData:
		return lattice.E(lattice.Invalid, err)
	case ClassConstraint:
		return lattice.E(lattice.Conflict, err)
	case ClassSchema:
		return lattice.E(lattice.Unsupported, err)
	}
	return err
}

// lost reports whether a transaction met another and is worth doing again at once.
func lost(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == "40001" || pg.Code == "40P01" || pg.Code == "55P03"
	}
	var lite *sqlite.Error
	return errors.As(err, &lite) && lite.Code()&0xff == sqlite3.SQLITE_BUSY
}
