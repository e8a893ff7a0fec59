package main

import "github.com/spf13/cobra"

// newApp is the family of commands on event-sourced applications.
func newApp(a *app) *cobra.Command {
	return family("app", "Check and run event-sourced applications", newAppCheck(a), newAppRuntime(a))
}
