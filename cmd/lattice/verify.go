package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/proof"
	"github.com/lattice-log/lattice/internal/cli"
)

// verdict is what "lattice verify -o json" prints.
type verdict struct {
	Valid  bool   `json:"valid"`
	What   string `json:"what"`
	Reason string `json:"reason"` // why not; empty when valid
}

func newVerify(a *app) *cobra.Command {
	var store string
	cmd := &cobra.Command{
		Use:   "verify PROOF-FILE | --data DIR",
		Short: "Check a proof, or a whole data directory",
		Long: `Check a proof file (- for standard input) from its bytes alone, or with --data a whole
data directory: every segment, index, tree, checkpoint and grant is re-derived from the
bytes. Exit code 0: all is as it should be; 1: it is not, and the reason is printed.

A proof shows that a record is in the log of a topic of one store, or what a key of one store
holds. Which store that should be only you can say: compare the printed id, or let --store do it.`,
		Example: `  lattice verify order.proof --store 3f9c...
  lattice verify --data /var/lib/lattice`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) > 1:
				return cli.Usagef("does not know what to do with %q", args[1])
			case len(args) == 1 && a.data != "":
				return cli.Usagef("give PROOF-FILE or --data, and not both")
			case len(args) == 0 && a.data == "":
				return cli.Usagef("needs PROOF-FILE, or --data DIR")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var pin *lattice.StoreID
			if store != "" {
				id, err := lattice.ParseStoreID(store)
				if err != nil {
					return cli.Usagef("--store: %v", err)
				}
				pin = &id
			}
			if len(args) == 0 {
				if pin != nil {
					return cli.Usagef("--store goes with PROOF-FILE")
				}
				return a.verifyData(cmd)
			}
			return a.verifyProof(args[0], pin)
		},
	}
	cmd.Flags().StringVar(&store, "store", "", "the store's id: anything of another store is refused")
	a.outputFlag(cmd)
	return cmd
}

func (a *app) verifyProof(path string, pin *lattice.StoreID) error {
	f, err := a.openInput(path)
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, proof.MaxSize+1))
	if err != nil {
		return fmt.Errorf("read the proof: %w", err)
	}
	if proof.IsKey(b) {
		return a.verifyKey(path, b, pin)
	}
	r, err := proof.Verify(b)
	if err == nil && pin != nil && r.Store != *pin {
		err = otherStore(r.Store, *pin)
	}
	if err != nil {
		return a.judge(verdict{What: "proof " + path, Reason: err.Error()}, "")
	}
	return a.judge(verdict{Valid: true, What: r.What}, proofDetails(r, pin))
}

func otherStore(is, want lattice.StoreID) error {
	return fmt.Errorf("the proof is of store %s, not of %s", is, want)
}

// judge prints a verdict and ends with its exit code.
func (a *app) judge(v verdict, details string) error {
	err := a.print(v, func() error {
		if !v.Valid {
			_, err := fmt.Fprintf(a.stdout, "NOT VALID: %s\n  %s\n", v.What, strings.ReplaceAll(v.Reason, "\n", "\n  "))
			return err
		}
		_, err := fmt.Fprintf(a.stdout, "valid: %s\n%s", v.What, details)
		return err
	})
	if err == nil && !v.Valid {
		return cli.Exit(cli.ExitFailed)
	}
	return err
}

// proofDetails is what a valid proof shows, for people.
func proofDetails(r proof.Result, pin *lattice.StoreID) string {
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "  %-10s %s\n", what, fmt.Sprintf(format, args...))
	}
	c := r.Checkpoint
	line("store", "%s (%s)", r.Store, r.StoreName)
	line("topic", "%s (%s), partition %d", r.TopicName, r.Topic, r.Partition)
	if r.Kind == proof.Record {
		line("time", "%s", cli.Time(time.UnixMilli(r.Record.Timestamp)))
		line("key", "%s", shownBytes(r.Record.Key))
		line("value", "%s", shownBytes(r.Record.Value))
		for _, h := range r.Record.Headers {
			line("header", "%s: %s", h.Key, shownBytes(h.Value))
		}
	}
	line("log", "%d blocks, offsets %d to %d, term %d", c.Size, c.Start, c.End, c.Term)
	line("root", "%s", c.Root)
	line("signed by", "%s at %s", r.Author, cli.Time(time.UnixMilli(int64(c.Time>>16))))
	for _, w := range r.Cosigners {
		line("witness", "%s at %s", w.Author, cli.Time(time.Unix(int64(w.Time), 0)))
	}
	if pin == nil {
		b.WriteString("Compare the store's id with the one you expect, or give it as --store.\n")
	}
	return b.String()
}

// shownBytes writes a key or value for people: text as it is, up to a line.
func shownBytes(b []byte) string {
	const most = 120
	switch {
	case b == nil:
		return "null"
	case !utf8.Valid(b):
		return fmt.Sprintf("%d bytes, %x", len(b), b[:min(len(b), most/2)])
	case len(b) > most:
		return fmt.Sprintf("%q... (%d bytes)", b[:most], len(b))
	}
	return fmt.Sprintf("%q", b)
}
