package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

func newPeer(a *app) *cobra.Command {
	return family("peer", "Invite nodes into a store, join one, and see who is in it",
		newPeerInvite(a), newPeerJoin(a), newPeerList(a), newPeerMembers(a), newPeerInvitations(a), newPeerRevoke(a), newPeerRemove(a), newPeerAdopt(a), newPeerRole(a), newPeerPresence(a, true), newPeerPresence(a, false), newPeerConnect(a), newPeerForget(a))
}

func newPeerInvite(a *app) *cobra.Command {
	var n client.NewInvitation
	var expires string
	cmd := &cobra.Command{
		Use:   "invite",
		Short: "Print a token with which one node can join a store",
		Long: `Print a token with which one other node joins a store of this one: lattice peer join TOKEN,
there. From then on both have the store's keys, topics' catalogue and groups' offsets, and what
one writes reaches the other.

Whoever has the token can join, so it is kept like a password. It is good for one node, until it
expires or is revoked, and this node has to run when it is used. Roles: a reader reads, a writer
writes keys, topics and offsets, an admin also invites and removes readers and writers, an owner
does everything.

The token says where this node is reached: the addresses that it listens on, or those of --address,
for a node behind a router that forwards a port.`,
		Example: `  lattice peer invite
  lattice peer invite --role reader --expires 168h --store press
  lattice peer invite --address /ip4/203.0.113.7/tcp/7946`,
		Args: exactly(),
	}
	cmd.Flags().StringVar(&n.Role, "role", "writer", "what the node may do: reader, writer, admin or owner")
	cmd.Flags().StringVar(&expires, "expires", "24h", "how long the token is good, such as 30m, 24h or 7d")
	cmd.Flags().StringArrayVar(&n.Addresses, "address", nil, "multiaddr where other nodes reach this one; repeatable (default: where it listens)")
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"reader", "writer", "admin", "owner"}, cobra.ShellCompDirectiveNoFileComp))
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if n.Good, err = parseLong(expires); err != nil || n.Good <= 0 {
			return cli.Usagef("--expires %q: want a time such as 30m, 24h or 7d", expires)
		}
		return a.withClient(func(c *client.Client) error {
			i, err := c.Invite(cmd.Context(), n)
			if err != nil {
				return err
			}
			out := map[string]any{
				"token": i.Token, "expires": cli.Time(i.Expires), "id": i.ID, "role": i.Role, "store": i.Store.ID, "addresses": i.Addresses,
			}
			return a.print(out, func() error {
				fmt.Fprintf(a.stdout, "%s\n", i.Token)
				a.warnf("It makes one node a %s of store %s (%s), until %s. On that node:\n  lattice up\n  lattice peer join TOKEN",
					i.Role, i.Store.Name, cli.Short(i.Store.ID), cli.Time(i.Expires))
				if onlyHere(i.Addresses) {
					a.warnf("It works on this machine only, since the node listens on no other address: lattice up --mesh 0.0.0.0:7946")
				}
				return nil
			})
		})
	}
	return cmd
}

// parseLong reads a duration that may be in days.
func parseLong(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		d, err := time.ParseDuration(days + "h")
		return 24 * d, err
	}
	return time.ParseDuration(s)
}

// onlyHere reports whether all multiaddrs are of loopback.
func onlyHere(addresses []string) bool {
	return !slices.ContainsFunc(addresses, func(a string) bool {
		parts := strings.Split(a, "/")
		if len(parts) < 3 {
			return true
		}
		ip := net.ParseIP(parts[2])
		return ip == nil || !ip.IsLoopback()
	})
}

func newPeerJoin(a *app) *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "join TOKEN",
		Short: "Join the store of an invitation",
		Long: `Join the store that a token of lattice peer invite is for. It becomes this node's default store:
commands without --store and the Kafka and Redis listeners mean it from now on (their clients are
disconnected once). The stores that the node has stay as they are; lattice store use ID goes
back, and --no-default leaves the default alone.

The node that made the token has to run. If the connection breaks, join again with the same token:
this node has used it, and no other can. "-" reads the token from standard input, which keeps it
out of the shell's history.`,
		Example: `  lattice peer join lattice-invite-ae3f...
  lattice peer join - < token`,
		Args: exactly("TOKEN"),
	}
	cmd.Flags().BoolVar(&keep, "no-default", false, "do not make it the node's default store")
	a.nodeFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		token, err := a.readJoinToken(args[0])
		if err != nil {
			return err
		}
		return a.withClient(func(c *client.Client) error {
			j, err := c.Join(cmd.Context(), token, keep)
			if err != nil {
				return err
			}
			out := map[string]any{"store": storeRowOf(j.Store), "inviter": j.Inviter, "again": j.Again}
			if j.Previous != nil {
				out["previous"] = storeRowOf(*j.Previous)
			}
			return a.print(out, func() error { return a.showJoined(cmd.Context(), c, j) })
		})
	}
	return cmd
}

