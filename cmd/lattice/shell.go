package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

// shellHistory is how many lines of input are remembered, in the data directory.
const (
	shellHistory     = 1000
	shellHistoryFile = "shell_history"
)

func newShell(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shell",
		Short: "Work with a node interactively",
		Long: `An interactive session with history (up and down, kept in the data directory) and completion
(tab). Ctrl-C empties the line, or ends the command that runs. Every command of lattice works in it
without its first word, and some have short names:

  put KEY VALUE     kv put            create-store NAME   store create
  get KEY           kv get            list-stores         store list
  delete KEY...     kv delete         use NAME            the store of this session
  keys [PREFIX]     kv list           quit, exit, Ctrl-D  end the session

Words are separated by blanks; "double" and 'single' quotes keep blanks, a backslash takes the next
character as it is. Input that is no terminal is read line by line; the first line that fails ends it.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.shell(cmd.Context()) },
	}
	a.clientFlags(cmd)
	return cmd
}

// shortNames are the words of the session that stand for commands.
func shortNames() map[string][]string {
	return map[string][]string{
		"put": {"kv", "put"}, "get": {"kv", "get"}, "delete": {"kv", "delete"}, "keys": {"kv", "list"},
		"create-store": {"store", "create"}, "list-stores": {"store", "list"},
	}
}

// session is one run of the shell.
type session struct {
	a     *app
	store string // "" means the node's default
	tty   *terminal
}

func (a *app) shell(ctx context.Context) error {
	s := &session{a: a, store: a.store}
	if !cli.IsTerminal(a.stdin) || !cli.IsTerminal(a.stdout) {
		return s.script(ctx)
	}
	dir, err := a.dataDir()
	if err != nil {
		return err
	}
	in, inOK := a.stdin.(*os.File)
	out, outOK := a.stdout.(*os.File)
	if !inOK || !outOK {
		return s.script(ctx)
	}
	s.tty = newTerminal(in, out, loadHistory(filepath.Join(dir, shellHistoryFile)), s.complete)
	fmt.Fprintln(a.stdout, `Type a command, "help" for a list, "quit" to end.`)
	for {
		line, err := s.tty.readLine(s.prompt())
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if done, err := s.interactive(line); done {
			return err
		}
	}
}

func (s *session) prompt() string {
	if s.store == "" {
		return "lattice> "
	}
	return "lattice " + s.store + "> "
}

// interactive runs a line; an interrupt ends the command, not the session.
func (s *session) interactive(line string) (done bool, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	done, err = s.line(ctx, line)
	if err != nil {
		cli.Report(s.a.stderr, "lattice", err)
	}
	return done, nil
}

// script runs the lines of an input that is no terminal, up to the first that fails.
func (s *session) script(ctx context.Context) error {
	lines := bufio.NewScanner(s.a.stdin)
	lines.Buffer(nil, maxImportLine)
	for n := 1; lines.Scan(); n++ {
		done, err := s.line(ctx, lines.Text())
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if done {
			return nil
		}
	}
	return lines.Err()
}

// line runs one line of input.
func (s *session) line(ctx context.Context, line string) (done bool, err error) {
	words, err := splitWords(line)
	if err != nil || len(words) == 0 {
		return false, err
	}
	switch words[0] {
	case "quit", "exit":
		return true, nil
	case "use":
		return false, s.use(ctx, words[1:])
	case "shell":
		return false, cli.Usagef("this is the shell")
	case "help":
		words = append(words[:1], expand(words[1:])...)
		if len(words) == 1 {
			return false, s.help()
		}
	case "lattice":
		words = words[1:]
	}
	return false, s.run(ctx, expand(words))
}

// expand replaces a short name by the command that it stands for.
func expand(words []string) []string {
	if len(words) > 0 {
		if long, ok := shortNames()[words[0]]; ok {
			return append(slices.Clone(long), words[1:]...)
		}
	}
	return words
}

// run runs one command as "lattice WORDS..." does, with the session's node and store.
func (s *session) run(ctx context.Context, words []string) error {
	a := *s.a
	a.data, a.nodeURL, a.store, a.output = "", "", "", ""
	a.environ = s.environ()
	_, err := a.execute(ctx, words, func(path string) string { return "help" + strings.TrimPrefix(path, "lattice") })
	return err
}

// environ tells the commands of the session which node and store it works with.
func (s *session) environ() []string {
	env := slices.Clone(s.a.environ)
	if s.a.data != "" {
		env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "LATTICE_NODE=") })
		env = append([]string{"LATTICE_DATA=" + s.a.data}, env...)
	}
	if s.a.nodeURL != "" {
		env = append([]string{"LATTICE_NODE=" + s.a.nodeURL}, env...)
	}
	if token, err := s.a.readToken(); err == nil && token != "" {
		env = append([]string{"LATTICE_TOKEN=" + token}, env...)
	}
	return append([]string{"LATTICE_STORE=" + s.store}, env...)
}

// use changes the store of the session, not the node's default.
func (s *session) use(ctx context.Context, args []string) error {
	if len(args) != 1 || strings.HasPrefix(args[0], "-") {
		return cli.Usagef("use needs the name or id of a store; help store list")
	}
	a := *s.a
	a.store = args[0]
	return a.withClient(func(c *client.Client) error {
		st, err := c.Store(ctx)
		if err != nil {
			return a.noStore(ctx, c, args[0], err)
		}
		s.store = st.Name
		_, err = fmt.Fprintf(a.stdout, "this session works with store %s (%s)\n", st.Name, st.ID)
		return err
	})
}

func (s *session) help() error {
	t := cli.NewTable("COMMAND", "")
	short := shortNames()
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for n := range short {
			if !yield(n) {
				return
			}
		}
	}) {
		t.Row(name, strings.Join(short[name], " "))
	}
	t.Row("use", "the store of this session")
	t.Row("quit", "end the session (also exit, Ctrl-D)")
	for _, c := range newRoot(s.a).Commands() {
		if c.IsAvailableCommand() && c.Name() != "shell" {
			t.Row(c.Name(), c.Short)
		}
	}
	if _, err := t.WriteTo(s.a.stdout); err != nil {
		return err
	}
	_, err := fmt.Fprintln(s.a.stdout, `"help COMMAND" tells more about one.`)
	return err
}

// complete returns the words that the last word of a line could become.
func (s *session) complete(line string) []string {
	words, err := splitWords(line)
	if err != nil {
		return nil
	}
	last := ""
	if n := len(words); n > 0 && !strings.HasSuffix(line, " ") {
		last, words = words[n-1], words[:n-1]
	}
	asked := len(words) > 0 && words[0] == "help" // completed as the command that help is about
	if asked {
		words = words[1:]
	}
	var found []string
	if len(words) == 0 {
		for name := range shortNames() {
			found = append(found, name)
		}
		if found = append(found, "use", "quit"); !asked {
			found = append(found, "help")
		}
	}
	if len(words) > 0 && words[0] == "use" {
		words = []string{"store", "use"}
	}
	var out strings.Builder
	a := *s.a
	a.stdout, a.stderr, a.environ, a.data, a.nodeURL = &out, io.Discard, s.environ(), "", ""
	root := newRoot(&a)
	root.SetOut(&out)
	root.SetErr(io.Discard)
	root.SetArgs(append(append([]string{cobra.ShellCompNoDescRequestCmd}, expand(words)...), last))
	if root.Execute() == nil {
		for l := range strings.Lines(out.String()) {
			if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, ":") {
				found = append(found, l)
			}
		}
	}
	found = slices.DeleteFunc(found, func(f string) bool { return !strings.HasPrefix(f, last) || f == "shell" })
	slices.Sort(found)
	return slices.Compact(found)
}

// splitWords cuts a line into words, as the help describes.
func splitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	in, quote := false, rune(0)
	escaped := false
	for _, r := range line {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			in, escaped = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			in, quote = true, r
		case r == ' ' || r == '\t' || r == '\r' || r == '\n':
			if in {
				words = append(words, word.String())
				word.Reset()
				in = false
			}
		default:
			in = true
			word.WriteRune(r)
		}
	}
	if quote != 0 || escaped {
		return nil, cli.Usagef("the line ends within a quotation")
	}
	if in {
		words = append(words, word.String())
	}
	return words, nil
}

// terminal reads lines from a terminal, with history and completion.
type terminal struct {
	in       *os.File
	out      *os.File
	t        *term.Terminal
	complete func(string) []string
}

func newTerminal(in, out *os.File, h *history, complete func(string) []string) *terminal {
	t := &terminal{in: in, out: out, complete: complete}
	t.t = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{&keys{in: in}, out}, "")
	t.t.History = h
	t.t.AutoCompleteCallback = t.tab
	return t
}

// keys is what is typed. Ctrl-C, which would end the session as Ctrl-D does, empties the
// line instead: as Ctrl-E and Ctrl-U would.
type keys struct {
	in   io.Reader
	rest []byte // read, and not returned yet
	buf  [256]byte
}

func (k *keys) Read(p []byte) (int, error) {
	if len(k.rest) == 0 {
		n, err := k.in.Read(k.buf[:])
		if err != nil {
			return 0, err
		}
		k.rest = bytes.ReplaceAll(k.buf[:n], []byte{ctrlC}, []byte{ctrlE, ctrlU})
	}
	n := copy(p, k.rest)
	k.rest = k.rest[n:]
	return n, nil
}

const (
	ctrlC = 'C' - '@'
	ctrlE = 'E' - '@'
	ctrlU = 'U' - '@'
)

// readLine reads a line. The terminal is raw only meanwhile, so that commands
// find it as usual and an interrupt reaches them. io.EOF: the session ends.
func (t *terminal) readLine(prompt string) (string, error) {
	old, err := term.MakeRaw(int(t.in.Fd()))
	if err != nil {
		return "", fmt.Errorf("terminal: %w", err)
	}
	if w, h, err := term.GetSize(int(t.out.Fd())); err == nil {
		_ = t.t.SetSize(w, h) // a wrong width only looks bad
	}
	t.t.SetPrompt(prompt)
	line, err := t.t.ReadLine()
	if restoreErr := term.Restore(int(t.in.Fd()), old); err == nil {
		err = restoreErr
	}
	if errors.Is(err, io.EOF) {
		fmt.Fprintln(t.out)
	}
	return line, err
}

// tab completes the word before the cursor, as far as it is the same for all
// that fit, and lists them when that is no further.
func (t *terminal) tab(line string, pos int, key rune) (string, int, bool) {
	if key != '\t' {
		return "", 0, false
	}
	head, tail := line[:pos], line[pos:]
	found := t.complete(head)
	if len(found) == 0 {
		return line, pos, true
	}
	last := head[strings.LastIndexAny(head, " \t")+1:]
	common := found[0]
	for _, f := range found {
		for !strings.HasPrefix(f, common) {
			common = common[:len(common)-1]
		}
	}
	if len(found) == 1 {
		common += " "
	}
	if len(common) <= len(last) || !strings.HasPrefix(common, last) {
		fmt.Fprintf(t.t, "%s\n", strings.Join(found[:min(len(found), 50)], "  "))
		return line, pos, true
	}
	head = head[:len(head)-len(last)] + common
	return head + tail, len(head), true
}
