package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeCluster (key 60), versions 0 to 2.
//
//	v0  flexible from the start (KIP-700)
//	v1  brokers or controllers (KIP-919): we have no controllers to talk to
//	v2  fenced brokers (KIP-1073): none

const endpointBrokers = 1

func (c *conn) describeCluster(r *request, req *kmsg.DescribeClusterRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	resp.EndpointType = endpointBrokers
	resp.ClusterID = s.store.Info().ID.String()
	resp.ControllerID = -1
	resp.ClusterAuthorizedOperations = notAsked
	if r.version >= 1 && req.EndpointType != endpointBrokers {
		resp.EndpointType = req.EndpointType
		resp.ErrorCode, resp.ErrorMessage = s.fail(refuse(kerr.MismatchedEndpointType, "this listener is for brokers' clients, not for controllers"))
		return resp
	}
	b := kmsg.NewDescribeClusterResponseBroker()
	b.NodeID = s.nodeID()
	b.Host, b.Port = c.advertised()
	resp.Brokers = append(resp.Brokers, b)
	resp.ControllerID = b.NodeID
	resp.ClusterAuthorizedOperations = operations(req.IncludeClusterAuthorizedOperations, clusterOperations)
	return resp
}
