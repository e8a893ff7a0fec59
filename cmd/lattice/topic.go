package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
	"github.com/lattice-log/lattice/internal/nearest"
)

func newTopic(a *app) *cobra.Command {
	return family("topic", "Create, list and change topics",
		newTopicCreate(a), newTopicList(a), newTopicDescribe(a), newTopicAlter(a), newTopicDelete(a), newTopicTruncate(a), newTopicLead(a), newTopicStranded(a))
}

// topicRow is a topic as JSON.
type topicRow struct {
	Name       string            `json:"name"`
	ID         string            `json:"id"`
	Partitions int32             `json:"partitions"`
	Created    string            `json:"created"`
	Records    int64             `json:"records"`
	Bytes      int64             `json:"bytes"`
	Config     map[string]string `json:"config"`
}

func rowOf(t client.Topic) topicRow {
	r := topicRow{t.Name, t.ID, t.Partitions, cli.Time(t.Created), t.Records, t.Bytes, t.Config}
	if r.Config == nil {
		r.Config = map[string]string{}
	}
	return r
}

func newTopicCreate(a *app) *cobra.Command {
	var t client.NewTopic
	var config []string
	var ifMissing bool
	var replicas replicaFlags
	cmd := &cobra.Command{
		Use:   "create TOPIC",
		Short: "Create a topic",
		Example: `  lattice topic create orders --partitions 12
  lattice topic create ledger --replicas 3f2a,9c01 --min-in-sync 2
  lattice topic create users --config cleanup.policy=compact --config lattice.durability=fsync`,
		Args: exactly("TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t.Name = args[0]
			var err error
			if t.Config, err = pairs("--config", config); err != nil {
				return err
			}
			if cmd.Flags().Changed("partitions") && t.Partitions < 1 {
				return cli.Usagef("--partitions: want 1 or more")
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			if t.Config, err = replicas.set(cmd.Context(), c, t.Config); err != nil {
				return err
			}
			made, err := c.CreateTopic(cmd.Context(), t)
			switch {
			case err != nil && ifMissing && lattice.KindOf(err) == lattice.Exists:
				d, err := c.Topic(cmd.Context(), t.Name)
				if err != nil {
					return err
				}
				return a.print(rowOf(d.Topic), func() error {
					_, err := fmt.Fprintf(a.stdout, "topic %s exists (%s, id %s)\n", d.Name, cli.Of(d.Topic.Partitions, "partition"), d.ID)
					return err
				})
			case lattice.KindOf(err) == lattice.Exists && err != nil:
				return cli.Hint(err, "lattice topic describe %s, or give --if-not-exists", t.Name)
			case err != nil:
				return err
			}
			return a.print(rowOf(made), func() error {
				verb := "created"
				if t.ValidateOnly {
					verb = "would create"
				}
				_, err := fmt.Fprintf(a.stdout, "%s topic %s (%s, id %s)\n", verb, made.Name, cli.Of(made.Partitions, "partition"), made.ID)
				return err
			})
		},
	}
	cmd.Flags().Int32VarP(&t.Partitions, "partitions", "p", 0, "number of partitions (default: the node's kafka.default_partitions)")
	cmd.Flags().StringArrayVarP(&config, "config", "c", nil, "KEY=VALUE, as Kafka names them; repeatable")
	cmd.Flags().StringSliceVar(&t.Leaders, "leaders", nil, "members that lead the partitions in turn, by their keys or how these begin (default: this node)")
	replicas.add(cmd)
	cmd.Flags().BoolVar(&ifMissing, "if-not-exists", false, "succeed when the topic is there already")
	cmd.Flags().BoolVar(&t.ValidateOnly, "dry-run", false, "check only")
	a.outputFlag(cmd)
	a.clientFlags(cmd)
	return cmd
}

func newTopicList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the topics",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			topics, err := c.Topics(cmd.Context())
			if err != nil {
				return err
			}
			rows := make([]topicRow, len(topics))
			for i, t := range topics {
				rows[i] = rowOf(t)
			}
			return a.print(map[string]any{"topics": rows}, func() error {
				if len(rows) == 0 {
					a.warnf("There are no topics yet; create one: lattice topic create NAME")
					return nil
				}
				t := cli.NewTable("TOPIC", ">PARTITIONS", ">RECORDS", ">SIZE", "ID")
				for _, r := range rows {
					t.Row(r.Name, r.Partitions, cli.Count(r.Records), cli.Bytes(r.Bytes), r.ID)
				}
				_, err := t.WriteTo(a.stdout)
				return err
			})
		},
	}
	a.outputFlag(cmd)
	a.clientFlags(cmd)
	return cmd
}

