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
		if s.Watermark != nil {
			line("pruning", "%s", waitsText(s.Watermark))
		}
		if text := catchupText(s.Catchup); text != "" {
			line("catching up", "%s", text)
		}
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
			line("peer", "%s", peerText(p))
		}
	}
	_, err := fmt.Fprint(a.stdout, b.String())
	return err
}

// waitsText says what pruning waits for.
func waitsText(w *client.Watermark) string {
	var who []string
	for _, m := range w.Members {
		if m.Behind > 0 && !m.Self {
			who = append(who, fmt.Sprintf("%s to say that it has %s", cli.Short(m.Node), cli.Of(m.Behind, "entry")))
		}
	}
	text := fmt.Sprintf("all %d active members have %s of keys", len(w.Members), cli.Of(w.Entries, "entry"))
	if len(who) == 0 {
		return text
	}
	return text + "; what is beyond waits for " + strings.Join(who, ", ")
}

// peerText says how a peer is.
func peerText(p client.PeerStatus) string {
	text := cli.Short(p.Node) + " unreachable"
	if p.Reachable {
		text = cli.Short(p.Node) + " reachable"
	}
	if p.Dormant {
		text += " (dormant)"
	}
	if how := forHow(p.Since); how != "" {
		text += " for " + how
	}
	if p.RoundTripMs > 0 {
		text += fmt.Sprintf(", %.1f ms away", p.RoundTripMs)
	}
	switch {
	case !p.Known:
		text += ", what it has is not known"
	case p.BehindBlocks == 0:
		text += ", 0 blocks behind"
	default:
		text += fmt.Sprintf(", %s behind in %s for %s", cli.Of(p.BehindBlocks, "block"), cli.Of(p.BehindLogs, "log"), forHow(p.BehindSince))
	}
	if p.MissingBlocks > 0 {
		text += fmt.Sprintf(", has %s more", cli.Of(p.MissingBlocks, "block"))
	}
	return text + fmt.Sprintf(", %s in, %s out", cli.Bytes(p.BytesIn), cli.Bytes(p.BytesOut))
}
