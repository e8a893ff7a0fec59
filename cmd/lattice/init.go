package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/internal/cli"
	"github.com/lattice-log/lattice/node"
)

func newInit(a *app) *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:   "init",
		Short: `Make an identity and the store "main" without starting a node`,
		Long: `Make an identity and the store "main" in the data directory, as the first "lattice up"
does, without serving anything. On a directory that has them it changes nothing.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			loaded, err := a.load(cmd, f)
			if err != nil {
				return err
			}
			made, err := node.Init(cmd.Context(), loaded.Config)
			var held *node.HeldError
			if errors.As(err, &held) {
				return cli.Hint(err, "nothing is left to do: a node runs there")
			}
			if err != nil {
				return err
			}
			return a.print(made, func() error {
				verb := "has"
				if made.Created {
					verb = "now has"
				}
				_, err := fmt.Fprintf(a.stdout, "%s %s\n  node   %s\n  store  %s (main)\nStart it: lattice up%s\n",
					made.Data, verb, made.Node, made.Store, a.dataFlag(loaded.Config))
				return err
			})
		},
	}
	f.add(cmd)
	a.outputFlag(cmd)
	return cmd
}
