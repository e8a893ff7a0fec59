package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/internal/cli"
	"github.com/lattice-log/lattice/pipeline/spec"
)

// problemRow is one problem of "lattice app check -o json".
type problemRow struct {
	File    string `json:"file"`
	Line    int    `json:"line"`   // from 1; 0: the whole file
	Column  int    `json:"column"` // from 1; 0: not known
	Warning string `json:"warning,omitempty"`
	Text    string `json:"text"`
}

func newAppCheck(a *app) *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   "check DIR",
		Short: "Check an application's files without running anything",
		Long: `Read the application in DIR (app.causet or app.yaml, and the files that it includes) and
report every mistake with its file, line and column, what was expected and the nearest known
name. What is read and has no effect is a warning, with a name in brackets. Exit code 0:
it can run; 1: there are mistakes, or, with --strict, warnings.`,
		Example: `  lattice app check examples/concertapp
  lattice app check . -o json`,
		Args: exactly("DIR"),
		RunE: func(_ *cobra.Command, args []string) error { return a.appCheck(args[0], strict) },
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "fail on warnings, too")
	a.outputFlag(cmd)
	return cmd
}

func (a *app) appCheck(dir string, strict bool) error {
	root, err := os.OpenRoot(dir) // a link out of the directory is refused
	if err != nil {
		return cli.Hint(fmt.Errorf("open the application: %w", err), "DIR is the directory that holds app.causet or app.yaml")
	}
	defer root.Close()
	application, problems := spec.Check(root.FS())
	mistakes, warnings := len(problems.Mistakes()), len(problems.Warnings())
	failed := mistakes > 0 || strict && warnings > 0
	rows := make([]problemRow, 0, len(problems))
	for _, p := range problems {
		rows = append(rows, problemRow{p.File, p.Line, p.Column, p.Warning, p.Text})
	}
	doc := map[string]any{"valid": !failed, "problems": rows}
	if application != nil {
		doc["app"], doc["version"], doc["tenantSchema"] = application.Name, application.Version, application.TenantSchema("")
	}
	err = a.print(doc, func() error {
		for _, p := range problems {
			fmt.Fprintln(a.stdout, p)
		}
		if application == nil {
			_, err := fmt.Fprintf(a.stdout, "The application has %s and %s.\n", counted(mistakes, "mistake"), counted(warnings, "warning"))
			return err
		}
		_, err := fmt.Fprintf(a.stdout, "%s (%s) is valid, with %s: %s, %s, %s, %s.\n", application.Name, application.Version,
			counted(warnings, "warning"), counted(len(application.Events), "event"), counted(len(application.Intents), "intent"),
			counted(len(application.Projections), "projection"), counted(len(application.Queries), "query"))
		return err
	})
	if err == nil && failed {
		err = cli.Exit(cli.ExitFailed)
	}
	return err
}

// counted writes a number with its noun.
func counted(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case noun == "query":
		return fmt.Sprintf("%d queries", n)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
