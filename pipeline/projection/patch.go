package projection

import (
	"encoding/json"
	"fmt"

	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/spec"
)

// Operations returns a row operation as a patch has it: the row's key, an object of
// its columns, and what changes in the row, an object of all its columns. An insert adds
// each column that has a value, those of the key too (and not the whole document at once,
// as event.Diff would: clients in the field set members only); a delete removes the whole.
// What was not said by the event is not in the patch. For an UpdateWhere, ask for each row
// (spec.Projection.Of).
func Operations(p *spec.Projection, op spec.RowOp) (key json.RawMessage, ops []event.Operation, err error) {
	if key, err = object(p, op.Key); err != nil {
		return nil, nil, err
	}
	switch op.Kind {
	case spec.Delete:
		return key, []event.Operation{{Op: event.OpRemove, Path: ""}}, nil
	case spec.Insert:
		ops, err = members(p, event.OpAdd, op.Key)
		if err != nil {
			return nil, nil, err
		}
		set, err := members(p, event.OpAdd, op.Set)
		return key, append(ops, set...), err
	case spec.Update:
		ops, err = members(p, event.OpReplace, op.Set)
		return key, ops, err
	}
	return nil, nil, fmt.Errorf("projection %s: %s has no row to make a patch of", p.Name, op.Kind)
}

// object writes cells as a JSON object, in their order.
func object(p *spec.Projection, cells []spec.Cell) (json.RawMessage, error) {
	b := []byte{'{'}
	for i, c := range cells {
		v, err := cellJSON(p, c)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(append(b, '"'), c.Column...), '"', ':'), v...) // a column's name needs no escapes
	}
	return append(b, '}'), nil
}

func members(p *spec.Projection, op string, cells []spec.Cell) ([]event.Operation, error) {
	var ops []event.Operation
	for _, c := range cells {
		v, err := cellJSON(p, c)
		if err != nil {
			return nil, err
		}
		ops = append(ops, event.Operation{Op: op, Path: "/" + c.Column, Value: v})
	}
	return ops, nil
}

func cellJSON(p *spec.Projection, c spec.Cell) (json.RawMessage, error) {
	col, ok := p.Column(c.Column)
	if !ok {
		return nil, fmt.Errorf("projection %s has no column %q", p.Name, c.Column)
	}
	v, err := json.Marshal(col.JSONValue(c.Value))
	if err != nil {
		return nil, fmt.Errorf("projection %s: column %s: %w", p.Name, c.Column, err)
	}
	return v, nil
}
