// Command kafka-go drives segmentio's kafka-go for tests: see package driver.
package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/segmentio/kafka-go"

	"github.com/lattice-log/lattice/test/go-clients/driver"
)

func main() { driver.Serve(act, member, code) }

func code(err error) (int, bool) {
	var k kafka.Error
	if errors.As(err, &k) {
		return int(k), true
	}
	return 0, false
}

func act(ctx context.Context, r driver.Request) (driver.Answer, error) {
	t := &kafka.Transport{ClientID: "kafka-go-driver"} // one for each request, since it keeps metadata
	defer t.CloseIdleConnections()
	c := &kafka.Client{Addr: kafka.TCP(r.Bootstrap), Transport: t}
	switch r.Do {
	case "version":
		info, _ := debug.ReadBuildInfo()
		for _, m := range info.Deps {
			if m.Path == "github.com/segmentio/kafka-go" {
				return driver.Answer{Version: m.Version}, nil
			}
		}
		return driver.Answer{}, errors.New("no version")
	case "produce":
		return produce(ctx, r)
	case "consume", "seek", "beyond":
		return consume(ctx, c, r)
	case "groups", "members", "committed", "forget":
		return groups(ctx, c, r)
	}
	return administer(ctx, c, r)
}

func administer(ctx context.Context, c *kafka.Client, r driver.Request) (out driver.Answer, err error) {
	switch r.Do {
	case "create":
		t := kafka.TopicConfig{Topic: r.Topic, NumPartitions: r.Partitions, ReplicationFactor: max(1, r.Replication)}
		for k, v := range r.Configs {
			t.ConfigEntries = append(t.ConfigEntries, kafka.ConfigEntry{ConfigName: k, ConfigValue: v})
		}
		var resp *kafka.CreateTopicsResponse
		if resp, err = c.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{t}}); err == nil {
			err = resp.Errors[r.Topic]
		}
	case "describe":
		out.Partitions, err = partitions(ctx, c, r.Topic)
	case "list":
		var resp *kafka.MetadataResponse
		if resp, err = c.Metadata(ctx, &kafka.MetadataRequest{}); err == nil {
			for _, t := range resp.Topics {
				out.Names = append(out.Names, t.Name)
			}
		}
	case "configs":
		var resp *kafka.DescribeConfigsResponse
		of := kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: r.Topic}
		if resp, err = c.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{of}}); err != nil {
			break
		}
		if err = resp.Resources[0].Error; err == nil {
			out.Configs = map[string]string{}
			for _, e := range resp.Resources[0].ConfigEntries {
				out.Configs[e.ConfigName] = e.ConfigValue
			}
		}
	case "alter":
		of := kafka.IncrementalAlterConfigsRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: r.Topic}
		for k, v := range r.Configs {
			of.Configs = append(of.Configs, kafka.IncrementalAlterConfigsRequestConfig{Name: k, Value: v, ConfigOperation: kafka.ConfigOperationSet})
		}
		var resp *kafka.IncrementalAlterConfigsResponse
		if resp, err = c.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{of}}); err == nil {
			err = resp.Resources[0].Error
		}
	case "grow":
		var resp *kafka.CreatePartitionsResponse
		of := kafka.TopicPartitionsConfig{Name: r.Topic, Count: int32(r.Partitions)}
		if resp, err = c.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{of}}); err == nil {
			err = resp.Errors[r.Topic]
		}
	case "delete":
		var resp *kafka.DeleteTopicsResponse
		if resp, err = c.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{r.Topic}}); err == nil {
			err = resp.Errors[r.Topic]
		}
	default:
		err = fmt.Errorf("knows no %q", r.Do)
	}
	return out, err
}

func partitions(ctx context.Context, c *kafka.Client, topic string) (int, error) {
	resp, err := c.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return 0, err
	}
	for _, t := range resp.Topics {
		if t.Name == topic {
			return len(t.Partitions), t.Error
		}
	}
	return 0, kafka.UnknownTopicOrPartition
}

func groups(ctx context.Context, c *kafka.Client, r driver.Request) (out driver.Answer, err error) {
	switch r.Do {
	case "groups":
		var resp *kafka.ListGroupsResponse
		if resp, err = c.ListGroups(ctx, &kafka.ListGroupsRequest{}); err == nil {
			err = resp.Error
			for _, g := range resp.Groups {
				out.Names = append(out.Names, g.GroupID)
			}
		}
	case "members":
		var resp *kafka.DescribeGroupsResponse
		if resp, err = c.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{r.Group}}); err == nil {
			err, out.Members = resp.Groups[0].Error, len(resp.Groups[0].Members)
		}
	case "committed":
		var n int
		if n, err = partitions(ctx, c, r.Topic); err != nil {
			break
		}
		want := map[string][]int{}
		for p := range n {
			want[r.Topic] = append(want[r.Topic], p)
		}
		var resp *kafka.OffsetFetchResponse
		if resp, err = c.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: r.Group, Topics: want}); err == nil {
			out.Offsets = map[int32]int64{}
			for _, o := range resp.Topics[r.Topic] {
				out.Offsets[int32(o.Partition)] = o.CommittedOffset
			}
		}
	case "forget":
		var resp *kafka.DeleteGroupsResponse
		if resp, err = c.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{r.Group}}); err == nil {
			err = resp.Errors[r.Group]
		}
	}
	return out, err
}
