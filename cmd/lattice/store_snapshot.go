package main

import (
	"context"
	"encoding/hex"
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
	var to, below string
	var keep time.Duration
	var yes, anyway bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Drop entries that a snapshot covers",
		Long: `Drop the signed entries that a store's state came from, up to a snapshot of it. Keys,
members and offsets stay what they are, with the same state root, and nothing that was deleted
comes back. What goes is history: lattice kv history no longer shows it, watches cannot go back
there, and other nodes get it as a snapshot only. Records of topics are not touched.

Without flags a snapshot is taken first, and everything up to now goes. --keep prunes to the
newest snapshot that is at least so old, --to to a certain one. --below prunes nothing beyond a
frontier: that of lattice store info -o json, or the resume of a change that lattice kv watch -o json
told of, so that who goes on from there misses nothing. It takes the newest snapshot that is
not beyond it, or one made now if nothing was written since.

In a store with several members it waits: what goes must be with all active members, as each of
them says itself a few seconds after it has something; lattice store info shows what is. Until then it is
refused and nothing happens. --anyway waits for nobody: a member that lacks what goes gets a
snapshot instead, and loses nothing of its own.

Entries up to a snapshot are for good once they are pruned: a member that is removed later, or
found to have signed two entries for one place, keeps what it had written there. The node prunes by
itself if its configuration says so: state.snapshot_every_ms, state.snapshot_keep and
state.prune_after_ms; lattice store info shows what it does.`,
		Example: `  lattice store prune
  lattice store prune --keep 720h
  lattice store prune --to 3f9a
  lattice store prune --anyway
  lattice store prune --below "$(tail -1 changes.jsonl | jq -r .resume)"`,
		Args: exactly(),
	}
	cmd.Flags().StringVar(&to, "to", "", "id of the snapshot to prune to, or how it begins")
	cmd.Flags().DurationVar(&keep, "keep", 0, "prune to the newest snapshot that is at least this old")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().StringVar(&below, "below", "", "prune nothing beyond this frontier")
	cmd.Flags().BoolVar(&anyway, "anyway", false, "do not wait for members that lack what goes")
	cmd.MarkFlagsMutuallyExclusive("to", "keep", "below")
	cmd.MarkFlagsMutuallyExclusive("anyway", "below")
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if keep < 0 {
			return cli.Usagef("--keep %s: want a time to keep", keep)
		}
		frontier, err := hex.DecodeString(below)
		if err != nil || cmd.Flags().Changed("below") && below == "" {
			return cli.Usagef("--below: want a frontier in hex, as lattice store info -o json shows it")
		}
		return a.withClient(func(c *client.Client) error {
			id, err := chooseSnapshot(cmd.Context(), c, to, keep)
			if err != nil {
				return err
			}
			if err := a.confirm(yes, "Drop the history of all keys up to the snapshot?"); err != nil {
				return err
			}
			var p client.Pruned
			switch {
			case len(frontier) > 0:
				p, err = c.PruneBelow(cmd.Context(), frontier)
			case anyway:
				p, err = c.PruneAnyway(cmd.Context(), id)
			default:
				p, err = c.Prune(cmd.Context(), id)
			}
			if err != nil && lattice.KindOf(err) == lattice.NotYet {
				return cli.Hint(err, "wait until they are (lattice store info), or prune --anyway")
			}
			if err != nil && lattice.KindOf(err) == lattice.Conflict {
				return cli.Hint(err, "take a new one: lattice store snapshot, then lattice store prune")
			}
			if err != nil {
				return err
			}
			out := map[string]any{"base": snapshotRowOf(p.Base), "entries": p.Entries, "logs": p.Logs, "bytes": p.Bytes}
			return a.print(out, func() error {
				_, err := fmt.Fprintf(a.stdout, "pruned to snapshot %s: %s dropped, %s removed, %s freed\nroot %s, as before\n",
					p.Base.ID[:16], cli.Of(p.Entries, "entry"), cli.Of(p.Logs, "log"), cli.Bytes(p.Bytes), p.Base.Root)
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