// topicDoc is "topic describe" as JSON.
type topicDoc struct {
	Name       string             `json:"name"`
	ID         string             `json:"id"`
	Created    string             `json:"created"`
	Records    int64              `json:"records"`
	Bytes      int64              `json:"bytes"`
	Partitions []client.Partition `json:"partitions"`
	Config     map[string]string  `json:"config"`    // every key, effective
	Overrides  map[string]string  `json:"overrides"` // what was set
	CreatedAs  string             `json:"created_as,omitempty"`
}

func newTopicDescribe(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "describe TOPIC",
		Short: "Show a topic's partitions, checkpoints and configuration",
		Args:  exactly("TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			d, err := c.Topic(cmd.Context(), args[0])
			if err != nil {
				return a.noTopic(cmd, c, args[0], err)
			}
			r := rowOf(d.Topic)
			doc := topicDoc{r.Name, r.ID, r.Created, r.Records, r.Bytes, d.Details, map[string]string{}, r.Config, d.CreatedAs}
			if doc.Partitions == nil {
				doc.Partitions = []client.Partition{}
			}
			for _, e := range d.Entries {
				if !e.Sensitive {
					doc.Config[e.Name] = e.Value
				}
			}
			return a.print(doc, func() error { return a.showTopic(doc, d.Entries, all) })
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also show configuration that was not set")
	a.outputFlag(cmd)
	a.completeFirst(cmd, topicNames)
	a.clientFlags(cmd)
	return cmd
}

func (a *app) showTopic(doc topicDoc, entries []client.ConfigEntry, all bool) error {
	fmt.Fprintf(a.stdout, "topic    %s\nid       %s\ncreated  %s\nrecords  %s in %s\n",
		doc.Name, doc.ID, doc.Created, cli.Count(doc.Records), cli.Bytes(doc.Bytes))
	if doc.CreatedAs != "" {
		fmt.Fprintf(a.stdout, "name     it was created as %s, which an earlier topic has\n", doc.CreatedAs)
	}
	fmt.Fprintln(a.stdout)
	t := cli.NewTable(">PARTITION", "LEADER", ">TERM", ">START", ">END", ">COMMITTED", ">CHECKPOINT", "ROOT", "STATE")
	for _, p := range doc.Partitions {
		state := "ok"
		switch {
		case p.Failed != "":
			state = p.Failed
		case p.Elsewhere:
			state = "follower"
		case len(p.Damaged) > 0:
			state = fmt.Sprintf("damaged at %d", p.Damaged[0].From)
		}
		t.Row(p.Partition, cli.Short(p.Leader), p.Term, p.Start, p.End, p.Committed, p.CheckpointSize, cli.Short(p.Root), state)
	}
	if _, err := t.WriteTo(a.stdout); err != nil {
		return err
	}
	if err := a.showReplicas(doc.Partitions); err != nil {
		return err
	}
	t = cli.NewTable("CONFIG", "VALUE", "SOURCE")
	shown := 0
	for _, e := range entries {
		if all || e.Source == "topic" {
			t.Row(e.Name, e.Value, e.Source)
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

func newTopicAlter(a *app) *cobra.Command {
	var ch client.TopicChange
	var set []string
	var replicas replicaFlags
	cmd := &cobra.Command{
		Use:   "alter TOPIC",
		Short: "Change a topic's configuration, or add partitions",
		Example: `  lattice topic alter orders --set retention.ms=86400000 --reset segment.bytes
  lattice topic alter orders --partitions 24`,
		Args: exactly("TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if ch.Set, err = pairs("--set", set); err != nil {
				return err
			}
			if len(ch.Set) == 0 && len(ch.Reset) == 0 && ch.Partitions == 0 && !replicas.given() {
				return cli.Usagef("needs --set, --reset, --replicas, --min-in-sync or --partitions")
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			if ch.Set, err = replicas.set(cmd.Context(), c, ch.Set); err != nil {
				return err
			}
			t, err := c.AlterTopic(cmd.Context(), args[0], ch)
			if err != nil {
				return a.noTopic(cmd, c, args[0], err)
			}
			return a.print(rowOf(t), func() error {
				verb := "changed"
				if ch.ValidateOnly {
					verb = "would change"
				}
				_, err := fmt.Fprintf(a.stdout, "%s topic %s (%s)\n", verb, t.Name, cli.Of(t.Partitions, "partition"))
				return err
			})
		},
	}
	replicas.add(cmd)
	cmd.Flags().StringArrayVarP(&set, "set", "s", nil, "KEY=VALUE; repeatable")
	cmd.Flags().StringArrayVarP(&ch.Reset, "reset", "r", nil, "KEY that goes back to its default; repeatable")
	cmd.Flags().Int32VarP(&ch.Partitions, "partitions", "p", 0, "new number of partitions, larger than now")
	cmd.Flags().BoolVar(&ch.ValidateOnly, "dry-run", false, "check only")
	a.outputFlag(cmd)
	a.completeFirst(cmd, topicNames)
	a.clientFlags(cmd)
	return cmd
}

func newTopicDelete(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete TOPIC",
		Short: "Delete a topic and its records",
		Args:  exactly("TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.confirm(yes, "Delete topic %s and all its records?", args[0]); err != nil {
				return err
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			if err := c.DeleteTopic(cmd.Context(), args[0]); err != nil {
				return a.noTopic(cmd, c, args[0], err)
			}
			return a.print(map[string]string{"deleted": args[0]}, func() error {
				_, err := fmt.Fprintf(a.stdout, "deleted topic %s\n", args[0])
				return err
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	a.outputFlag(cmd)
	a.completeFirst(cmd, topicNames)
	a.clientFlags(cmd)
	return cmd
}

func newTopicTruncate(a *app) *cobra.Command {
	var before string
	var partitions []int32
	var yes bool
	cmd := &cobra.Command{
		Use:   "truncate TOPIC --before OFFSET|TIME|end",
		Short: "Drop the oldest records; what remains stays provable",
		Example: `  lattice topic truncate orders --before 1000 --partition 0
  lattice topic truncate orders --before -24h`,
		Args: exactly("TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if before == "" {
				return cli.Usagef("needs --before OFFSET|TIME|end")
			}
			at, err := position("--before", before)
			if err != nil {
				return err
			}
			if err := a.confirm(yes, "Drop the records of topic %s before %s?", args[0], at); err != nil {
				return err
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			starts, err := c.TruncateTopic(cmd.Context(), args[0], at, partitions...)
			if err != nil {
				return a.noTopic(cmd, c, args[0], err)
			}
			return a.print(map[string]any{"topic": args[0], "partitions": starts}, func() error {
				t := cli.NewTable(">PARTITION", ">OLD START", ">START")
				for _, s := range starts {
					t.Row(s.Partition, s.OldStart, s.Start)
				}
				_, err := t.WriteTo(a.stdout)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&before, "before", "", "first record to keep: OFFSET, RFC 3339 time, age such as -24h, or end")
	cmd.Flags().Int32SliceVarP(&partitions, "partition", "p", nil, "only these partitions")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	a.outputFlag(cmd)
	a.completeFirst(cmd, topicNames)
	a.clientFlags(cmd)
	return cmd
}

// noTopic adds the next step to an error about a topic that is not there.
func (a *app) noTopic(cmd *cobra.Command, c *client.Client, name string, err error) error {
	if lattice.KindOf(err) != lattice.NotFound {
		return err
	}
	topics, listErr := c.Topics(cmd.Context())
	if listErr != nil {
		return err
	}
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Name
	}
	if best, ok := nearest.Name(name, names); ok && best != name {
		return cli.Hint(withoutHint(err), "did you mean %s? lattice topic list shows all", best)
	}
	return cli.Hint(err, "lattice topic list shows the topics; lattice topic create %s makes one", name)
}

// withoutHint keeps an error's text and kind and drops the hint from the node.
func withoutHint(err error) error { return lattice.E(lattice.KindOf(err), errors.New(err.Error())) }

// pairs reads KEY=VALUE flags.
func pairs(flag string, list []string) (map[string]string, error) {
	m := make(map[string]string, len(list))
	for _, kv := range list {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, cli.Usagef("%s %q: want KEY=VALUE", flag, kv)
		}
		if _, twice := m[k]; twice {
			return nil, cli.Usagef("%s: %s is given twice", flag, k)
		}
		m[k] = v
	}
	return m, nil
}

// sortedKeys returns a map's keys in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
