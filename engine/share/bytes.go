package share

import (
	"encoding/binary"
	"fmt"
	"math"

	lattice "github.com/lattice-log/lattice"
)

// State is the delivery of one partition to one group, as it is stored.
//
// # Bytes, version 1 (integers are big-endian)
//
//	 0  version  u8 = 1
//	 1  start    i64  everything below is settled
//	 9  term     i32  of the log when this was written, -1: none
//	13  runs     to the end, each: length uvarint, state u8, deliveries u8
//
// The runs follow each other from start on, and two that touch differ. States: 1
// available, 3 acknowledged, 4 archived, 5 nothing for a member is here; the first
// run is available, and no other state has deliveries. Nothing was delivered behind
// the last run. One value has one encoding. A new field needs a new version; bytes
// once written are read for ever.
type State struct {
	Start int64
	Term  int32
	Runs  []StateRun
}

// StateRun is consecutive offsets that share a fate.
type StateRun struct {
	Length     int64
	State      uint8
	Deliveries uint8
}

const (
	stateVersion = 1
	stateFixed   = 13
	runBytes     = 3 // at least
)

// End returns the first offset that was never delivered.
func (s State) End() int64 {
	end := s.Start
	for _, r := range s.Runs {
		end += r.Length
	}
	return end
}

// AppendTo appends the state's bytes.
func (s State) AppendTo(dst []byte) []byte {
	dst = append(dst, stateVersion)
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.Start))
	dst = binary.BigEndian.AppendUint32(dst, uint32(s.Term))
	for _, r := range s.Runs {
		dst = binary.AppendUvarint(dst, uint64(r.Length))
		dst = append(dst, r.State, r.Deliveries)
	}
	return dst
}

// ParseState reads what AppendTo wrote. Kind Corrupt, or Unsupported when a later
// version wrote it.
func ParseState(b []byte) (State, error) {
	bad := func(format string, args ...any) (State, error) {
		return State{}, lattice.E(lattice.Corrupt, fmt.Errorf("share-partition state: "+format, args...))
	}
	if len(b) > 0 && b[0] > stateVersion {
		return State{}, lattice.E(lattice.Unsupported, fmt.Errorf("share-partition state: version %d, this program reads up to %d", b[0], stateVersion))
	}
	if len(b) < stateFixed || b[0] != stateVersion {
		return bad("%d bytes that are no version %d state", len(b), stateVersion)
	}
	s := State{Start: int64(binary.BigEndian.Uint64(b[1:])), Term: int32(binary.BigEndian.Uint32(b[9:]))}
	if s.Start < 0 || s.Term < -1 {
		return bad("start %d, term %d", s.Start, s.Term)
	}
	at := s.Start
	for b = b[stateFixed:]; len(b) > 0; {
		length, n := binary.Uvarint(b)
		if n <= 0 || len(b) < n+2 || n > 1 && b[n-1] == 0 || length == 0 || length > uint64(math.MaxInt64-at) {
			return bad("run at offset %d", at)
		}
		r := StateRun{int64(length), b[n], b[n+1]}
		b = b[n+2:]
		kind, before := state(r.State), len(s.Runs)-1
		switch {
		case kind != available && kind != acknowledged && kind != archived && kind != absent:
			return bad("run at offset %d: state %d", at, r.State)
		case kind.settled() && (r.Deliveries > 0 || before < 0):
			return bad("run at offset %d: state %d, %d deliveries", at, r.State, r.Deliveries)
		case before >= 0 && s.Runs[before].State == r.State && s.Runs[before].Deliveries == r.Deliveries:
			return bad("run at offset %d is like the one before", at)
		}
		s.Runs = append(s.Runs, r)
		at += r.Length
	}
	return s, nil
}

// state returns what is to be stored. A record that somebody has is available once
// the node has crashed: with this delivery counted, but never one that would be its
// last.
func (w *window) state(term int32, l limits) State {
	s := State{Start: w.start, Term: max(term, -1)}
	for i := range w.spans {
		sp := &w.spans[i]
		r := StateRun{sp.len(), uint8(sp.state), uint8(min(sp.deliveries, math.MaxUint8))}
		if sp.state == acquired {
			r.State, r.Deliveries = uint8(available), uint8(min(sp.deliveries, l.deliveries-1, math.MaxUint8))
		}
		if n := len(s.Runs); n > 0 && s.Runs[n-1].State == r.State && s.Runs[n-1].Deliveries == r.Deliveries {
			s.Runs[n-1].Length += r.Length
			continue
		}
		s.Runs = append(s.Runs, r)
	}
	return s
}

// windowOf is the reverse.
func windowOf(s State) *window {
	w := &window{end: s.End()}
	var spans []span
	at := s.Start
	for _, r := range s.Runs {
		spans = appendSpan(spans, span{first: at, last: at + r.Length - 1, state: state(r.State), deliveries: int16(r.Deliveries)})
		at += r.Length
	}
	w.settle(spans)
	return w
}
