// Command sarama drives IBM's sarama for tests: see package driver.
package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/IBM/sarama"

	"github.com/lattice-log/lattice/test/go-clients/driver"
)

func main() { driver.Serve(act, member, code) }

func code(err error) (int, bool) {
	var k sarama.KError
	if errors.As(err, &k) {
		return int(k), true
	}
	return 0, false
}

// base is what every client of this driver is configured with. Sarama speaks
// the versions of the Kafka that it is told of.
func base() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "sarama-driver"
	c.Version = sarama.MaxVersion
	c.Metadata.AllowAutoTopicCreation = false
	return c
}

func act(_ context.Context, r driver.Request) (driver.Answer, error) {
	switch r.Do {
	case "version":
		info, _ := debug.ReadBuildInfo()
		for _, m := range info.Deps {
			if m.Path == "github.com/IBM/sarama" {
				return driver.Answer{Version: m.Version}, nil
			}
		}
		return driver.Answer{}, errors.New("no version")
	case "produce":
		return produce(r)
	case "consume", "seek", "beyond":
		return consume(r)
	}
	a, err := sarama.NewClusterAdmin([]string{r.Bootstrap}, base())
	if err != nil {
		return driver.Answer{}, err
	}
	defer a.Close()
	return administer(a, r)
}

func administer(a sarama.ClusterAdmin, r driver.Request) (out driver.Answer, err error) {
	switch r.Do {
	case "create":
		t := &sarama.TopicDetail{NumPartitions: int32(r.Partitions), ReplicationFactor: int16(max(1, r.Replication)), ConfigEntries: map[string]*string{}}
		for k, v := range r.Configs {
			t.ConfigEntries[k] = &v
		}
		err = a.CreateTopic(r.Topic, t, false)
	case "describe":
		var all []*sarama.TopicMetadata
		if all, err = a.DescribeTopics([]string{r.Topic}); err == nil && all[0].Err != sarama.ErrNoError {
			err = all[0].Err
		} else if err == nil {
			out.Partitions = len(all[0].Partitions)
		}
	case "list":
		var all map[string]sarama.TopicDetail
		all, err = a.ListTopics()
		for name := range all {
			out.Names = append(out.Names, name)
		}
	case "configs":
		var all []sarama.ConfigEntry
		all, err = a.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: r.Topic})
		out.Configs = map[string]string{}
		for _, e := range all {
			out.Configs[e.Name] = e.Value
		}
	case "alter":
		entries := map[string]sarama.IncrementalAlterConfigsEntry{}
		for k, v := range r.Configs {
			entries[k] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &v}
		}
		err = a.IncrementalAlterConfig(sarama.TopicResource, r.Topic, entries, false)
	case "grow":
		err = a.CreatePartitions(r.Topic, int32(r.Partitions), nil, false)
	case "trim":
		err = a.DeleteRecords(r.Topic, map[int32]int64{0: r.Offset})
	case "delete":
		err = a.DeleteTopic(r.Topic)
	default:
		return groups(a, r)
	}
	return out, err
}

func groups(a sarama.ClusterAdmin, r driver.Request) (out driver.Answer, err error) {
	switch r.Do {
	case "groups":
		var all map[string]string
		all, err = a.ListConsumerGroups()
		for name := range all {
			out.Names = append(out.Names, name)
		}
	case "members":
		var all []*sarama.GroupDescription
		if all, err = a.DescribeConsumerGroups([]string{r.Group}); err == nil {
			out.Members = len(all[0].Members)
		}
	case "committed":
		var all *sarama.OffsetFetchResponse
		if all, err = a.ListConsumerGroupOffsets(r.Group, nil); err == nil {
			out.Offsets = map[int32]int64{}
			for p, o := range all.Blocks[r.Topic] {
				out.Offsets[p] = o.Offset
			}
		}
	case "forget":
		err = a.DeleteConsumerGroup(r.Group)
	default:
		err = fmt.Errorf("knows no %q", r.Do)
	}
	return out, err
}
