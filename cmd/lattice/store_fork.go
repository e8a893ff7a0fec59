package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

func newStoreFork(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fork NAME",
		Short: "Make an isolated copy of a store",
		Long: `Make a copy of a store as it is now, called NAME: topics with their records, keys, committed
offsets. What is written in the fork is seen nowhere else, on no other node either, and what is
written in the store from now on is not in the fork. lattice store sync NAME brings the fork's
writes back.

The node leads every partition in the fork, alone. Records of topics are shared with the store
until either drops them, so a fork costs little. In a fork nothing is dropped by retention or
compacted, and members, leaders and what is pruned cannot be changed; a topic that the store has
cannot be deleted. Committed offsets stay the fork's own.`,
		Example: `  lattice store fork trial
  lattice store fork trial --store press`,
		Args: exactly("NAME"),
	}
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withClient(func(c *client.Client) error {
			s, err := c.Fork(cmd.Context(), args[0])
			if err != nil && lattice.KindOf(err) == lattice.Exists {
				return cli.Hint(err, "lattice store info %s, or choose another name", args[0])
			}
			if err != nil {
				return a.noStore(cmd.Context(), c, a.store, err)
			}
			return a.print(storeRowOf(s), func() error {
				_, err := fmt.Fprintf(a.stdout, "forked store %s (%s)\nUse it: --store %s\nBring it back: lattice store sync %[1]s\n", s.Name, s.ID, s.Name)
				return err
			})
		})
	}
	return cmd
}

// syncedPartition is what became of a fork's records in one partition, as JSON.
type syncedPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Same      int64  `json:"same"`
	Moved     int64  `json:"moved"`
	Passed    int64  `json:"passed"`
	Left      int64  `json:"left"`
	Why       string `json:"why"`
}

func newStoreSync(a *app) *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "sync NAME|ID",
		Short: "Bring a fork's writes back to the store that it is of",
		Long: `Bring what was written in a fork back to the store that lattice store fork made it from. Keys
merge as if another node had written them meanwhile: what only one side changed is so, what both
changed has both values as heads (lattice kv heads). Topics that the fork made are there with their
records. In a partition where the store has nothing new, the fork's records keep their offsets;
otherwise they are appended behind what is there, each with a header lattice.fork that says in which
fork it was, and at which offset. Nothing that has an offset is dropped.

Records of aborted transactions are passed over; those of a transaction under way, and what is behind
them, wait. The fork stays, and can be written to and brought back again: nothing is brought twice,
and a sync that was broken off goes on where it was. What the store has since is not brought to the
fork: make another one.`,
		Example: `  lattice store sync trial`,
		Args:    exactly("NAME|ID"),
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "no progress")
	a.completeFirst(cmd, storeNames)
	a.outputFlag(cmd)
	a.nodeFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a.store = args[0]
		return a.withClient(func(c *client.Client) error {
			meter := a.meter(quiet, "brought back")
			got, err := c.Sync(cmd.Context(), func(n int64) { meter.Add(n, 0) })
			meter.Stop()
			switch {
			case err != nil && lattice.KindOf(err) == lattice.NotFound:
				return a.noStore(cmd.Context(), c, args[0], err)
			case err != nil:
				return err
			}
			return a.printSynced(args[0], got)
		})
	}
	return cmd
}

// printSynced says what came of it. What is left is an error, after that.
func (a *app) printSynced(name string, got client.Synced) error {
	parts := []syncedPartition{}
	var left []string
	var same, moved, passed int64
	for _, p := range got.Partitions {
		parts = append(parts, syncedPartition(p))
		same, moved, passed = same+p.Same, moved+p.Moved, passed+p.Passed
		if p.Left > 0 {
			left = append(left, fmt.Sprintf("%s/%d: %s: %s", p.Topic, p.Partition, cli.Of(p.Left, "offset"), p.Why))
		}
	}
	out := map[string]any{"fork": name, "origin": storeRowOf(got.Origin), "entries": got.Entries, "partitions": parts}
	err := a.print(out, func() error {
		var b strings.Builder
		fmt.Fprintf(&b, "brought back to store %s: %s of keys and topics, %s with the same offsets", got.Origin.Name, cli.Of(got.Entries, "entry"), cli.Of(same, "record"))
		if moved > 0 {
			fmt.Fprintf(&b, ", %d behind others", moved)
		}
		if passed > 0 {
			fmt.Fprintf(&b, "; %s without a committed record passed over", cli.Of(passed, "offset"))
		}
		_, err := fmt.Fprintln(a.stdout, b.String())
		return err
	})
	if err == nil && len(left) > 0 {
		err = cli.Hint(errors.New("not all came back; it is kept in the fork:\n  "+strings.Join(left, "\n  ")), "when that is put right, give the command again")
	}
	return err
}
