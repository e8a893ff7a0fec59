package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

// replicaFlags are who has to hold a topic's records.
type replicaFlags struct {
	nodes []string
	min   int
}

const (
	replicasConfig  = "lattice.replicas"
	minInSyncConfig = "min.insync.replicas"
)

func (f *replicaFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.nodes, "replicas", nil, "members that have to hold the records, with commas: ids as \"lattice peer members\" shows them, or their beginnings; this node is added")
	cmd.Flags().IntVar(&f.min, "min-in-sync", 0, "how many of them make a record committed, which acks=all and consumers wait for")
}

func (f *replicaFlags) given() bool { return len(f.nodes) > 0 || f.min != 0 }

// set puts the flags into a topic's configuration.
func (f *replicaFlags) set(ctx context.Context, c *client.Client, config map[string]string) (map[string]string, error) {
	if !f.given() {
		return config, nil
	}
	if config == nil {
		config = map[string]string{}
	}
	put := func(name, value string) error {
		if _, twice := config[name]; twice {
			return cli.Usagef("%s is given twice", name)
		}
		config[name] = value
		return nil
	}
	if f.min < 0 {
		return nil, cli.Usagef("--min-in-sync: want 1 or more")
	}
	if f.min > 0 {
		if err := put(minInSyncConfig, fmt.Sprint(f.min)); err != nil {
			return nil, err
		}
	}
	if len(f.nodes) == 0 {
		return config, nil
	}
	members, err := c.Members(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := chosen(f.nodes, members)
	if err != nil {
		return nil, err
	}
	return config, put(replicasConfig, strings.Join(ids, ","))
}

// chosen returns the members that are named, this node first.
func chosen(names []string, members []client.Member) ([]string, error) {
	var ids []string
	add := func(id string) {
		for _, x := range ids {
			if x == id {
				return
			}
		}
		ids = append(ids, id)
	}
	for _, m := range members {
		if m.Self {
			add(m.Node)
		}
	}
	for _, name := range names {
		var found []string
		for _, m := range members {
			if m.RemovedBy == "" && strings.HasPrefix(m.Node, strings.ToLower(strings.TrimSpace(name))) {
				found = append(found, m.Node)
			}
		}
		switch {
		case strings.TrimSpace(name) == "" || len(found) == 0:
			return nil, cli.Hint(cli.Usagef("--replicas %q: no member has an id that begins so", name), "lattice peer members")
		case len(found) > 1:
			return nil, cli.Usagef("--replicas %q: %d members have ids that begin so", name, len(found))
		}
		add(found[0])
	}
	return ids, nil
}

// showReplicas shows who holds partitions that several have to hold.
func (a *app) showReplicas(all []client.Partition) error {
	t := cli.NewTable(">PARTITION", ">NEEDED", "REPLICA", ">HOLDS TO", "IN SYNC")
	shown := 0
	for _, p := range all {
		if len(p.Replicas) < 2 {
			continue
		}
		for _, r := range p.Replicas {
			in := "yes"
			if !r.InSync {
				in = "no"
			}
			t.Row(p.Partition, fmt.Sprintf("%d of %d", p.MinInSync, len(p.Replicas)), cli.Short(r.Node), r.End, in)
			shown++
		}
	}
	if shown == 0 {
		return nil
	}
	fmt.Fprintln(a.stdout)
	_, err := t.WriteTo(a.stdout)
	return err
}
