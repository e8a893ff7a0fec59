package kafka

import (
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListConfigResources (key 74), versions 0 to 1.
//
//	v0  the subscriptions of clients' telemetry (KIP-714), of which there are none
//	v1  everything that has configs, or only the kinds named (KIP-1142)
//
// It lists what DescribeConfigs describes: topics, groups that are set to something, and
// this node.

func (c *conn) listConfigResources(r *request, req *kmsg.ListConfigResourcesRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.ListConfigResourcesResponse)
	if r.version == 0 {
		return resp
	}
	asked := func(kind kmsg.ConfigResourceType) bool {
		return len(req.ResourceTypes) == 0 || slices.Contains(req.ResourceTypes, int8(kind))
	}
	for _, k := range req.ResourceTypes {
		if !hasConfigs(kmsg.ConfigResourceType(k)) {
			resp.ErrorCode = s.code(refuse(kerr.UnsupportedVersion, "resource type %d is unknown", k))
			return resp
		}
	}
	add := func(kind kmsg.ConfigResourceType, name string) {
		out := kmsg.NewListConfigResourcesResponseConfigResource()
		out.Type, out.Name = int8(kind), name
		resp.ConfigResources = append(resp.ConfigResources, out)
	}
	if asked(kmsg.ConfigResourceTypeTopic) {
		for _, t := range s.listed() {
			add(kmsg.ConfigResourceTypeTopic, t.Name)
		}
	}
	if asked(kmsg.ConfigResourceTypeGroupConfig) {
		for _, name := range s.shares.Configured() {
			add(kmsg.ConfigResourceTypeGroupConfig, name)
		}
	}
	if asked(kmsg.ConfigResourceTypeBroker) {
		add(kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(s.nodeID())))
	}
	return resp
}

// hasConfigs reports the kinds of resource that Kafka's API lists, whether one of
// them is here or not.
func hasConfigs(k kmsg.ConfigResourceType) bool {
	switch k {
	case kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger,
		kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceTypeGroupConfig:
		return true
	}
	return false
}
