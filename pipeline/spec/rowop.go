package spec

import (
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
)

// Of returns what an UpdateWhere does to one of the rows that fit it, as an Update of that
// row, and false when it changes nothing there. Patches are made of it: they are of rows.
// The row's values are as the database returned them.
func (p *Projection) Of(op RowOp, row map[string]any) (RowOp, bool, error) {
	one := RowOp{Kind: Update, Table: op.Table}
	for _, name := range p.Key {
		v, err := p.columns[name].Read(row[name])
		if err == nil && v == nil {
			err = fmt.Errorf("column %s of the primary key is null", name)
		}
		if err != nil {
			return RowOp{}, false, lattice.E(lattice.Corrupt, fmt.Errorf("projection %s: a row of %s: %w", p.Name, p.Table, err))
		}
		one.Key = append(one.Key, Cell{name, v})
	}
	for _, c := range op.Set {
		old, err := p.columns[c.Column].Read(row[c.Column])
		if err == nil && same(old, c.Value) || slices.Contains(p.Key, c.Column) {
			continue
		}
		one.Set = append(one.Set, c)
	}
	return one, len(one.Set) > 0, nil
}
