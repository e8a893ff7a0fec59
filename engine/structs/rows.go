// Package structs is the data types over a store's state: strings and counters,
// hashes, sets, sorted sets, lists, expiry, and what one does with keys as such.
// It turns what a user means ("pop the first element") into the few operations
// of core/state (put, end, expire), inside a transaction that somebody else runs.
// The Redis front end, the API and the command share it.
//
// # What it promises
//
// A write names exactly what it has seen: the heads that it replaces or ends. So
// on one node everything behaves as in Redis, and between nodes that had not met,
// nothing that a write had not seen is lost to it. Where that leaves a key with
// several heads, a read returns the winner and says that it is in conflict, and the
// next write, which has seen them all, leaves one.
//
// # What it does not do
//
// It has no clock, no lock and no I/O: Rows brings the transaction. Ranks,
// positions by number and random members are found by walking, so their cost
// grows with the collection; lookups, ends and ranges cost what they return.
package structs

import "github.com/lattice-log/lattice/core/state"

// Rows is one transaction's view of one store's state. Reads see the
// transaction's own writes. Not safe for concurrent use. What it returns is
// read-only, and good until the next write. An error means that the state cannot
// be read or written at all.
type Rows interface {
	// Now is the wall clock in milliseconds since 1970, fixed for the transaction.
	Now() int64
	// Writer is whose dots Put gives.
	Writer() state.Writer
	// Key returns what is known of a key without touching its rows; the zero Key
	// when nothing is stored.
	Key(m string, key []byte) (Key, error)
	// Row returns the row at a; nil when there is none.
	Row(a state.Address) (state.Row, error)
	// Scan yields the rows of one kind of a key by ascending sub, from the first
	// at or after from; with reverse descending, from the last at or before from,
	// where nil is the end. It stops when yield returns false. Nothing may be written during
	// the scan.
	Scan(m string, key []byte, k state.Kind, from []byte, reverse bool, yield func(sub []byte, r state.Row) bool) error
	// Scores yields a sorted set's members by ascending score, equal ones by
	// member, from the first at or after (score, member); with reverse descending, from the
	// last at or before. A nil member stands before, with reverse after, all of
	// its score.
	Scores(m string, key []byte, score state.Score, member []byte, reverse bool, yield func(s state.Score, member []byte) bool) error
	// Keys yields the keys of a map in ascending order, from the first at or after from.
	Keys(m string, from []byte, yield func(key []byte, k Key) bool) error
	// Len returns the number of keys stored in a map, expired ones included.
	Len(m string) (int64, error)

	// Put makes a head and returns its dot. supersedes must be ascending; neither it
	// nor what the address and payload hold is kept.
	Put(a state.Address, p state.Payload, supersedes []state.Dot, under state.Dot) (state.Dot, error)
	// End ends what cites cover in a scope; see state.End for which fields of a count.
	End(a state.Address, s state.Scope, cites state.Cites) error
	// Expire makes the head of an expiry.
	Expire(m string, key []byte, e state.Expiring, supersedes []state.Dot) error
}

// Key is what is kept of a key beside its rows.
type Key struct {
	// Counts is the number of rows, by kind.
	Counts [state.Kinds]int64
	// Seen covers every head of every row, the expiry's included.
	Seen state.Cites
	// Expiry is the row of the expiry.
	Expiry state.Row
	// Version changes whenever the key does, also when it goes and comes again. It
	// is this node's own.
	Version uint64
}
