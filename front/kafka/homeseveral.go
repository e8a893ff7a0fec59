package kafka

import (
	"slices"
	"strings"
	"sync"

	lattice "github.com/lattice-log/lattice"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A request about several groups, or about all of them, whose homes differ: each home is
// asked for its own at a time, this node itself for its own, and the answers are joined, in
// the order of the request.

// unknownState is the state of a group whose home cannot be asked.
const unknownState = "Unknown"

// joined gathers the parts of an answer.
type joined struct {
	r     *request
	req   kmsg.Request
	order map[string]int // of the groups in the request
	first func() bool

	mu     sync.Mutex
	left   int
	groups []kmsg.Response
}

// bySeveral cuts a request up, or says errNotHere if this node is the home of all groups.
func (c *conn) bySeveral(r *request) error {
	s := c.srv
	req, unlock, err := c.decodeAny(r)
	if err != nil {
		return err
	}
	defer unlock()
	me := s.store.Info().Node
	by := map[lattice.NodeID][]string{me: nil}
	j := &joined{r: r, req: req, order: map[string]int{}, left: 1}
	names := groupsOf(req)
	if r.api.home == homeList {
		for name, home := range s.store.GroupHomes() {
			if home != me {
				by[home] = append(by[home], name)
			}
		}
	}
	for i, name := range names {
		if _, again := j.order[name]; again {
			continue
		}
		j.order[name] = i
		home, err := s.store.Coordinator(name, false)
		if err != nil {
			j.groups = append(j.groups, s.refused(only(req, []string{name}), err))
			continue
		}
		by[home] = append(by[home], name)
	}
	if len(by) == 1 && len(j.groups) == 0 {
		return errNotHere
	}
	if len(by[me]) == 0 && r.api.home != homeList {
		delete(by, me)
	}
	j.left = len(by) + 1
	j.first = r.orElse(func() { r.answer(s.refused(req, kerr.NotCoordinator)) })
	for home, part := range by {
		j.ask(s, home, part)
	}
	j.done(nil)
	return nil
}

// ask has a home answer for its groups.
func (j *joined) ask(s *Server, home lattice.NodeID, names []string) {
	r, part := j.r, only(j.req, names)
	a := homeAsk{key: r.api.key, version: r.version, client: r.clientID(), host: r.c.addr.String(), body: part.AppendTo(nil)}
	version, key := r.version, r.api.key
	answered := func(body []byte, err error) {
		resp := part.ResponseKind()
		resp.SetVersion(version)
		if err == nil {
			err = resp.ReadFrom(body)
		}
		if err == nil && key == kmsg.OffsetFetch.Int16() {
			err = s.hearOffsets(body, version)
		}
		switch {
		case err == nil:
		case key == kmsg.ListGroups.Int16():
			resp = unknown(part.(*kmsg.ListGroupsRequest), names)
		default:
			resp = s.refused(part, homeError(err))
		}
		j.done(resp)
	}
	if home == s.store.Info().Node {
		s.here(a, answered)
		return
	}
	s.store.Ask(home, a.appendTo(nil), usualWait, answered)
}

// unknown lists groups of which nothing is known but their names.
func unknown(req *kmsg.ListGroupsRequest, names []string) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	asked := slices.ContainsFunc(req.StatesFilter, func(s string) bool { return strings.EqualFold(s, unknownState) })
	if len(req.TypesFilter) > 0 || len(req.StatesFilter) > 0 && !asked {
		return resp
	}
	for _, name := range names {
		g := kmsg.NewListGroupsResponseGroup()
		g.Group, g.GroupState = name, unknownState
		resp.Groups = append(resp.Groups, g)
	}
	return resp
}

// done takes a part, and answers when it was the last one.
func (j *joined) done(part kmsg.Response) {
	j.mu.Lock()
	if part != nil {
		j.groups = append(j.groups, part)
	}
	j.left--
	last := j.left == 0
	j.mu.Unlock()
	if last && j.first() {
		j.r.answer(j.whole())
	}
}

// whole joins the parts.
func (j *joined) whole() kmsg.Response {
	before := func(a, b string) int { return j.order[a] - j.order[b] }
	switch q := j.req.(type) {
	case *kmsg.OffsetFetchRequest:
		resp := q.ResponseKind().(*kmsg.OffsetFetchResponse)
		for _, p := range j.groups {
			resp.Groups = append(resp.Groups, p.(*kmsg.OffsetFetchResponse).Groups...)
		}
		slices.SortStableFunc(resp.Groups, func(a, b kmsg.OffsetFetchResponseGroup) int { return before(a.Group, b.Group) })
		return resp
	case *kmsg.DescribeGroupsRequest:
		resp := q.ResponseKind().(*kmsg.DescribeGroupsResponse)
		for _, p := range j.groups {
			resp.Groups = append(resp.Groups, p.(*kmsg.DescribeGroupsResponse).Groups...)
		}
		slices.SortStableFunc(resp.Groups, func(a, b kmsg.DescribeGroupsResponseGroup) int { return before(a.Group, b.Group) })
		return resp
	case *kmsg.ConsumerGroupDescribeRequest:
		resp := q.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
		for _, p := range j.groups {
			resp.Groups = append(resp.Groups, p.(*kmsg.ConsumerGroupDescribeResponse).Groups...)
		}
		slices.SortStableFunc(resp.Groups, func(a, b kmsg.ConsumerGroupDescribeResponseGroup) int { return before(a.Group, b.Group) })
		return resp
	case *kmsg.DeleteGroupsRequest:
		resp := q.ResponseKind().(*kmsg.DeleteGroupsResponse)
		for _, p := range j.groups {
			resp.Groups = append(resp.Groups, p.(*kmsg.DeleteGroupsResponse).Groups...)
		}
		slices.SortStableFunc(resp.Groups, func(a, b kmsg.DeleteGroupsResponseGroup) int { return before(a.Group, b.Group) })
		return resp
	}
	resp := j.req.ResponseKind().(*kmsg.ListGroupsResponse)
	for _, p := range j.groups {
		resp.Groups = append(resp.Groups, p.(*kmsg.ListGroupsResponse).Groups...)
	}
	slices.SortFunc(resp.Groups, func(a, b kmsg.ListGroupsResponseGroup) int { return strings.Compare(a.Group, b.Group) })
	return resp
}
