package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

func newGroup(a *app) *cobra.Command {
	return family("group", "Look after consumer groups and share groups",
		newGroupList(a), newGroupDescribe(a), newGroupReset(a), newGroupMove(a), newGroupDelete(a))
}

func newGroupList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the groups: consumers, and share groups",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			groups, err := c.Groups(cmd.Context())
			if err != nil {
				return err
			}
			if groups == nil {
				groups = []client.Group{}
			}
			return a.print(map[string]any{"groups": groups}, func() error {
				if len(groups) == 0 {
					a.warnf("There are no groups yet; a consumer that names one makes it.")
					return nil
				}
				t := cli.NewTable("GROUP", "STATE", "TYPE", ">MEMBERS", ">EPOCH", "ASSIGNOR", "HOME")
				for _, g := range groups {
					t.Row(g.Name, g.State, g.Type, g.Members, g.Epoch, g.Assignor, cli.Short(g.Home))
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

// groupDoc is "group describe" as JSON.
type groupDoc struct {
	Name         string               `json:"name"`
	State        string               `json:"state"`
	Type         string               `json:"type"`
	ProtocolType string               `json:"protocol_type"`
	Assignor     string               `json:"assignor"`
	Epoch        int32                `json:"epoch"`
	Home         string               `json:"home"`
	Lag          int64                `json:"lag"`
	Members      []client.GroupMember `json:"members"`
	Offsets      []client.GroupOffset `json:"offsets"`
}

func newGroupDescribe(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe GROUP",
		Short: "Show a group's members, offsets and lag",
		Args:  exactly("GROUP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			d, err := c.Group(cmd.Context(), args[0])
			if err != nil {
				return noGroup(err)
			}
			g := d.Group
			doc := groupDoc{g.Name, g.State, g.Type, g.ProtocolType, g.Assignor, g.Epoch, g.Home, d.Lag, d.Roster, d.Offsets}
			if doc.Members == nil {
				doc.Members = []client.GroupMember{}
			}
			if doc.Offsets == nil {
				doc.Offsets = []client.GroupOffset{}
			}
			return a.print(doc, func() error { return a.showGroup(doc) })
		},
	}
	a.outputFlag(cmd)
	a.completeFirst(cmd, groupNames)
	a.clientFlags(cmd)
	return cmd
}

func (a *app) showGroup(d groupDoc) error {
	fmt.Fprintf(a.stdout, "group     %s\nstate     %s\ntype      %s, epoch %d", d.Name, d.State, d.Type, d.Epoch)
	if d.Assignor != "" {
		fmt.Fprintf(a.stdout, ", assignor %s", d.Assignor)
	}
	if d.Home != "" {
		fmt.Fprintf(a.stdout, "\nhome      %s", cli.Short(d.Home))
	}
	fmt.Fprintf(a.stdout, "\nlag       %s\n", cli.Count(d.Lag))
	if len(d.Members) > 0 {
		t := cli.NewTable("MEMBER", "CLIENT", "HOST", "PARTITIONS")
		for _, m := range d.Members {
			name := m.ID
			if m.InstanceID != "" {
				name = m.InstanceID + " (static)"
			}
			t.Row(name, m.ClientID, m.Host, assignment(m.Assignment))
		}
		fmt.Fprintln(a.stdout)
		if _, err := t.WriteTo(a.stdout); err != nil {
			return err
		}
	}
	if len(d.Offsets) > 0 {
		where := ">COMMITTED"
		if d.Type == "share" {
			where = ">START" // below it, every record is settled
		}
		t := cli.NewTable("TOPIC", ">PARTITION", where, ">END", ">LAG", "MEMBER")
		for _, o := range d.Offsets {
			committed := "-"
			if o.Committed >= 0 {
				committed = strconv.FormatInt(o.Committed, 10)
			}
			t.Row(o.Topic, o.Partition, committed, o.End, cli.Count(o.Lag), o.Member)
		}
		fmt.Fprintln(a.stdout)
		if _, err := t.WriteTo(a.stdout); err != nil {
			return err
		}
	}
	return nil
}

// assignment writes "orders:0,1 users:2".
func assignment(m map[string][]int32) string {
	var parts []string
	for _, topic := range sortedKeys(m) {
		numbers := slices.Clone(m[topic])
		slices.Sort(numbers)
		words := make([]string, len(numbers))
		for i, n := range numbers {
			words[i] = strconv.Itoa(int(n))
		}
		parts = append(parts, topic+":"+strings.Join(words, ","))
	}
	return strings.Join(parts, " ")
}

// movedRow is one offset that a reset moved.
type movedRow struct {
	Topic string `json:"topic"`
	client.GroupMoved
}

func newGroupReset(a *app) *cobra.Command {
	var r client.GroupReset
	var to string
	cmd := &cobra.Command{
		Use:   "reset GROUP --to start|end|OFFSET|TIME",
		Short: "Move the committed offsets of a group that has no members",
		Example: `  lattice group reset billing --to start --topic orders
  lattice group reset billing --to -1h --dry-run`,
		Args: exactly("GROUP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				return cli.Usagef("needs --to start|end|OFFSET|TIME")
			}
			if r.Topic == "" && len(r.Partitions) > 0 {
				return cli.Usagef("--partition needs --topic")
			}
			var err error
			if r.To, err = position("--to", to); err != nil {
				return err
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			topics := []string{r.Topic}
			if r.Topic == "" {
				if topics, err = groupTopics(cmd, c, args[0]); err != nil {
					return err
				}
			}
			moved := []movedRow{}
			for _, topic := range topics {
				one := r
				one.Topic = topic
				list, err := c.ResetGroup(cmd.Context(), args[0], one)
				if err != nil {
					return busyGroup(noGroup(err), args[0])
				}
				for _, m := range list {
					moved = append(moved, movedRow{topic, m})
				}
			}
			return a.print(map[string]any{"group": args[0], "dry_run": r.DryRun, "moved": moved}, func() error {
				return a.showMoved(moved, r.DryRun)
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "start, end, OFFSET, RFC 3339 time, or an age such as -1h")
	cmd.Flags().StringVarP(&r.Topic, "topic", "t", "", "only this topic (default: all topics with offsets of the group)")
	cmd.Flags().Int32SliceVarP(&r.Partitions, "partition", "p", nil, "only these partitions")
	cmd.Flags().BoolVar(&r.DryRun, "dry-run", false, "show what would move")
	a.outputFlag(cmd)
	a.completeFirst(cmd, groupNames)
	a.clientFlags(cmd)
	return cmd
}

func (a *app) showMoved(moved []movedRow, dryRun bool) error {
	t := cli.NewTable("TOPIC", ">PARTITION", ">OLD OFFSET", ">OFFSET")
	for _, m := range moved {
		old := "-"
		if m.OldOffset >= 0 {
			old = strconv.FormatInt(m.OldOffset, 10)
		}
		t.Row(m.Topic, m.Partition, old, m.Offset)
	}
	if _, err := t.WriteTo(a.stdout); err != nil {
		return err
	}
	if dryRun {
		a.warnf("Nothing was changed (--dry-run).")
	}
	return nil
}

// groupTopics lists the topics that a group has offsets in.
func groupTopics(cmd *cobra.Command, c *client.Client, group string) ([]string, error) {
	d, err := c.Group(cmd.Context(), group)
	if err != nil {
		return nil, noGroup(err)
	}
	var topics []string
	for _, o := range d.Offsets {
		if !slices.Contains(topics, o.Topic) {
			topics = append(topics, o.Topic)
		}
	}
	if len(topics) == 0 {
		return nil, cli.Hint(lattice.E(lattice.NotFound, fmt.Errorf("group %q has committed no offsets", group)), "name the topic: --topic TOPIC")
	}
	return topics, nil
}

func newGroupDelete(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete GROUP",
		Short: "Delete a group that has no members, with its offsets",
		Args:  exactly("GROUP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.confirm(yes, "Delete group %s and its offsets?", args[0]); err != nil {
				return err
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			if err := c.DeleteGroup(cmd.Context(), args[0]); err != nil {
				return busyGroup(noGroup(err), args[0])
			}
			return a.print(map[string]string{"deleted": args[0]}, func() error {
				_, err := fmt.Fprintf(a.stdout, "deleted group %s\n", args[0])
				return err
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	a.outputFlag(cmd)
	a.completeFirst(cmd, groupNames)
	a.clientFlags(cmd)
	return cmd
}

// noGroup adds the next step for a group that is not there.
func noGroup(err error) error {
	if lattice.KindOf(err) == lattice.NotFound && client.Hint(err) == "" {
		return cli.Hint(err, "lattice group list shows the groups")
	}
	return err
}

// busyGroup adds the next step for a group that still has members.
func busyGroup(err error, group string) error {
	if lattice.KindOf(err) == lattice.Conflict && client.Hint(err) == "" {
		return cli.Hint(err, "stop its consumers; lattice group describe %s shows them", group)
	}
	return err
}
