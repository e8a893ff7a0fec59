package kafka

import (
	"github.com/lattice-log/lattice/engine/store"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// IncrementalAlterConfigs (key 44), versions 0 to 1 (KIP-339).
//
//	v1  flexible
//
// It sets and resets single configs of a topic or group, and appends to and subtracts
// from those that are lists.

func (c *conn) incrementalAlterConfigs(_ *request, req *kmsg.IncrementalAlterConfigsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	seen := map[resource]int{}
	for i := range req.Resources {
		seen[resource{req.Resources[i].ResourceType, req.Resources[i].ResourceName}]++
	}
	for i := range req.Resources {
		want := &req.Resources[i]
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = want.ResourceType, want.ResourceName
		changes, err := incrementalChanges(want)
		if err == nil {
			res := resource{want.ResourceType, want.ResourceName}
			err = c.alter(res, seen[res], changes, false, req.ValidateOnly)
		}
		out.ErrorCode, out.ErrorMessage = c.srv.fail(err)
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

func incrementalChanges(want *kmsg.IncrementalAlterConfigsRequestResource) ([]store.ConfigChange, error) {
	var changes []store.ConfigChange
	for i := range want.Configs {
		cfg := &want.Configs[i]
		ch := store.ConfigChange{Name: cfg.Name, Value: cfg.Value}
		switch cfg.Op {
		case kmsg.IncrementalAlterConfigOpSet:
			ch.Op = "set"
		case kmsg.IncrementalAlterConfigOpDelete:
			ch.Value = nil
		case kmsg.IncrementalAlterConfigOpAppend:
			ch.Op = "append"
		case kmsg.IncrementalAlterConfigOpSubtract:
			ch.Op = "subtract"
		default:
			return nil, refuse(kerr.InvalidRequest, "config %s: operation %d is unknown", cfg.Name, cfg.Op)
		}
		changes = append(changes, ch)
	}
	return changes, nil
}
