package kafka

import (
	"strconv"

	"github.com/lattice-log/lattice/engine/store"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterConfigs (key 33), versions 0 to 2.
//
//	v2  flexible
//
// It replaces all configs of a topic or group: what is not named goes back to its default.

func (c *conn) alterConfigs(_ *request, req *kmsg.AlterConfigsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	seen := map[resource]int{}
	for i := range req.Resources {
		seen[resource{req.Resources[i].ResourceType, req.Resources[i].ResourceName}]++
	}
	for i := range req.Resources {
		want := &req.Resources[i]
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = want.ResourceType, want.ResourceName
		var changes []store.ConfigChange
		for j := range want.Configs {
			cfg := &want.Configs[j]
			changes = append(changes, store.ConfigChange{Name: cfg.Name, Op: "set", Value: cfg.Value})
		}
		res := resource{want.ResourceType, want.ResourceName}
		err := c.alter(res, seen[res], changes, true, req.ValidateOnly)
		out.ErrorCode, out.ErrorMessage = c.srv.fail(err)
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

// alterNode refuses to set a node's configs. There are none over the protocol, so
// resetting one changes nothing: tools do when they clean up (such as
// kafka-reassign-partitions --verify, which lifts throttles that may be there).
func (s *Server) alterNode(name string, changes []store.ConfigChange) error {
	if id := strconv.Itoa(int(s.nodeID())); name != "" && name != id {
		return refuse(kerr.InvalidRequest, "broker %q: this node is %s", name, id)
	}
	for _, ch := range changes {
		if ch.Value != nil || ch.Op != "" {
			return refuse(kerr.InvalidRequest, "config %s: a node's configs are set in its configuration file, not over the protocol", ch.Name)
		}
	}
	return nil
}

// resource names what has configs.
type resource struct {
	kind kmsg.ConfigResourceType
	name string
}

// alter changes the configs of one resource, which the request named times
// times. A set without a value is refused; a reset has Op "".
func (c *conn) alter(r resource, times int, changes []store.ConfigChange, replace, validateOnly bool) error {
	s := c.srv
	switch {
	case times > 1:
		return refuse(kerr.InvalidRequest, "%s %q is named more than once", r.kind, r.name)
	case r.kind == kmsg.ConfigResourceTypeBroker:
		return s.alterNode(r.name, changes)
	case r.kind != kmsg.ConfigResourceTypeTopic && r.kind != kmsg.ConfigResourceTypeGroupConfig:
		return refuse(kerr.InvalidRequest, "configs of a %s are not served: topics and groups have some", r.kind)
	}
	names := map[string]bool{}
	for _, ch := range changes {
		switch {
		case names[ch.Name]:
			return refuse(kerr.InvalidRequest, "config %s is named more than once", ch.Name)
		case ch.Value == nil && ch.Op != "":
			return refuse(kerr.InvalidRequest, "config %s: null is no value", ch.Name)
		}
		names[ch.Name] = true
	}
	if r.kind == kmsg.ConfigResourceTypeGroupConfig {
		return s.store.AlterGroup(r.name, changes, replace, validateOnly)
	}
	t, err := s.namedTopic(r.name)
	if err != nil {
		return err
	}
	return s.store.AlterTopic(c.ctx, t.ID, changes, replace, validateOnly)
}
