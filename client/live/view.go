package live

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Frame is what the gateway sends, every member that it may have; docs/protocol/gateway.md
// says which has what.
type Frame struct {
	Type       string          `json:"type"`
	Code       string          `json:"code"`
	Message    string          `json:"message"`
	Status     int             `json:"status"`
	ConnID     string          `json:"conn_id"`
	StreamID   string          `json:"stream_id"`
	Channel    string          `json:"channel"`
	Answer     string          `json:"answer"`
	Reason     string          `json:"reason"`
	Missed     int             `json:"missed"`
	EntityID   string          `json:"entity_id"`
	EventType  string          `json:"event_type"`
	Trigger    string          `json:"trigger_event_type"`
	Key        json.RawMessage `json:"key"`
	Patch      []Operation     `json:"patch"`
	RowPrev    int64           `json:"row_prev"`
	RowCursor  int64           `json:"row_cursor"`
	AsOf       int64           `json:"as_of"`
	TS         int64           `json:"ts"`
	Heartbeat  int64           `json:"heartbeat_ms"`
	Expires    int64           `json:"expires_ts"`
	PrevCursor string          `json:"prev_cursor"`
	Cursor     string          `json:"cursor"`
	Rows       []struct {
		Key    json.RawMessage `json:"key"`
		Row    json.RawMessage `json:"row"`
		Cursor int64           `json:"cursor"`
	} `json:"rows"`
}

// Operation sets or removes one member of a row: Path is "/member/member", or "" for the
// whole row. add and replace do the same.
type Operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value"`
}

// ErrGap means that a frame does not follow what the view has: something was lost
// on the way. Subscribe again, from View.Cursor.
var ErrGap = errors.New("live: a patch is missing")

// View is what one channel has shown so far: the rows, and where to resume. It is
// pure: frames go in. One goroutine uses it at a time.
type View struct {
	rows, staged map[string]row // staged: of a snapshot that is on its way
	gone         map[string]int64
	cursor       string
	asOf         int64
	fresh        bool
	began        bool // resume came; what comes before it is of an earlier subscription
	partial      bool // live only: rows that were there before are not known
}

type row struct {
	value  map[string]any
	cursor int64
}

// maxGone bounds the removed rows that are remembered. Without one, a patch that comes
// again after a reconnection looks like a gap, which costs a snapshot.
const maxGone = 10000

// Cursor is where to resume; empty: there is nothing to resume.
func (v *View) Cursor() string { return v.cursor }

// UpToDate reports whether the rows are complete and current, as far as is known.
func (v *View) UpToDate() bool { return v.fresh }

// Stale says that the connection is lost: the rows stay, and are no longer current.
func (v *View) Stale() {
	v.fresh, v.began, v.staged = false, false, nil
}

// Len returns the number of rows.
func (v *View) Len() int { return len(v.rows) }

// Row returns the row with a key, an object of the columns of the primary key. The map is the
// view's: do not change it.
func (v *View) Row(key map[string]any) (map[string]any, bool) {
	b, err := json.Marshal(key)
	if err != nil {
		return nil, false
	}
	r, ok := v.rows[string(b)]
	return r.value, ok
}

// Keys returns the keys of all rows as JSON, in order.
func (v *View) Keys() []string { return slices.Sorted(maps.Keys(v.rows)) }

// At returns the row with a key as Keys has it.
func (v *View) At(key string) (map[string]any, bool) {
	r, ok := v.rows[key]
	return r.value, ok
}

