package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
	"github.com/lattice-log/lattice/internal/nearest"
	"github.com/lattice-log/lattice/node"
)

// app is what every subcommand works with.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string

	data    string // --data
	nodeURL string // --node
	token   string // --token-file
	store   string // --store
	output  string // -o
}

// env returns the value of an environment variable, or "".
func (a *app) env(name string) string {
	for _, kv := range a.environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "lattice",
		Short: "Logs and state that replicate peer to peer and can be proven",
		Long: `Lattice is one binary: a node that any Kafka client and any Redis client can
use, and the commands that work with it. Every partition is a signed log with a Merkle
tree, so that a record can be proven to someone who does not trust the node.

Start a node with "lattice up"; the other commands find it through the data directory.`,
		Example: `  lattice up
  seq 1000 | lattice produce numbers
  lattice consume numbers --max 3`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.PersistentFlags().StringVar(&a.data, "data", "", "data directory of the node (env LATTICE_DATA; default ~/.local/share/lattice)")
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		newUp(a), newInit(a), newStatus(a), newVersion(a), newStore(a),
		newTopic(a), newProduce(a), newConsume(a), newGroup(a), newKV(a), newPeer(a), newShell(a),
		newProof(a), newVerify(a), newApp(a), newBench(a), newConfig(a), newCompletion(a),
	)
	root.SetHelpCommand(&cobra.Command{Use: "help", Hidden: true, Args: knownCommand, RunE: help})
	return root
}

// help is "lattice help COMMAND...".
func help(cmd *cobra.Command, args []string) error {
	target, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return cli.Usagef("unknown command %q", strings.Join(args, " "))
	}
	return target.Help()
}

// family returns a command that only has subcommands.
func family(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Usagef("needs one of: %s", strings.Join(commandNames(cmd), ", "))
		},
	}
	cmd.AddCommand(subs...)
	return cmd
}

// knownCommand refuses words that are no subcommand and names the nearest one.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || cmd.Name() == "help" {
		return nil
	}
	if best, ok := nearest.Name(args[0], commandNames(cmd)); ok {
		return cli.Usagef("unknown command %q; did you mean %q?", args[0], best)
	}
	return cli.Usagef("unknown command %q", args[0])
}

func commandNames(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// flagError turns cobra's complaint into wrong usage, and names the nearest flag.
func flagError(cmd *cobra.Command, err error) error {
	text := err.Error()
	name, ok := strings.CutPrefix(text, "unknown flag: --")
	if short, is := strings.CutPrefix(text, "unknown shorthand flag: '"); is && len(short) > 0 && short[0] >= '0' && short[0] <= '9' {
		return cli.Hint(cli.Usage(err), "put -- before words that begin with a dash: %s -- ...", cmd.CommandPath())
	}
	if !ok {
		return cli.Usage(err)
	}
	var known []string
	for _, f := range strings.Fields(cmd.Flags().FlagUsages()) {
		if long, ok := strings.CutPrefix(f, "--"); ok {
			known = append(known, long)
		}
	}
	if best, ok := nearest.Name(name, known); ok {
		return cli.Usagef("unknown flag --%s; did you mean --%s?", name, best)
	}
	return cli.Usagef("unknown flag --%s", name)
}

// exactly wants these positional arguments, no fewer and no more.
func exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return cli.Usagef("needs %s", strings.Join(names[len(args):], " "))
		case len(args) > len(names):
			return cli.Usagef("does not know what to do with %q", args[len(names)])
		}
		return nil
	}
}

// dataDir returns the data directory as an absolute path.
func (a *app) dataDir() (string, error) {
	dir := a.data
	if dir == "" {
		dir = a.env("LATTICE_DATA")
	}
	if dir == "" {
		dir = node.DefaultData()
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("data directory: %w", err)
	}
	return abs, nil
}

// clientFlags adds the flags of a command that works with one store of a running
// node.
func (a *app) clientFlags(cmd *cobra.Command) {
	a.nodeFlags(cmd)
	cmd.Flags().StringVar(&a.store, "store", "", "one of the node's stores, by name or id (env LATTICE_STORE; default: the node's default store)")
	_ = cmd.RegisterFlagCompletionFunc("store", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.ask(cmd, storeNames)
	})
}

