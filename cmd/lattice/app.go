package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/internal/cli"
	"github.com/lattice-log/lattice/pipeline/spec"
)

// newApp is the family of commands on event-sourced applications.
func newApp(a *app) *cobra.Command {
	return family("app", "Check and run event-sourced applications",
		newAppCheck(a), newAppRun(a), newAppRuntime(a), newAppProjector(a), newAppGateway(a), newAppBrowser(a), newAppDLQ(a), newAppRebuild(a), newAppLag(a))
}

// loadApp reads an application that must be without mistakes.
func loadApp(dir string) (*spec.App, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, cli.Hint(fmt.Errorf("open the application: %w", err), "DIR is the directory that holds app.causet or app.yaml")
	}
	defer root.Close()
	application, err := spec.Load(root.FS())
	if err != nil {
		return nil, cli.Hint(fmt.Errorf("read the application: %w", err), "lattice app check %s", dir)
	}
	return application, nil
}