// Apply takes a frame of the view's channel and returns the keys of rows that changed. After
// ErrGap the view is as it was.
func (v *View) Apply(f *Frame) (changed []string, err error) {
	if !v.began && f.Type != "resume" {
		return nil, nil
	}
	switch f.Type {
	case "resume":
		v.began = true
		if f.Answer == "reset" {
			v.staged, v.fresh, v.cursor = map[string]row{}, false, ""
			v.gone, v.asOf, v.partial = nil, 0, false
			break
		}
		if v.cursor == "" { // live only
			v.partial = true
		}
		v.cursor = f.Cursor
	case "snapshot":
		if v.staged == nil {
			return nil, fmt.Errorf("%w: rows that nobody asked for", ErrGap)
		}
		for _, r := range f.Rows {
			value, err := object(r.Row)
			if err != nil {
				return nil, err
			}
			v.staged[canonical(r.Key)] = row{value, r.Cursor}
		}
	case "patch":
		return v.patch(f)
	case "up_to_date":
		v.asOf = max(v.asOf, f.AsOf)
		if v.staged != nil {
			changed = v.swap()
		}
		v.cursor, v.fresh = f.Cursor, true
	}
	return changed, nil
}

// swap makes the snapshot what the view shows.
func (v *View) swap() []string {
	all := map[string]bool{}
	for k := range v.rows {
		all[k] = true
	}
	for k := range v.staged {
		all[k] = true
	}
	v.rows, v.staged = v.staged, nil
	return slices.Sorted(maps.Keys(all))
}

func (v *View) patch(f *Frame) ([]string, error) {
	staging := v.staged != nil
	if !staging && f.PrevCursor != v.cursor {
		return nil, fmt.Errorf("%w: it follows %s, the view is at %s", ErrGap, f.PrevCursor, v.cursor)
	}
	rows := v.rows
	if staging {
		rows = v.staged
	} else if rows == nil {
		rows = map[string]row{}
		v.rows = rows
	}
	key := canonical(f.Key)
	r, there := rows[key]
	known := max(r.cursor, v.gone[key])
	switch {
	case f.RowCursor <= known || f.RowCursor <= v.asOf: // it is in the row already
	case f.RowPrev > known && !v.partial:
		return nil, fmt.Errorf("%w: row %s was at %d and is at %d", ErrGap, key, f.RowPrev, known)
	default:
		if f.RowPrev == 0 { // there was no row: what the view has of one was removed unseen
			r.value = nil
		}
		next, err := apply(r.value, f.Patch)
		if err != nil {
			return nil, err
		}
		if next == nil {
			delete(rows, key)
			if len(v.gone) >= maxGone || v.gone == nil {
				v.gone = map[string]int64{}
			}
			v.gone[key] = f.RowCursor
		} else {
			rows[key] = row{next, f.RowCursor}
			delete(v.gone, key)
		}
		there = true
	}
	if staging {
		return nil, nil
	}
	v.cursor = f.Cursor
	if !there {
		return nil, nil
	}
	return []string{key}, nil
}

// apply returns the row with the operations done; nil: there is no row. What the
// operations do not name is shared with the row before.
func apply(value map[string]any, ops []Operation) (map[string]any, error) {
	for _, op := range ops {
		var v any
		if op.Op != "remove" {
			var err error
			if v, err = decode(op.Value); err != nil {
				return nil, err
			}
		}
		if op.Path == "" {
			value, _ = v.(map[string]any)
			continue
		}
		value = set(value, strings.Split(op.Path, "/")[1:], op.Op == "remove", v)
	}
	return value, nil
}

func set(value map[string]any, path []string, remove bool, v any) map[string]any {
	next := maps.Clone(value)
	if next == nil {
		next = map[string]any{}
	}
	switch inner, isObject := next[path[0]].(map[string]any); {
	case len(path) > 1 && (isObject || !remove):
		next[path[0]] = set(inner, path[1:], remove, v)
	case len(path) > 1:
	case remove:
		delete(next, path[0])
	default:
		next[path[0]] = v
	}
	return next
}

func decode(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // no number is rounded
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("live: read a value: %w", err)
	}
	return v, nil
}

func object(b []byte) (map[string]any, error) {
	v, err := decode(b)
	if err != nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("live: a row is no object")
	}
	return m, nil
}

// canonical writes a key as all views write it: members in order of their names.
func canonical(key json.RawMessage) string {
	v, err := decode(key)
	if err != nil {
		return string(key)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return string(key)
	}
	return string(b)
}
