// Command lattice runs a Lattice node and talks to one.
//
// Each subcommand has a file of its own that parses flags, makes the calls and
// prints; whatever is worth testing by itself lives in other packages.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

// Set at link time by "make build"; empty otherwise.
var version, commit string

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is the whole program but for the exit.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, environ: os.Environ()}
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && cli.HintOf(err) == "" {
		if h := client.Hint(err); h != "" {
			err = cli.Hint(err, "%s", h)
		} else if cli.IsUsage(err) {
			err = cli.Hint(err, "%s --help", cmd.CommandPath())
		}
	}
	return cli.Report(stderr, cmd.CommandPath(), err)
}
