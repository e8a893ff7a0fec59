package main

import (
	"fmt"

	"github.com/spf13/cobra"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

func newGroupMove(a *app) *cobra.Command {
	var to string
	var force, yes bool
	cmd := &cobra.Command{
		Use:   "move GROUP --to NODE",
		Short: "Have another node coordinate a group",
		Long: `Give a group another home: the node that coordinates its members, wherever they connect. It can be asked
for at any node; the home and the new one must be connected. Members are told to join again and go on
where the group has committed: no commit that was acknowledged is lost.

With --force a group is taken from a home that cannot be reached. That node knows nothing of it until it
is back, and its own clients may go on there: until then members on both sides get the same records. What
both have committed is joined then, and the greater offset stands.`,
		Example: `  lattice group move billing --to 8c2f
  lattice group move billing --to 8c2f --force`,
		Args: exactly("GROUP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				return cli.Usagef("needs --to NODE")
			}
			if force {
				if err := a.confirm(yes, "Take group %s from its home if that cannot be reached? Members there and here then get the same records.", args[0]); err != nil {
					return err
				}
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			m, err := c.MoveGroup(cmd.Context(), args[0], to, force)
			switch {
			case err == nil:
			case lattice.KindOf(err) == lattice.Unavailable && client.Hint(err) == "":
				return cli.Hint(err, "lattice peer list says who is reachable")
			default:
				return err
			}
			return a.print(map[string]string{"group": args[0], "old_home": m.OldHome, "home": m.Home}, func() error {
				_, err := fmt.Fprintf(a.stdout, "group %s is at home on %s\n", args[0], cli.Short(m.Home))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the member that is to coordinate it, by its key or how that begins")
	cmd.Flags().BoolVar(&force, "force", false, "take it from a home that cannot be reached")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	a.outputFlag(cmd)
	a.completeFirst(cmd, groupNames)
	a.clientFlags(cmd)
	return cmd
}
