package spec

import "slices"

// EntityColumn returns the column of a projection's primary key that is the entity of every one of its
// source events, and false if there is none: rows of several entities then.
// Only then are one entity's rows what its events write.
func (a *App) EntityColumn(p *Projection) (string, bool) {
	for _, column := range p.Key {
		i := slices.IndexFunc(p.derive, func(d derived) bool { return d.column == column })
		if i < 0 || p.derive[i].value.e == nil {
			continue
		}
		path := payloadPath(p.derive[i].value.e.Path())
		if path == nil || len(p.Sources) == 0 {
			continue
		}
		all := true
		for _, name := range p.Sources {
			e, of := a.Events[name], p.effects[name]
			all = all && e != nil && e.entity != nil && (slices.Equal(path, payloadPath(e.entity.Path())) || slices.Equal(path, []string{"entity_id"})) &&
				(of == nil || of.op != "bulk_update" && !slices.ContainsFunc(of.set, func(d derived) bool { return d.column == column }))
		}
		if all {
			return column, true
		}
	}
	return "", false
}

// payloadPath returns a path below the event, without the payload in it; nil: it is no such path.
func payloadPath(path []string) []string {
	switch {
	case len(path) < 2 || path[0] != "event":
		return nil
	case path[1] == "payload" && len(path) > 2:
		return path[2:]
	}
	return path[1:]
}
