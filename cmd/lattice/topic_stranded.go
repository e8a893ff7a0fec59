package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

// leadUnclean gives partitions to another leader without the old one's word.
func (a *app) leadUnclean(cmd *cobra.Command, c *client.Client, topic, to string, yes bool, partitions []int32) error {
	would, err := c.LeadTopicUnclean(cmd.Context(), topic, to, true, partitions...)
	if err != nil {
		return a.noTopic(cmd, c, topic, err)
	}
	for _, l := range would {
		a.warnf("%s/%d: led by %s; committed up to offset %d as far as this node knows; the new term begins at %d, and what others have from there on is stranded",
			topic, l.Partition, cli.Short(l.OldLeader), l.Committed, l.Base)
	}
	if err := a.confirm(yes, "Give %s of topic %s to %s without the old leader's word?", cli.Of(len(would), "partition"), topic, to); err != nil {
		return err
	}
	led, err := c.LeadTopicUnclean(cmd.Context(), topic, to, false, partitions...)
	if err != nil {
		return err
	}
	return a.print(map[string]any{"topic": topic, "partitions": led}, func() error {
		t := cli.NewTable(">PARTITION", "OLD LEADER", "LEADER", ">FROM", ">TERM")
		for _, l := range led {
			t.Row(l.Partition, cli.Short(l.OldLeader), cli.Short(l.Leader), l.Base, l.Term)
		}
		_, err := t.WriteTo(a.stdout)
		return err
	})
}

// strandedOrder is what is to be done with branches.
type strandedOrder struct {
	read, reproduce, discard string
	partitions               []int32
	yes                      bool
}

func newTopicStranded(a *app) *cobra.Command {
	var o strandedOrder
	cmd := &cobra.Command{
		Use:   "stranded TOPIC [--partition N] [--read ID | --reproduce ID|all | --discard ID]",
		Short: "Show, read and re-produce records beyond the base of a later term",
		Long: `List what this node has kept aside of a topic: records that were in its log, acknowledged perhaps, when the
partition went to another leader that did not have them. They are not in the log.

--read prints the records of a branch, one JSON object a line. --reproduce writes them to the log again, where it is
led now, with their timestamps, keys and headers, and one header more, lattice-stranded-from, whose value is
topic/partition/term/offset; records of transactions that did not commit are left out. It can be repeated: nothing is
written twice. --discard removes a branch for good, from this node.`,
		Example: `  lattice topic stranded orders
  lattice topic stranded orders --read 150-3fa2b86bd4c81d02
  lattice topic stranded orders --reproduce all
  lattice topic stranded orders --discard 150-3fa2b86bd4c81d02`,
		Args: exactly("TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			orders := 0
			for _, id := range []string{o.read, o.reproduce, o.discard} {
				if id != "" {
					orders++
				}
			}
			if orders > 1 {
				return cli.Usagef("--read, --reproduce and --discard are one at a time")
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			all, err := c.Strandeds(cmd.Context(), args[0], o.partitions...)
			if err != nil {
				return a.noTopic(cmd, c, args[0], err)
			}
			switch {
			case o.read != "":
				return a.readStranded(cmd, c, all, args[0], o.read)
			case o.reproduce != "":
				return a.reproduce(cmd, c, all, args[0], o.reproduce)
			case o.discard != "":
				return a.discardStranded(cmd, c, all, args[0], o)
			}
			return a.showStranded(args[0], all)
		},
	}
	cmd.Flags().StringVar(&o.read, "read", "", "print the records of this branch")
	cmd.Flags().StringVar(&o.reproduce, "reproduce", "", "write the records of this branch, or of all, to the log again")
	cmd.Flags().StringVar(&o.discard, "discard", "", "remove this branch for good")
	cmd.Flags().Int32SliceVarP(&o.partitions, "partition", "p", nil, "these partitions")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	a.outputFlag(cmd)
	a.completeFirst(cmd, topicNames)
	a.clientFlags(cmd)
	return cmd
}

func (a *app) showStranded(topic string, all []client.Stranded) error {
	if all == nil {
		all = []client.Stranded{}
	}
	return a.print(map[string]any{"topic": topic, "stranded": all}, func() error {
		if len(all) == 0 {
			a.warnf("Nothing of topic %s is stranded on this node", topic)
			return nil
		}
		t := cli.NewTable(">PARTITION", "ID", "LEADER", ">TERM", ">FROM", ">TO", ">RECORDS", ">SIZE", "SINCE", "STATE")
		for _, b := range all {
			state := b.State
			if b.Reproduced > 0 {
				state = fmt.Sprintf("%s: %s at %d to %d", b.State, cli.Of(b.Reproduced, "record"), b.ReproducedFirst, b.ReproducedEnd-1)
			}
			t.Row(b.Partition, b.ID, cli.Short(b.Leader), b.LastTerm, b.First, b.End-1, cli.Count(b.Records), cli.Bytes(b.Bytes),
				b.Since.UTC().Format("2006-01-02 15:04:05Z"), state)
		}
		_, err := t.WriteTo(a.stdout)
		return err
	})
}

// branchesNamed finds the branches that an id means.
func branchesNamed(all []client.Stranded, topic, id string, every bool) ([]client.Stranded, error) {
	if every && id == "all" {
		return all, nil
	}
	var out []client.Stranded
	for _, b := range all {
		if b.ID == id {
			out = append(out, b)
		}
	}
	switch {
	case len(out) == 0:
		return nil, cli.Hint(cli.Usagef("topic %s has no stranded branch %q on this node", topic, id), "lattice topic stranded %s lists them", topic)
	case len(out) > 1:
		return nil, cli.Usagef("%d partitions have a branch %s: name one with --partition", len(out), id)
	}
	return out, nil
}

func (a *app) readStranded(cmd *cobra.Command, c *client.Client, all []client.Stranded, topic, id string) error {
	some, err := branchesNamed(all, topic, id, false)
	if err != nil {
		return err
	}
	var line []byte
	return c.ReadStranded(cmd.Context(), topic, some[0].Partition, id, func(r client.Record) error {
		line = jsonFormat(line[:0], &r)
		_, err := a.stdout.Write(line)
		return err
	})
}

func (a *app) reproduce(cmd *cobra.Command, c *client.Client, all []client.Stranded, topic, id string) error {
	some, err := branchesNamed(all, topic, id, true)
	if err != nil {
		return err
	}
	for i, b := range some {
		if some[i], err = c.Reproduce(cmd.Context(), topic, b.Partition, b.ID); err != nil {
			return cli.Hint(fmt.Errorf("branch %s of partition %d: %w", b.ID, b.Partition, err), "the same command goes on from there; nothing is written twice")
		}
	}
	return a.showStranded(topic, some)
}

func (a *app) discardStranded(cmd *cobra.Command, c *client.Client, all []client.Stranded, topic string, o strandedOrder) error {
	some, err := branchesNamed(all, topic, o.discard, false)
	if err != nil {
		return err
	}
	b := some[0]
	if err := a.confirm(o.yes, "Remove %s of topic %s, partition %d, from this node for good (%s)?", cli.Of(b.Records, "stranded record"), topic, b.Partition, b.State); err != nil {
		return err
	}
	if err := c.DiscardStranded(cmd.Context(), topic, b.Partition, b.ID); err != nil {
		return err
	}
	return a.print(map[string]any{"topic": topic, "discarded": b}, func() error {
		_, err := fmt.Fprintf(a.stdout, "discarded %s of partition %d\n", b.ID, b.Partition)
		return err
	})
}
