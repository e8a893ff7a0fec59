package lattice

import (
	"errors"
	"strconv"
)

// Kind says what the caller of a failed operation can do about it. The list is
// closed: every front end maps each kind once, and a test of that front end
// fails when a kind has no mapping.
type Kind uint8

const (
	// Internal is a defect or an unclassified failure: report it.
	Internal Kind = iota
	// Invalid means the request can never work as it is: change it.
	Invalid
	// NotFound means the named thing does not exist (or not any more).
	NotFound
	// Exists means the named thing is there already.
	Exists
	// Unavailable means that the same request may work later: retry.
	Unavailable
	// NotLeader means that another node takes this write.
	NotLeader
	// Fenced means that the caller speaks for a term, epoch or generation that is over.
	Fenced
	// OutOfRange means that the offset lies below the start: the data expired.
	OutOfRange
	// NotYet means that the offset lies above what this replica holds.
	NotYet
	// Diverged means that the caller's position belongs to another history.
	Diverged
	// TooLarge means that a named limit was exceeded.
	TooLarge
	// Storage means that the disk refused the write (full, failing). Reads go on.
	Storage
	// Corrupt means that stored or received bytes do not match their checksum or proof.
	Corrupt
	// Denied means that the caller has no right to do this.
	Denied
	// Conflict means that the thing is in another state than the request needs.
	Conflict
	// Unsupported means that this node does not serve that.
	Unsupported

	kinds // the number of kinds; keep it last
)

var kindNames = [kinds]string{
	"internal", "invalid", "not found", "exists", "unavailable", "not leader", "fenced", "out of range",
	"not yet", "diverged", "too large", "storage", "corrupt", "denied", "conflict", "unsupported",
}

// String returns the kind's name in words.
func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return "kind " + strconv.Itoa(int(k))
}

// Kinds returns every kind, for tests that check that none is unmapped.
func Kinds() []Kind {
	all := make([]Kind, kinds)
	for i := range all {
		all[i] = Kind(i)
	}
	return all
}

// kindError carries a kind beside an error without changing its text.
type kindError struct {
	kind Kind
	err  error
}

func (e *kindError) Error() string { return e.err.Error() }
func (e *kindError) Unwrap() error { return e.err }

// E returns err with a kind. The text stays err's. E(k, nil) is nil.
func E(k Kind, err error) error {
	if err == nil {
		return nil
	}
	return &kindError{k, err}
}

// KindOf returns the kind of the outermost error in err's chain that has one,
// and Internal when none has.
func KindOf(err error) Kind {
	var e *kindError
	if errors.As(err, &e) {
		return e.kind
	}
	return Internal
}
