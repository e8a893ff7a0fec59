package grant

import (
	"slices"
	"time"
)

// Grant is what a client may follow, until when.
type Grant struct {
	Subject string
	// All: there are no tokens here, everybody may follow everything.
	All bool
	// Tenants must name what is followed. Forks, Streams and Entities do if they are
	// not nil.
	Tenants, Forks, Streams, Entities []string
	Expires                           time.Time // zero: never
}

// Allows reports whether the grant covers a subscription to all of some streams, or with
// an entity to that alone.
func (g *Grant) Allows(tenant, fork string, streams []string, entity string) bool {
	if g.All {
		return true
	}
	if !slices.Contains(g.Tenants, tenant) || g.Forks != nil && !slices.Contains(g.Forks, fork) {
		return false
	}
	for _, s := range streams {
		if g.Streams != nil && !slices.Contains(g.Streams, s) {
			return false
		}
	}
	return g.Entities == nil || entity != "" && slices.Contains(g.Entities, entity)
}
