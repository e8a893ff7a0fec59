package main

import "github.com/spf13/cobra"

// newApp is the family of commands on event-sourced applications. They need no node.
func newApp(a *app) *cobra.Command {
	return family("app", "Check and run event-sourced applications", newAppCheck(a))
}
