package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/client"
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

// completeFirst completes the first argument of a command with the names that
// list asks a running node for. Without a node there is nothing to complete.
func (a *app) completeFirst(cmd *cobra.Command, list func(context.Context, *client.Client) ([]string, error)) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.ask(cmd, list)
	}
}

// ask gets names to complete with from a running node.
func (a *app) ask(cmd *cobra.Command, list func(context.Context, *client.Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
	defer cancel()
	c, err := a.dial()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	names, err := list(ctx, c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// topicNames lists the topics, for completion.
func topicNames(ctx context.Context, c *client.Client) ([]string, error) {
	topics, err := c.Topics(ctx)
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Name
	}
	return names, err
}

// groupNames lists the groups, for completion.
func groupNames(ctx context.Context, c *client.Client) ([]string, error) {
	groups, err := c.Groups(ctx)
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.Name
	}
	return names, err
}