// nodeFlags adds --node to a command that talks to a running node.
func (a *app) nodeFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.nodeURL, "node", "", "URL of the node's API, instead of --data (env LATTICE_NODE)")
	cmd.Flags().StringVar(&a.token, "token-file", "", "file with the token for --node (env LATTICE_TOKEN holds the token itself)")
}

// dial connects to the node that --node, LATTICE_NODE or --data name. --data on
// the command line wins over LATTICE_NODE.
func (a *app) dial() (*client.Client, error) {
	url := a.nodeURL
	switch {
	case url != "" && a.data != "":
		return nil, cli.Usagef("give --data or --node, and not both")
	case url == "" && a.data == "":
		url = a.env("LATTICE_NODE")
	}
	if a.store == "" {
		a.store = a.env("LATTICE_STORE")
	}
	if url != "" {
		token, err := a.readToken()
		if err != nil {
			return nil, err
		}
		return client.Dial(client.Options{URL: url, Token: token, Store: a.store})
	}
	if a.token != "" {
		return nil, cli.Usagef("--token-file goes with --node")
	}
	dir, err := a.dataDir()
	if err != nil {
		return nil, err
	}
	return client.Dial(client.Options{DataDir: dir, Store: a.store})
}

// readToken returns what --token-file or LATTICE_TOKEN holds.
func (a *app) readToken() (string, error) {
	if a.token == "" {
		return a.env("LATTICE_TOKEN"), nil
	}
	b, err := os.ReadFile(a.token)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if t := strings.TrimSpace(line); t != "" && t[0] != '#' {
			return t, nil
		}
	}
	return "", fmt.Errorf("token: %s holds none", a.token)
}

// outputFlag adds -o text|json.
func (a *app) outputFlag(cmd *cobra.Command) { a.outputChoice(cmd, "text", "json") }

// outputChoice adds -o with these values, the first of which is the default.
func (a *app) outputChoice(cmd *cobra.Command, allowed ...string) {
	f := &choice{value: &a.output, allowed: allowed}
	a.output = allowed[0]
	cmd.Flags().VarP(f, "output", "o", strings.Join(allowed, ", "))
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if !cmd.Flags().Changed("output") {
			a.output = allowed[0]
		}
		return nil
	}
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp))
}

// print writes v as JSON when that was asked for, and otherwise calls text.
func (a *app) print(v any, text func() error) error {
	if a.output == "json" {
		return cli.WriteJSON(a.stdout, v)
	}
	return text()
}

// choice is a flag that takes one of a few words.
type choice struct {
	value   *string
	allowed []string
}

func (c *choice) String() string {
	if c.value == nil {
		return ""
	}
	return *c.value
}

func (c *choice) Type() string { return strings.Join(c.allowed, "|") }

func (c *choice) Set(s string) error {
	for _, a := range c.allowed {
		if s == a {
			*c.value = s
			return nil
		}
	}
	return fmt.Errorf("want one of %s", strings.Join(c.allowed, ", "))
}

// confirm asks before something that cannot be undone, when a person is there
// to answer.
func (a *app) confirm(yes bool, question string, args ...any) error {
	if yes || !cli.IsTerminal(a.stdin) || !cli.IsTerminal(a.stderr) {
		return nil
	}
	fmt.Fprintf(a.stderr, question+" [y/N] ", args...)
	var answer string
	if _, err := fmt.Fscanln(a.stdin, &answer); err == nil && strings.HasPrefix(strings.ToLower(answer), "y") {
		return nil
	}
	fmt.Fprintln(a.stderr, "Nothing was done.")
	return cli.Exit(cli.ExitFailed)
}

// warnf tells people something that is no error.
func (a *app) warnf(format string, args ...any) { fmt.Fprintf(a.stderr, format+"\n", args...) }

// openInput opens a file, or standard input for "-".
func (a *app) openInput(path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(a.stdin), nil
	}
	return os.Open(path)
}
