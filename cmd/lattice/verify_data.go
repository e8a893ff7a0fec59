package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/engine/fsck"
	"github.com/lattice-log/lattice/internal/cli"
	"github.com/lattice-log/lattice/node"
)

// directoryVerdict is what "lattice verify --data -o json" prints.
type directoryVerdict struct {
	verdict
	Report fsck.Report `json:"report"`
}

// verifyData checks the data directory of a stopped node.
func (a *app) verifyData(cmd *cobra.Command) error {
	dir, err := a.dataDir()
	if err != nil {
		return err
	}
	bar := newPercent(a)
	r, err := node.Check(dir, fsck.Options{Progress: func(p fsck.Progress) error {
		bar.show(p.Done, p.Total)
		return cmd.Context().Err()
	}})
	bar.clear()
	var held *node.HeldError
	switch {
	case errors.As(err, &held):
		return cli.Hint(err, "stop the node first: kill %d", held.PID)
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted: the rest was not checked")
	case err != nil:
		return err
	}
	v := directoryVerdict{verdict{Valid: r.Valid(), What: "data directory " + dir}, r}
	if !v.Valid {
		v.Reason = damage(r)
	}
	if a.output == "json" {
		if err := cli.WriteJSON(a.stdout, v); err != nil {
			return err
		}
		if !v.Valid {
			return cli.Exit(cli.ExitFailed)
		}
		return nil
	}
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "  %s\n", f)
	}
	if r.Omitted > 0 {
		fmt.Fprintf(&b, "  and %s more\n", cli.Count(r.Omitted))
	}
	if v.Valid {
		return a.judge(verdict{Valid: true, What: v.What}, fmt.Sprintf("  %s\n%s", r, b.String()))
	}
	v.Reason = r.String() + "\n" + strings.TrimRight(strings.ReplaceAll(b.String(), "\n  ", "\n"), "\n")
	return a.judge(v.verdict, "")
}

// damage names what is damaged, the first things first.
func damage(r fsck.Report) string {
	var all []string
	for _, f := range r.Findings {
		if f.Severity == fsck.Damage {
			all = append(all, f.String())
		}
	}
	const most = 20
	if n := len(all); n > most {
		all = append(all[:most], fmt.Sprintf("and %d more", n-most))
	}
	return strings.Join(all, "\n")
}

// percent shows how far a check is, on a terminal.
type percent struct {
	a     *app
	drawn bool
	last  int64
}

func newPercent(a *app) *percent { return &percent{a: a, last: -1} }

func (p *percent) show(done, total int64) {
	if total <= 0 || !cli.IsTerminal(p.a.stderr) {
		return
	}
	if now := done * 100 / total; now != p.last {
		p.last, p.drawn = now, true
		fmt.Fprintf(p.a.stderr, "\r\x1b[Kchecked %s of %s (%d%%)", cli.Bytes(done), cli.Bytes(total), now)
	}
}

func (p *percent) clear() {
	if p.drawn {
		fmt.Fprint(p.a.stderr, "\r\x1b[K")
	}
}
