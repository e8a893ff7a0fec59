package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

// snapshotRow is a snapshot as JSON.
type snapshotRow struct {
	ID    string `json:"id"`
	Taken string `json:"taken,omitempty"`
	Bytes int64  `json:"bytes"`
	Root  string `json:"root"`
	Base  bool   `json:"base"`
}

func snapshotRowOf(s client.Snapshot) snapshotRow {
	r := snapshotRow{ID: s.ID, Bytes: s.Bytes, Root: s.Root, Base: s.Base}
	if !s.Taken.IsZero() {
		r.Taken = cli.Time(s.Taken)
	}
	return r
}

func newStoreSnapshot(a *app) *cobra.Command {
	var list bool
	var drop string
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Keep a snapshot of a store's keys on the node",
		Long: `Write the state of a store as it is now to a snapshot that the node keeps: keys,
members, topics' configurations and committed offsets, not the records of topics. Writes go on
meanwhile. By itself it changes nothing: it is what lattice store prune prunes to, and what
lattice store export copies.`,
		Example: `  lattice store snapshot
  lattice store snapshot --list
  lattice store snapshot --delete 3f9a`,
		Args: exactly(),
	}
	cmd.Flags().BoolVarP(&list, "list", "l", false, "show those there are, and take none")
	cmd.Flags().StringVar(&drop, "delete", "", "id of one to delete, or how it begins; none is taken")
	cmd.MarkFlagsMutuallyExclusive("list", "delete")
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withClient(func(c *client.Client) error {
			if list {
				return a.listSnapshots(cmd.Context(), c)
			}
			if drop != "" {
				return a.dropSnapshot(cmd.Context(), c, drop)
			}
			s, err := c.TakeSnapshot(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(snapshotRowOf(s), func() error {
				_, err := fmt.Fprintf(a.stdout, "snapshot %s, %s\nroot %s\n", s.ID[:16], cli.Bytes(s.Bytes), s.Root)
				return err
			})
		})
	}
	return cmd
}

func (a *app) listSnapshots(ctx context.Context, c *client.Client) error {
	all, err := c.Snapshots(ctx)
	if err != nil {
		return err
	}
	rows := make([]snapshotRow, len(all))
	for i, s := range all {
		rows[i] = snapshotRowOf(s)
	}
	return a.print(map[string]any{"snapshots": rows}, func() error {
		t := cli.NewTable("SNAPSHOT", "TAKEN", ">SIZE", "ROOT")
		for _, r := range rows {
			if r.Base {
				r.Taken = "pruned to"
			}
			t.Row(r.ID[:16], r.Taken, cli.Bytes(r.Bytes), r.Root[:16])
		}
		_, err := t.WriteTo(a.stdout)
		return err
	})
}

func (a *app) dropSnapshot(ctx context.Context, c *client.Client, name string) error {
	id, err := chooseSnapshot(ctx, c, name, 0)
	if err == nil {
		err = c.DropSnapshot(ctx, id)
	}
	if err != nil {
		return err
	}
	return a.print(map[string]any{"deleted": id}, func() error {
		_, err := fmt.Fprintf(a.stdout, "deleted snapshot %s\n", id[:16])
		return err
	})
}

func newStorePrune(a *app) *cobra.Command {
	var to string
	var keep time.Duration
	var yes bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Drop entries that a snapshot covers",
		Long: `Drop the signed entries that a store's state came from, up to a snapshot of it. Keys,
members and offsets stay what they are, with the same state root, and nothing that was deleted
comes back. What goes is history: lattice kv history no longer shows it, watches cannot go back
there, and other nodes get it as a snapshot only. Records of topics are not touched.

Without flags a snapshot is taken first, and everything up to now goes. --keep prunes to the
newest snapshot that is at least so old, --to to a certain one. Entries up to a snapshot are
for good once they are pruned: a member that is removed later, or found to have signed two
entries for one place, keeps what it had written there.`,
		Example: `  lattice store prune
  lattice store prune --keep 720h
  lattice store prune --to 3f9a`,
		Args: exactly(),
	}
	cmd.Flags().StringVar(&to, "to", "", "id of the snapshot to prune to, or how it begins")
	cmd.Flags().DurationVar(&keep, "keep", 0, "prune to the newest snapshot that is at least this old")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.MarkFlagsMutuallyExclusive("to", "keep")
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if keep < 0 {
			return cli.Usagef("--keep %s: want a time to keep", keep)
		}
		return a.withClient(func(c *client.Client) error {
			id, err := chooseSnapshot(cmd.Context(), c, to, keep)
			if err != nil {
				return err
			}
			if err := a.confirm(yes, "Drop the history of all keys up to the snapshot?"); err != nil {
				return err
			}
			p, err := c.Prune(cmd.Context(), id)
			if err != nil && lattice.KindOf(err) == lattice.Conflict {
				return cli.Hint(err, "take a new one: lattice store snapshot, then lattice store prune")
			}
			if err != nil {
				return err
			}
			out := map[string]any{"base": snapshotRowOf(p.Base), "entries": p.Entries, "logs": p.Logs, "bytes": p.Bytes}
			return a.print(out, func() error {
				_, err := fmt.Fprintf(a.stdout, "pruned to snapshot %s: %d entries dropped, %d logs removed, %s freed\nroot %s, as before\n",
					p.Base.ID[:16], p.Entries, p.Logs, cli.Bytes(p.Bytes), p.Base.Root)
				return err
			})
		})
	}
	return cmd
}

// chooseSnapshot returns the id of the snapshot that flags name, empty for one that
// is to be taken.
func chooseSnapshot(ctx context.Context, c *client.Client, to string, keep time.Duration) (string, error) {
	if to == "" && keep == 0 {
		return "", nil
	}
	all, err := c.Snapshots(ctx)
	if err != nil {
		return "", err
	}
	var found []client.Snapshot
	for _, s := range all {
		switch {
		case to != "" && strings.HasPrefix(s.ID, to):
			found = append(found, s)
		case to == "" && !s.Base && time.Since(s.Taken) >= keep:
			found = []client.Snapshot{s} // they come by time
		}
	}
	none := lattice.E(lattice.NotFound, fmt.Errorf("no snapshot %s is kept", to))
	if to == "" {
		none = lattice.E(lattice.NotFound, fmt.Errorf("no snapshot is %s old", keep))
	}
	switch {
	case len(found) == 0:
		return "", cli.Hint(none, "lattice store snapshot --list shows those there are; lattice store snapshot takes one")
	case len(found) > 1:
		return "", lattice.E(lattice.Invalid, fmt.Errorf("%d snapshots begin with %s", len(found), to))
	}
	return found[0].ID, nil
}
