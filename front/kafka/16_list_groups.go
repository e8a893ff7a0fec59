package kafka

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListGroups (key 16), versions 0 to 5.
//
//	v3  flexible
//	v4  states, and a filter by state (KIP-518)
//	v5  types, and a filter by type (KIP-848)

func (c *conn) listGroups(_ *request, req *kmsg.ListGroupsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	wanted := func(filter []string, value string) bool {
		return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, value) })
	}
	for _, g := range c.srv.groups.List() {
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