// readJoinToken returns the token on the command line, or that on standard input.
func (a *app) readJoinToken(arg string) (string, error) {
	if arg != "-" {
		return arg, nil
	}
	const most = 16 << 10 // more than any token has
	b, err := io.ReadAll(io.LimitReader(a.stdin, most))
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

func (a *app) showJoined(ctx context.Context, c *client.Client, j client.Joined) error {
	verb := "joined"
	if j.Again {
		verb = "joined before:"
	}
	fmt.Fprintf(a.stdout, "%s store %s (%s) of node %s\n", verb, j.Store.Name, cli.Short(j.Store.ID), cli.Short(j.Inviter))
	switch {
	case j.Previous != nil:
		fmt.Fprintf(a.stdout, "It is this node's default store now. Store %s (%s) stays: lattice store use %s goes back to it.\n",
			j.Previous.Name, cli.Short(j.Previous.ID), cli.Short(j.Previous.ID))
	case !j.Store.Default:
		fmt.Fprintf(a.stdout, "Use it: --store %s, or lattice store use %[1]s\n", cli.Short(j.Store.ID))
	}
	stores, err := c.Stores(ctx)
	if err != nil {
		return err
	}
	if n := len(slices.DeleteFunc(stores, func(s client.Store) bool { return s.Name != j.Store.Name })); n > 1 {
		fmt.Fprintf(a.stdout, "This node has %d stores named %s: name them by their ids, which lattice store list shows.\n", n, j.Store.Name)
	}
	return nil
}

// peerRow is a peer as JSON.
type peerRow struct {
	Node        string   `json:"node"`
	Role        string   `json:"role"`
	Reachable   bool     `json:"reachable"`
	Since       string   `json:"since,omitempty"`
	RoundTripMs float64  `json:"round_trip_ms,omitempty"`
	BytesIn     int64    `json:"bytes_in"`
	BytesOut    int64    `json:"bytes_out"`
	Behind      int64    `json:"behind"`
	Ahead       int64    `json:"ahead"`
	Known       bool     `json:"known"`
	AheadLogs   int32    `json:"ahead_logs"`
	AheadSince  string   `json:"ahead_since,omitempty"`
	Logs        []lagRow `json:"logs,omitempty"`
	Dormant     bool     `json:"dormant"`
	Equal       bool     `json:"equal"`
	Addresses   []string `json:"addresses"`
	Problem     string   `json:"problem,omitempty"`
}

func peerRowOf(p client.Peer) peerRow {
	r := peerRow{
		Node: p.Node, Role: p.Role, Reachable: p.Reachable, RoundTripMs: float64(p.RoundTrip.Microseconds()) / 1000,
		BytesIn: p.BytesIn, BytesOut: p.BytesOut, Behind: p.Behind, Ahead: p.Ahead, Equal: p.Equal, Addresses: p.Addresses, Problem: p.Problem,
		Known: p.Known, AheadLogs: p.AheadLogs, Dormant: p.Dormant,
	}
	if !p.AheadSince.IsZero() {
		r.AheadSince = cli.Time(p.AheadSince)
	}
	for _, l := range p.Logs {
		r.Logs = append(r.Logs, lagRowOf(l))
	}
	if !p.Since.IsZero() {
		r.Since = cli.Time(p.Since)
	}
	if r.Addresses == nil {
		r.Addresses = []string{}
	}
	return r
}

// memberHint adds how to see the members to an error about one.
func memberHint(err error) error {
	var e *client.Error
	if errors.As(err, &e) && e.Hint == "" && lattice.KindOf(err) == lattice.Denied {
		return cli.Hint(err, "lattice peer members shows who may do what")
	}
	return err
}
