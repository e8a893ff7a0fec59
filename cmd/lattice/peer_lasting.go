package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

func newPeerAdopt(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "adopt NODE",
		Short: "Let count what a removed member wrote and its remover had not seen",
		Long: `Let entries count after all that a removed member wrote, and that had not come to the node which
removed it: those that are on this node. How many there are is in lattice peer members. The member
stays removed. Who removed it may be no senior of this node.`,
		Example: `  lattice peer adopt 8c2f`,
		Args:    exactly("NODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *client.Client) error {
				n, err := c.Adopt(cmd.Context(), args[0])
				if err != nil {
					return memberHint(err)
				}
				return a.print(map[string]any{"node": args[0], "entries": n}, func() error {
					_, err := fmt.Fprintf(a.stdout, "%s of %s count now\n", cli.Of(n, "entry"), args[0])
					return err
				})
			})
		},
	}
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}

func newPeerRole(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "role NODE ROLE",
		Short: "Give a member another role, or a removed one a role again",
		Long: `Give a member the role reader, writer, admin or owner. A lesser role than it has takes the right
from what it wrote and this node has not seen. One that was removed comes back with the role, if
who removed it is no senior of this node; lattice peer adopt lets count what it wrote meanwhile.`,
		Example: `  lattice peer role 8c2f admin`,
		Args:    exactly("NODE", "ROLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *client.Client) error {
				role, err := c.SetRole(cmd.Context(), args[0], args[1])
				if err != nil {
					return memberHint(err)
				}
				return a.print(map[string]any{"node": args[0], "role": role}, func() error {
					_, err := fmt.Fprintf(a.stdout, "%s is %s now\n", args[0], role)
					return err
				})
			})
		},
	}
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}

// newPeerPresence makes the commands dormant and active.
func newPeerPresence(a *app, dormant bool) *cobra.Command {
	what, short := "active", "Say that a member is there again"
	if dormant {
		what, short = "dormant", "Say that a member is away for long, so that nobody waits for it"
	}
	cmd := &cobra.Command{
		Use:   what + " NODE",
		Short: short,
		Long: `A dormant member keeps its role; what is pruned does not wait for it, and it takes a snapshot when
it comes back, which makes it active by itself. A node that is an admin says so of who was not
seen for member.dormant_after_ms, 30 days unless configured.`,
		Args: exactly("NODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *client.Client) error {
				if err := c.SetDormant(cmd.Context(), args[0], dormant); err != nil {
					return memberHint(err)
				}
				return a.print(map[string]any{"node": args[0], "dormant": dormant}, func() error {
					_, err := fmt.Fprintf(a.stdout, "%s is %s now\n", args[0], what)
					return err
				})
			})
		},
	}
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}
