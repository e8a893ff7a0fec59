package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

func newStatus(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the node and its stores are",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			st, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			st.Started = st.Started.UTC()
			return a.print(st, func() error { return a.showStatus(st) })
		},
	}
	a.outputFlag(cmd)
	a.nodeFlags(cmd)
	return cmd
}

func (a *app) showStatus(st client.Status) error {
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-11s %s\n", what, fmt.Sprintf(format, args...))
	}
	state := "ready"
	if !st.Ready {
		state = "NOT READY: " + strings.Join(st.Reasons, "; ")
	}
	line("node", "%s", st.Node)
	line("state", "%s, up %s, version %s", state, time.Since(st.Started).Round(time.Second), st.Version)
	off := func(addr string) string {
		if addr == "" {
			return "off"
		}
		return addr
	}
	line("listeners", "kafka %s, redis %s, http %s", off(st.Listeners.Kafka), off(st.Listeners.Redis), off(st.Listeners.HTTP))
	line("", "socket %s", off(st.Listeners.Socket))
	for _, s := range st.Stores {
		b.WriteString("\n")
		line("store", "%s (%s)", s.Name, s.ID)
		line("topics", "%d with %s, %s, %s", s.Topics, cli.Of(s.Partitions, "partition"), cli.Of(s.Blocks, "block"), cli.Bytes(s.Bytes))
		root := "root " + cli.Short(s.StateRoot)
		if s.StateRoot == "" {
			root = "the root is being made, ask again"
		}
		line("keys", "%s, %s of %s", root, cli.Of(s.Entries, "entry"), cli.Of(s.Writers, "writer"))
		line("durability", "%s", s.Durability)
		if s.Held+s.Waiting+s.Refused+s.Void+s.Stranded+s.Equivocations > 0 {
			line("attention", "%d held: clock, %d waiting, %d refused, %d void, %d stranded, %s", s.Held, s.Waiting, s.Refused, s.Void, s.Stranded, cli.Of(s.Equivocations, "equivocation"))
		}
		for _, why := range s.StateFailed {
			line("failed", "keys: %s", why)
		}
		for _, f := range s.Failed {
			line("failed", "%s/%d: %s", f.Topic, f.Partition, f.Reason)
		}
		for _, p := range s.Peers {
			reach := "unreachable"
			if p.Reachable {
				reach = "reachable"
			}
			line("peer", "%s %s, %s blocks behind", cli.Short(p.Node), reach, cli.Count(p.BehindBlocks))
		}
	}
	_, err := fmt.Fprint(a.stdout, b.String())
	return err
}
