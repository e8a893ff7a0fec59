// Command franz-go drives franz-go for tests: see package driver.
package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lattice-log/lattice/test/go-clients/driver"
)

func main() { driver.Serve(act, member, code) }

func code(err error) (int, bool) {
	var k *kerr.Error
	if errors.As(err, &k) {
		return int(k.Code), true
	}
	return 0, false
}

func client(r driver.Request, opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(r.Bootstrap), kgo.ClientID("franz-go-driver")}, opts...)...)
}

func act(ctx context.Context, r driver.Request) (driver.Answer, error) {
	switch r.Do {
	case "version":
		info, _ := debug.ReadBuildInfo()
		for _, m := range info.Deps {
			if m.Path == "github.com/twmb/franz-go" {
				return driver.Answer{Version: m.Version}, nil
			}
		}
		return driver.Answer{}, errors.New("no version")
	case "produce":
		return produce(ctx, r)
	case "consume", "seek":
		return consume(ctx, r)
	case "beyond":
		return driver.Answer{}, beyond(ctx, r)
	}
	cl, err := client(r)
	if err != nil {
		return driver.Answer{}, err
	}
	defer cl.Close()
	return administer(ctx, kadm.NewClient(cl), r)
}

func administer(ctx context.Context, a *kadm.Client, r driver.Request) (out driver.Answer, err error) {
	switch r.Do {
	case "create":
		configs := map[string]*string{}
		for k, v := range r.Configs {
			configs[k] = &v
		}
		_, err = a.CreateTopic(ctx, int32(r.Partitions), int16(max(1, r.Replication)), configs, r.Topic)
	case "describe":
		var all kadm.TopicDetails
		if all, err = a.ListTopics(ctx, r.Topic); err == nil {
			out.Partitions, err = len(all[r.Topic].Partitions), all[r.Topic].Err
		}
	case "list":
		var all kadm.TopicDetails
		all, err = a.ListTopics(ctx)
		out.Names = all.Names()
	case "configs":
		out.Configs, err = configs(ctx, a, r.Topic)
	case "alter":
		var set []kadm.AlterConfig
		for k, v := range r.Configs {
			set = append(set, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: &v})
		}
		var all kadm.AlterConfigsResponses
		if all, err = a.AlterTopicConfigs(ctx, set, r.Topic); err == nil {
			_, err = all.On(r.Topic, func(one *kadm.AlterConfigsResponse) error { return one.Err })
		}
	case "grow":
		var all kadm.CreatePartitionsResponses
		if all, err = a.UpdatePartitions(ctx, r.Partitions, r.Topic); err == nil {
			err = all.Error()
		}
	case "trim":
		before := kadm.Offsets{}
		before.AddOffset(r.Topic, 0, r.Offset, -1)
		var all kadm.DeleteRecordsResponses
		if all, err = a.DeleteRecords(ctx, before); err == nil {
			err = all.Error()
		}
	case "delete":
		_, err = a.DeleteTopic(ctx, r.Topic)
	default:
		return groups(ctx, a, r)
	}
	return out, err
}

func configs(ctx context.Context, a *kadm.Client, topic string) (map[string]string, error) {
	all, err := a.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	_, err = all.On(topic, func(one *kadm.ResourceConfig) error {
		for _, c := range one.Configs {
			out[c.Key] = c.MaybeValue()
		}
		return one.Err
	})
	return out, err
}

func groups(ctx context.Context, a *kadm.Client, r driver.Request) (out driver.Answer, err error) {
	switch r.Do {
	case "groups":
		var all kadm.ListedGroups
		all, err = a.ListGroups(ctx)
		out.Names = all.Groups()
	case "members":
		out.Members, err = members(ctx, a, r.Group)
	case "committed":
		var all kadm.OffsetResponses
		all, err = a.FetchOffsets(ctx, r.Group)
		out.Offsets = map[int32]int64{}
		for p, o := range all[r.Topic] {
			out.Offsets[p] = o.At
		}
	case "forget":
		_, err = a.DeleteGroup(ctx, r.Group)
	default:
		err = fmt.Errorf("knows no %q", r.Do)
	}
	return out, err
}

// members counts them in a group of either protocol.
func members(ctx context.Context, a *kadm.Client, group string) (int, error) {
	if all, err := a.DescribeConsumerGroups(ctx, group); err == nil && all[group].Err == nil {
		return len(all[group].Members), nil
	}
	all, err := a.DescribeGroups(ctx, group)
	if err != nil {
		return 0, err
	}
	return len(all[group].Members), all[group].Err
}
