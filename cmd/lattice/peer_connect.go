package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

func newPeerConnect(a *app) *cobra.Command {
	once := false
	cmd := &cobra.Command{
		Use:   "connect [NODE] ADDRESS...",
		Short: "Call a member at an address",
		Long: `Call a member at addresses, multiaddrs such as /ip4/192.0.2.7/tcp/7946, and wait until it is connected.
NODE is its key or how that begins; without it, whichever member answers there. The addresses are noted
when it answers, so that it is called there later, too; --once leaves that. Members are found by
themselves where they were before, and where others reach them: this is for one that moved while this node
was away, or that nobody else reaches.`,
		Example: `  lattice peer connect /ip4/192.0.2.7/tcp/7946
  lattice peer connect 8c2f /dns4/b.example.org/tcp/7946 --once`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("needs ADDRESS")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "do not note the addresses for later")
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		node := ""
		if !strings.HasPrefix(args[0], "/") {
			node, args = args[0], args[1:]
		}
		if len(args) == 0 {
			return cli.Usagef("want an address where %s is, such as /ip4/192.0.2.7/tcp/7946", node)
		}
		return a.withClient(func(c *client.Client) error {
			n, err := c.ConnectPeer(cmd.Context(), node, args, once)
			if err != nil {
				return err
			}
			return a.print(map[string]any{"node": n, "noted": !once}, func() error {
				_, err := fmt.Fprintf(a.stdout, "connected with %s\n", cli.Short(n))
				return err
			})
		})
	}
	return cmd
}

func newPeerForget(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "forget NODE",
		Short: "Forget where a member is called, and disconnect it",
		Long: `Forget the addresses of a member, named by its key or how that begins, and end the connection with it.
It stays a member: when it calls this node, or another says where it is, they talk again. To take its rights
away there is lattice peer remove.`,
		Example: `  lattice peer forget 8c2f`,
		Args:    exactly("NODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *client.Client) error {
				old, err := c.ForgetPeer(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if old == nil {
					old = []string{}
				}
				return a.print(map[string]any{"node": args[0], "addresses": old}, func() error {
					_, err := fmt.Fprintf(a.stdout, "forgot %s of %s\n", cli.Of(len(old), "address"), args[0])
					return err
				})
			})
		},
	}
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}
