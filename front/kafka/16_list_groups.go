package kafka

import (
	"slices"
	"strings"

	"github.com/lattice-log/lattice/engine/group"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListGroups (key 16), versions 0 to 5.
//
//	v3  flexible
//	v4  states, and a filter by state (KIP-518)
//	v5  types, and a filter by type (KIP-848); share groups (KIP-932) are in every version

func (c *conn) listGroups(r *request, req *kmsg.ListGroupsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	wanted := func(filter []string, value string) bool {
		return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, value) })
	}
	for _, g := range c.srv.ownGroups(r.told != nil) {
		if !wanted(req.StatesFilter, string(g.State)) || !wanted(req.TypesFilter, g.Type.String()) {
			continue
		}
		out := kmsg.NewListGroupsResponseGroup()
		out.Group, out.ProtocolType = g.Group, g.ProtocolType
		out.GroupState, out.GroupType = string(g.State), g.Type.String()
		resp.Groups = append(resp.Groups, out)
	}
	return resp
}

// ownGroups returns the groups that this node coordinates, sorted by name: for another
// node those that are at home here, for a client also those of no home, and share groups.
func (s *Server) ownGroups(forOther bool) []group.Listing {
	here, me := s.store.GroupHomes(), s.store.Info().Node
	all := slices.DeleteFunc(s.groups.List(), func(g group.Listing) bool {
		home, known := here[g.Group]
		return known && home != me && (forOther || !s.store.Stray(g.Group)) || !known && forOther
	})
	if !forOther {
		all = append(all, s.shares.List()...)
	}
	slices.SortFunc(all, func(a, b group.Listing) int { return strings.Compare(a.Group, b.Group) })
	return all
}
