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
	path, err := a.execute(ctx, args, func(path string) string { return path + " --help" })
	return cli.Report(stderr, path, err)
}

// execute runs one command line, and returns the path of its command. An error
// without a next step gets one: the client's, or for wrong usage what help makes of that path.
func (a *app) execute(ctx context.Context, args []string, help func(path string) string) (path string, err error) {
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	cmd, err := root.ExecuteContextC(ctx)
	path = cmd.CommandPath()
	if err != nil && cli.HintOf(err) == "" {
		if h := client.Hint(err); h != "" {
			err = cli.Hint(err, "%s", h)
		} else if cli.IsUsage(err) {
			err = cli.Hint(err, "%s", help(path))
		}
	}
	return path, err
}
