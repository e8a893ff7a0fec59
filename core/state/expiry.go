package state

import (
	"encoding/binary"
	"fmt"
)

// Expiring is what the head of an expiry says: at At, in milliseconds since 1970
// by the reader's wall clock, the heads that Cover covers are gone. A write that
// had not seen the expiry is not covered: it lives on.
//
// Cover is what the author had seen of the key. A later put that names the
// expiry as the one it stands under raises the cover to itself.
type Expiring struct {
	At    int64
	Cover Cites
}

// Payload encodes e.
func (e Expiring) Payload() Payload {
	b := binary.BigEndian.AppendUint64(nil, uint64(e.At))
	return Payload{Bytes: appendCites(b, e.Cover, Writer{})}
}

// ParseExpiring reads the payload of an expiry's head. Wraps ErrMalformed.
func ParseExpiring(p Payload) (Expiring, error) {
	if p.Sum != nil || len(p.Bytes) < 8 {
		return Expiring{}, fmt.Errorf("%w: an expiry of %d bytes", ErrMalformed, len(p.Bytes))
	}
	r := reader{rest: p.Bytes[8:]}
	e := Expiring{At: int64(binary.BigEndian.Uint64(p.Bytes)), Cover: r.cites()}
	if err := r.close(); err != nil {
		return Expiring{}, fmt.Errorf("expiry: %w", err)
	}
	return e, nil
}

// Under returns the row of a key's expiry after a put with dot d that stands
// under the expiry with dot under, and whether that changed it. An expiry that
// has ended changes nothing.
func (r Row) Under(under, d Dot) (Row, bool, error) {
	i, ok := r.search(under)
	if !ok || under.IsZero() {
		return r, false, nil
	}
	e, err := ParseExpiring(r[i].Payload)
	if err != nil || e.Cover.Covers(d) {
		return r, false, err
	}
	e.Cover = e.Cover.Raise(d)
	out := append(Row(nil), r...)
	out[i].Payload = e.Payload()
	return out, true, nil
}

// Expired returns what is gone at nowMs, by the expiry whose head is the
// greatest in r: what it covers, and that head itself. It is nil when there is none, or its time has
// not come.
func (r Row) Expired(nowMs int64) (Cites, error) {
	if len(r) == 0 {
		return nil, nil
	}
	e, err := ParseExpiring(r.Last().Payload)
	if err != nil || e.At > nowMs {
		return nil, err
	}
	return e.Cover.Raise(r.Last().Dot), nil
}

// sameExpiry reports whether two payloads say the same time.
func sameExpiry(a, b Payload) bool {
	return len(a.Bytes) >= 8 && len(b.Bytes) >= 8 && string(a.Bytes[:8]) == string(b.Bytes[:8])
}

// joinExpiry joins the covers of one expiry as two replicas have it.
func joinExpiry(a, b Payload) Payload {
	x, errX := ParseExpiring(a)
	y, errY := ParseExpiring(b)
	if errX != nil || errY != nil {
		return a // cannot be: what is in a row was parsed before
	}
	x.Cover = x.Cover.Join(y.Cover)
	return x.Payload()
}
