package main

import (
	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/internal/cli"
)

func newCompletion(a *app) *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a completion script for a shell",
		Example: `  source <(lattice completion bash)
  lattice completion zsh > "${fpath[1]}/_lattice"
  lattice completion fish > ~/.config/fish/completions/lattice.fish`,
		ValidArgs: shells,
		Args:      exactly("bash|zsh|fish"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(a.stdout, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(a.stdout)
			case "fish":
				return cmd.Root().GenFishCompletion(a.stdout, true)
			}
			return cli.Usagef("knows no shell %q; want bash, zsh or fish", args[0])
		},
	}
}
