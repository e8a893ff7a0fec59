package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

// lagRow is a log of which a peer lacks something, as JSON.
type lagRow struct {
	Log    string `json:"log"` // TOPIC/PARTITION, or keys/WRITER/START
	Has    uint64 `json:"has"`
	Here   uint64 `json:"here"`
	Behind uint64 `json:"behind"`
	Since  string `json:"since,omitempty"`
}

func lagRowOf(l client.PeerLag) lagRow {
	name := l.Topic
	switch {
	case l.Writer != "":
		name = fmt.Sprintf("keys/%s/%d", cli.Short(l.Writer), l.Incarnation)
	case name == "":
		name = cli.Short(l.TopicID)
		fallthrough
	default:
		name = fmt.Sprintf("%s/%d", name, l.Partition)
	}
	r := lagRow{Log: name, Has: l.Has, Here: l.Here, Behind: l.Here - min(l.Here, l.Has)}
	if !l.Since.IsZero() {
		r.Since = cli.Time(l.Since)
	}
	return r
}

const (
	shownLogs = 10
	allLogs   = 65_536 // of each kind, as many as the node lists
)

func newPeerList(a *app) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "list [NODE]",
		Short: "Show the other nodes of a store, and how this one reaches them",
		Long: `Show the other nodes of a store: whether this node reaches them and since when, how long an answer
takes, what went over the connection since the node started, how many blocks (entries of keys and batches
of records) it lacks of what is here, and since when, and how many this node lacks of what it has. What was
sent to a peer counts as had until it says otherwise. "?" stands for one with which nothing was compared since
this node started. With NODE, named by its key or how that begins, the logs are listed of which it lacks
most: 10 writers' and 10 partitions, or with --all all of them. Who may do what is in lattice peer members.`,
		Example: `  lattice peer list
  lattice peer list 8c2f --all`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exactly("NODE")(cmd, args)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "list all logs that a peer lacks something of")
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		node, logs := "", 0
		if len(args) > 0 {
			node, logs = args[0], shownLogs
		}
		if all {
			logs = allLogs
		}
		return a.withClient(func(c *client.Client) error {
			p, err := c.PeersWith(cmd.Context(), logs, node)
			if err != nil {
				return err
			}
			rows := make([]peerRow, len(p.Peers))
			for i, x := range p.Peers {
				rows[i] = peerRowOf(x)
			}
			if p.Addresses == nil {
				p.Addresses = []string{}
			}
			out := map[string]any{"store": p.Store.ID, "addresses": p.Addresses, "peers": rows, "refused": p.Refused, "catchup": p.Catchup}
			if p.Problem != "" {
				out["problem"] = p.Problem
			}
			return a.print(out, func() error { return a.showPeers(p, rows) })
		})
	}
	return cmd
}

func (a *app) showPeers(p client.Peers, rows []peerRow) error {
	if len(p.Addresses) == 0 {
		a.warnf("This node does not talk to others: start it with lattice up --mesh ADDRESS")
	}
	if p.Problem != "" {
		a.warnf("Store %s takes no part in the mesh: %s", p.Store.Name, p.Problem)
	}
	if len(rows) == 0 {
		a.warnf("Store %s has no other nodes; invite one: lattice peer invite", p.Store.Name)
		return nil
	}
	t := cli.NewTable("NODE", "ROLE", "STATE", "SINCE", ">ROUND TRIP", ">IN", ">OUT", ">LACKS", "FOR", ">MISSING HERE")
	for i, r := range rows {
		trip := "-"
		if r.RoundTripMs > 0 {
			trip = fmt.Sprintf("%.1f ms", r.RoundTripMs)
		}
		lacks, since := "?", ""
		if r.Known {
			lacks, since = cli.Count(r.Ahead), forHow(p.Peers[i].AheadSince)
		}
		t.Row(cli.Short(r.Node), r.Role, peerState(r), r.Since, trip, cli.Bytes(r.BytesIn), cli.Bytes(r.BytesOut), lacks, since, cli.Count(r.Behind))
	}
	if _, err := t.WriteTo(a.stdout); err != nil {
		return err
	}
	if err := a.showLags(rows); err != nil {
		return err
	}
	if line := catchupText(p.Catchup); line != "" {
		fmt.Fprintf(a.stdout, "catching up: %s\n", line)
	}
	for _, r := range rows {
		if r.Problem != "" {
			fmt.Fprintf(a.stdout, "%s: %s\n", cli.Short(r.Node), r.Problem)
		}
	}
	for _, why := range slices.Sorted(maps.Keys(p.Refused)) {
		fmt.Fprintf(a.stdout, "refused: %s times: %s\n", cli.Count(p.Refused[why]), why)
	}
	return nil
}

// peerState says in a word how a peer is.
func peerState(r peerRow) string {
	state := "unreachable"
	switch {
	case r.Reachable && r.Equal:
		state = "in sync"
	case r.Reachable:
		state = "reachable"
	}
	if r.Dormant {
		state += ", dormant"
	}
	return state
}

// showLags lists the logs that were asked for, and how many there are beside them.
func (a *app) showLags(rows []peerRow) error {
	for _, r := range rows {
		if len(r.Logs) == 0 {
			continue
		}
		fmt.Fprintf(a.stdout, "\n%s lacks:\n", cli.Short(r.Node))
		t := cli.NewTable("LOG", ">HAS", ">HERE", ">LACKS", "SINCE")
		for _, l := range r.Logs {
			t.Row(l.Log, cli.Count(int64(l.Has)), cli.Count(int64(l.Here)), cli.Count(int64(l.Behind)), l.Since)
		}
		if _, err := t.WriteTo(a.stdout); err != nil {
			return err
		}
		if n := int(r.AheadLogs) - len(r.Logs); n > 0 {
			fmt.Fprintf(a.stdout, "and %s more, of which it lacks less: lattice peer list %s --all\n", cli.Of(n, "log"), cli.Short(r.Node))
		}
	}
	return nil
}

// forHow is for how long something is so; empty: it is not.
func forHow(since time.Time) string {
	if since.IsZero() {
		return ""
	}
	d := time.Since(since)
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	case d >= time.Minute:
		return d.Round(time.Minute).String()
	}
	return max(d.Round(time.Second), time.Second).String()
}

// catchupText says what this node lacks, and how fast it comes; empty: nothing, as far as is known.
func catchupText(c client.Catchup) string {
	text := ""
	if n := c.Entries + c.Batches; n > 0 {
		text = fmt.Sprintf("%s of keys and %s are missing here", cli.Of(c.Entries, "entry"), cli.Of(c.Batches, "batch"))
		if c.BlocksPerSecond >= 0.5 {
			text += fmt.Sprintf("; %s blocks and %s a second come, which takes another %s", cli.Count(int64(c.BlocksPerSecond)), cli.Bytes(int64(c.BytesPerSecond)),
				max(time.Duration(float64(n)/c.BlocksPerSecond*float64(time.Second)).Round(time.Second), time.Second))
		}
	}
	if f := c.Fetching; f != nil {
		if text != "" {
			text += "; "
		}
		text += fmt.Sprintf("a snapshot of %s is fetched: %s of %s are here", cli.Short(f.Node), cli.Bytes(f.Here), cli.Bytes(f.Bytes))
		if f.BytesPerSecond > 0 {
			text += fmt.Sprintf(", %s a second", cli.Bytes(int64(f.BytesPerSecond)))
		}
	}
	return text
}
