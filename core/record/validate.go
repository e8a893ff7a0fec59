package record

import (
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
)

// Errors of single records.
var (
	// ErrNoKey means a record without a key where each must have one.
	ErrNoKey = lattice.E(lattice.Invalid, errors.New("record has no key, which a compacted topic needs"))
	// ErrTimestamp means a timestamp outside the bounds of the topic.
	ErrTimestamp = lattice.E(lattice.Invalid, errors.New("timestamp is outside the topic's bounds"))
)

// RecordError says what is wrong with one record of a batch. Index counts from
// 0; it is the batch_index of a Produce answer.
type RecordError struct {
	Index int
	Err   error
}

// Error names the record and the reason.
func (e *RecordError) Error() string { return fmt.Sprintf("record %d: %v", e.Index, e.Err) }

// Unwrap returns the reason.
func (e *RecordError) Unwrap() error { return e.Err }

// maxRecordErrors is how many records of one batch RecordErrors lists.
const maxRecordErrors = 100

// RecordErrors lists the records for which a batch is refused, in order. A
// batch that fails as a whole is no RecordErrors.
type RecordErrors struct {
	Errs  []*RecordError // the first of them, at most 100
	Total int
}

// Error names the first record and how many there are.
func (e *RecordErrors) Error() string {
	return fmt.Sprintf("%v (%d in all)", e.Errs[0], e.Total)
}

// Unwrap returns the errors of the single records.
func (e *RecordErrors) Unwrap() []error {
	errs := make([]error, len(e.Errs))
	for i, err := range e.Errs {
		errs[i] = err
	}
	return errs
}

func (e *RecordErrors) add(index int, err error) {
	e.Total++
	if len(e.Errs) < maxRecordErrors {
		e.Errs = append(e.Errs, &RecordError{index, err})
	}
}

// Rules are what a topic asks of records, beyond the format. The zero value
// asks nothing.
type Rules struct {
	// RequireKeys refuses records with a null key.
	RequireKeys bool
	// NotBefore and NotAfter bound timestamps, in milliseconds since 1970,
	// inclusive; 0 is no bound. Records without a timestamp (-1) pass, and all
	// those of a batch with append time, whose time is the node's to set.
	NotBefore, NotAfter int64
}

// Validate is Reader.Validate for one batch.
func Validate(batch []byte, l Limits, rules Rules) error {
	var r Reader
	return r.Validate(batch, l, rules)
}

// Validate opens batch, one whole batch as a producer sent it, and checks
// Header.CheckProduced, that it holds as many records as it says with the offset
// deltas 0 to n-1 and nothing after them, and each record against the rules. It
// does not check the CRC. A record that breaks the format fails at once with
// ErrMalformed; records that break the rules are listed in *RecordErrors. Either
// way errors.As finds the first *RecordError.
func (r *Reader) Validate(batch []byte, l Limits, rules Rules) error {
	if err := r.Open(batch, l); err != nil {
		return err
	}
	if err := r.h.CheckProduced(); err != nil {
		return err
	}
	if rules.NotAfter != 0 && !r.h.LogAppendTime() && r.h.MaxTimestamp > rules.NotAfter {
		// A false one would keep the batch, and its segment, past its time.
		return fmt.Errorf("%w: the greatest is %d, bound %d", ErrTimestamp, r.h.MaxTimestamp, rules.NotAfter)
	}
	var bad *RecordErrors // most batches need none
	var rec Record
	for i := 0; ; i++ {
		// That n deltas rise within 0 to n-1 makes them 0 to n-1: the Reader checks the
		// former, CheckProduced that there are as many as offsets.
		_, ok, err := r.next(&rec, false)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if err := rules.check(&rec, r.h.LogAppendTime()); err != nil {
			if bad == nil {
				bad = new(RecordErrors)
			}
			bad.add(i, err)
		}
	}
	if bad != nil {
		return bad
	}
	return nil
}

func (rules *Rules) check(rec *Record, appendTime bool) error {
	switch {
	case rules.RequireKeys && rec.Key == nil:
		return ErrNoKey
	case appendTime || rec.Timestamp == -1:
		return nil
	case rules.NotBefore != 0 && rec.Timestamp < rules.NotBefore:
		return fmt.Errorf("%w: %d is before %d", ErrTimestamp, rec.Timestamp, rules.NotBefore)
	case rules.NotAfter != 0 && rec.Timestamp > rules.NotAfter:
		return fmt.Errorf("%w: %d is after %d", ErrTimestamp, rec.Timestamp, rules.NotAfter)
	}
	return nil
}
