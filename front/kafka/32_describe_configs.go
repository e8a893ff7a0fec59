package kafka

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/lattice-log/lattice/engine/store"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeConfigs (key 32), versions 1 to 4.
//
//	v1  sources and synonyms (KIP-226)
//	v3  types and documentation (KIP-569)
//	v4  flexible
//
// Configs are listed whole, with those at their default: those of topics, those of
// groups (KIP-932), which need not exist, and those of this node.

func (c *conn) describeConfigs(_ *request, req *kmsg.DescribeConfigsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	for i := range req.Resources {
		want := &req.Resources[i]
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = want.ResourceType, want.ResourceName
		entries, err := c.configsOf(want)
		out.ErrorCode, out.ErrorMessage = c.srv.fail(err)
		for j := range entries {
			e := &entries[j]
			if len(want.ConfigNames) == 0 || slices.Contains(want.ConfigNames, e.Name) {
				out.Configs = append(out.Configs, describeConfig(e, req))
			}
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

func (c *conn) configsOf(want *kmsg.DescribeConfigsRequestResource) ([]store.ConfigEntry, error) {
	s := c.srv
	switch want.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		t, err := s.namedTopic(want.ResourceName)
		if err != nil {
			return nil, err
		}
		return s.store.TopicConfig(t.ID)
	case kmsg.ConfigResourceTypeBroker:
		if want.ResourceName == "" {
			return nil, nil // dynamic defaults of all brokers: there are none
		}
		if id := strconv.Itoa(int(s.nodeID())); want.ResourceName != id {
			return nil, refuse(kerr.InvalidRequest, "broker %q: this node is %s", want.ResourceName, id)
		}
		return c.nodeConfigs(), nil
	case kmsg.ConfigResourceTypeGroupConfig:
		if want.ResourceName == "" {
			return nil, refuse(kerr.InvalidRequest, "the group's name is empty")
		}
		return s.store.GroupConfig(want.ResourceName), nil
	}
	return nil, refuse(kerr.InvalidRequest, "configs of a %s are not served: topics, groups and brokers have some", want.ResourceType)
}

func (s *Server) namedTopic(name string) (store.Topic, error) {
	t, ok := s.store.Topic(name)
	switch {
	case ok:
		return t, nil
	case !validName(name):
		return t, refuse(kerr.InvalidTopicException, "topic name %q: want 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'", name)
	}
	return t, refuse(kerr.UnknownTopicOrPartition, "there is no topic %q", name)
}

// nodeConfigs are the node's own configs and this listener's, sorted by name.
func (c *conn) nodeConfigs() []store.ConfigEntry {
	cfg := &c.srv.cfg
	host, port := c.advertised()
	protocol := "PLAINTEXT"
	if cfg.TLS != nil {
		protocol = "SSL"
	}
	listener := func(addr string) string { return protocol + "://" + addr }
	at := net.JoinHostPort(host, strconv.Itoa(int(port)))
	own := []store.ConfigEntry{
		{Name: "advertised.listeners", Value: listener(at), Type: "string", Source: "node", Doc: "Where clients are told to find this node."},
		{Name: "listeners", Value: listener(c.nc.LocalAddr().String()), Type: "string", Source: "node", Doc: "The address that this client reached."},
		{Name: "auto.create.topics.enable", Value: fmt.Sprint(cfg.AutoCreate), Type: "boolean", Source: "node", Doc: "Whether asking for a topic's metadata creates it."},
		{Name: "num.partitions", Value: fmt.Sprint(cfg.DefaultPartitions), Type: "int", Source: "node", Doc: "Partitions of a topic that is created without a number."},
		{Name: "default.replication.factor", Value: "1", Type: "int", Source: "default", Doc: "Replicas of each partition."},
		{Name: "broker.id", Value: fmt.Sprint(c.srv.nodeID()), Type: "int", Source: "node", Doc: "This node's id: kafka.node_id, or derived from its key."},
		{Name: "node.id", Value: fmt.Sprint(c.srv.nodeID()), Type: "int", Source: "node", Doc: "This node's id: kafka.node_id, or derived from its key."},
		{Name: "socket.request.max.bytes", Value: fmt.Sprint(cfg.MaxRequestBytes), Type: "int", Source: "node", Doc: "The largest request."},
		{Name: "fetch.max.bytes", Value: fmt.Sprint(cfg.MaxFetchBytes), Type: "int", Source: "node", Doc: "The most records that one Fetch answers with, but for a single larger batch."},
		{Name: "queued.max.request.bytes", Value: fmt.Sprint(cfg.MaxBufferedBytes), Type: "long", Source: "node", Doc: "Bytes of requests held at once."},
		{Name: "max.connections", Value: fmt.Sprint(cfg.MaxConnections), Type: "int", Source: "node", Doc: "Connections at once."},
		{Name: "max.connections.per.ip", Value: fmt.Sprint(cfg.MaxConnectionsPerAddress), Type: "int", Source: "node", Doc: "Connections of one address at once."},
		{Name: "connections.max.idle.ms", Value: fmt.Sprint(cfg.IdleTimeout.Milliseconds()), Type: "long", Source: "node", Doc: "An idle connection is closed after this."},
	}
	// What the node is configured with says more than what came of it here, but
	// for addresses: those may be left to the node, or be port 0.
	entries := slices.DeleteFunc(slices.Clone(c.srv.store.NodeConfig()), func(e store.ConfigEntry) bool {
		return e.Name == "listeners" || e.Name == "advertised.listeners"
	})
	for _, e := range own {
		e.ReadOnly = true
		if !slices.ContainsFunc(entries, func(o store.ConfigEntry) bool { return o.Name == e.Name }) {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b store.ConfigEntry) int { return cmp.Compare(a.Name, b.Name) })
	return entries
}

func describeConfig(e *store.ConfigEntry, req *kmsg.DescribeConfigsRequest) kmsg.DescribeConfigsResponseResourceConfig {
	out := kmsg.NewDescribeConfigsResponseResourceConfig()
	out.Name, out.ReadOnly, out.IsSensitive = e.Name, e.ReadOnly, e.Sensitive
	out.Source = configSource(e.Source)
	out.ConfigType = configType(e.Type)
	if !e.Sensitive {
		out.Value = &e.Value
	}
	if req.IncludeDocumentation {
		out.Documentation = optional(e.Doc)
	}
	out.ConfigSynonyms = []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{}
	if !req.IncludeSynonyms {
		return out
	}
	synonym := func(source kmsg.ConfigSource, value *string) {
		s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
		s.Name, s.Source, s.Value = e.Name, source, value
		out.ConfigSynonyms = append(out.ConfigSynonyms, s)
	}
	synonym(out.Source, out.Value)
	if out.Source != kmsg.ConfigSourceDefaultConfig && e.Default != "" && !e.Sensitive {
		synonym(kmsg.ConfigSourceDefaultConfig, &e.Default)
	}
	return out
}

func configSource(source string) kmsg.ConfigSource {
	switch source {
	case "topic":
		return kmsg.ConfigSourceDynamicTopicConfig
	case "group":
		return kmsg.ConfigSourceGroupConfig
	case "node":
		return kmsg.ConfigSourceStaticBrokerConfig
	case "default":
		return kmsg.ConfigSourceDefaultConfig
	}
	return kmsg.ConfigSourceUnknown
}

func configType(name string) kmsg.ConfigType {
	switch name {
	case "boolean":
		return kmsg.ConfigTypeBoolean
	case "string":
		return kmsg.ConfigTypeString
	case "int":
		return kmsg.ConfigTypeInt
	case "short":
		return kmsg.ConfigTypeShort
	case "long":
		return kmsg.ConfigTypeLong
	case "double":
		return kmsg.ConfigTypeDouble
	case "list":
		return kmsg.ConfigTypeList
	case "class":
		return kmsg.ConfigTypeClass
	case "password":
		return kmsg.ConfigTypePassword
	}
	return kmsg.ConfigTypeUnknown
}
