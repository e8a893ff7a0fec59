package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/core/snapshot"
	"github.com/lattice-log/lattice/internal/cli"
)

func newStoreExport(a *app) *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "export FILE",
		Short: "Copy a store's keys to a file",
		Long: `Copy a snapshot of a store's state, as it is now, to a file: keys, members, topics'
configurations and committed offsets, not the records of topics. The file is signed by the
node; lattice store import takes it, on this node or another. A copy that was broken off
goes on where it stopped when the command is given again; for that the node keeps the snapshot
(lattice store snapshot --list), which goes when a copy was made in one go.`,
		Example: `  lattice store export main.lattice`,
		Args:    exactly("FILE"),
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "no progress")
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withClient(func(c *client.Client) error {
			s, err := a.export(cmd.Context(), c, args[0], quiet)
			if err != nil {
				return err
			}
			out := map[string]any{"file": args[0], "snapshot": snapshotRowOf(s)}
			return a.print(out, func() error {
				_, err := fmt.Fprintf(a.stdout, "exported snapshot %s to %s, %s\nroot %s\n", s.ID[:16], args[0], cli.Bytes(s.Bytes), s.Root)
				return err
			})
		})
	}
	return cmd
}

// export copies a snapshot to a file beside path, which then takes its name. The
// name of the part says of which snapshot it is.
func (a *app) export(ctx context.Context, c *client.Client, path string, quiet bool) (client.Snapshot, error) {
	all, err := c.Snapshots(ctx)
	if err != nil {
		return client.Snapshot{}, err
	}
	s, at, err := resume(all, path)
	if err != nil {
		return s, err
	}
	kept := true // perhaps by somebody who asked for it
	if s.ID == "" {
		if s, err = c.TakeSnapshot(ctx); err != nil {
			return s, err
		}
		kept = slices.ContainsFunc(all, func(o client.Snapshot) bool { return o.ID == s.ID })
	} else {
		a.warnf("going on at %s of %s of snapshot %s", cli.Bytes(at), cli.Bytes(s.Bytes), s.ID[:16])
	}
	part := partName(path, s.ID)
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return s, err
	}
	meter := a.meter(quiet, "exported", cli.OfBytes(s.Bytes))
	err = func() error {
		if err := f.Truncate(at); err != nil {
			return err
		}
		for at < s.Bytes {
			b, err := c.ReadSnapshot(ctx, s.ID, at)
			if err != nil {
				return err
			}
			if len(b) == 0 {
				return lattice.E(lattice.Corrupt, fmt.Errorf("the snapshot ends at %d of %d bytes", at, s.Bytes))
			}
			if _, err := f.WriteAt(b, at); err != nil {
				return err
			}
			at += int64(len(b))
			meter.Add(1, int64(len(b)))
		}
		return f.Sync()
	}()
	meter.Stop()
	if err = errors.Join(err, f.Close()); err != nil {
		return s, cli.Hint(err, "give the command again: it goes on at %s", cli.Bytes(at))
	}
	good, ended, err := whole(part)
	if err == nil && (!ended || good != s.Bytes) {
		err = fmt.Errorf("it is whole up to byte %d of %d", good, s.Bytes)
	}
	if err != nil {
		return s, lattice.E(lattice.Corrupt, errors.Join(fmt.Errorf("the copy in %s is damaged: %w", part, err), os.Remove(part)))
	}
	if err := os.Rename(part, path); err != nil || kept || s.Base {
		return s, err
	}
	if err := c.DropSnapshot(ctx, s.ID); err != nil {
		a.warnf("the node keeps the snapshot: %v", err)
	}
	return s, nil
}

func partName(path, id string) string { return path + "." + id + ".part" }

// resume looks for a copy that was broken off, of a snapshot that the node still has.
func resume(all []client.Snapshot, path string) (client.Snapshot, int64, error) {
	for _, s := range all {
		good, _, err := whole(partName(path, s.ID))
		if err == nil && good > 0 {
			return s, good, nil
		}
	}
	stale, err := filepath.Glob(path + ".*.part")
	for _, name := range stale {
		err = errors.Join(err, os.Remove(name))
	}
	return client.Snapshot{}, 0, err
}

// whole says how much of a file is a snapshot's, undamaged.
func whole(path string) (int64, bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false, err
	}
	defer func() { _ = f.Close() }()
	return snapshot.Whole(bufio.NewReaderSize(f, 1<<20))
}

func newStoreImport(a *app) *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Join a store's keys with those of a file",
		Long: `Give the node a file that lattice store export made. The node checks all of it, with the
signature and the state root, before anything counts. If it has the store, the states are joined:
what was written apart stays, what either had deleted stays deleted, conflicts show as heads; topics
that come with it are there at once. If it does not have the store, it makes it, and can read its
keys; unless the store's members made this node one, it can write none. Records of topics are not in
the file. A copy that was broken off goes on where it stopped when the command is given again.`,
		Example: `  lattice store import main.lattice`,
		Args:    exactly("FILE"),
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "no progress")
	a.outputFlag(cmd)
	a.nodeFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withClient(func(c *client.Client) error {
			got, err := a.importFile(cmd.Context(), c, args[0], quiet)
			if err != nil {
				return err
			}
			return a.print(got, func() error { return a.printImported(got) })
		})
	}
	return cmd
}

func (a *app) printImported(got client.Imported) error {
	said := "joined with store"
	switch {
	case got.Made:
		said = "made store"
	case !got.Changed:
		said = "nothing new for store"
	}
	_, err := fmt.Fprintf(a.stdout, "%s %s (%s): %s, %s that %s not here\nsigned by %s\n",
		said, got.Store.Name, got.Store.ID, cli.Of(got.Rows, "row"), cli.Of(got.Entries, "entry"), wasOrWere(got.Entries), got.Signer)
	if err == nil && got.Role != "writer" && got.Role != "admin" && got.Role != "owner" {
		a.warnf("this node is no writer of the store (%s): it can read its keys, and what it writes is refused", got.Role)
	}
	return err
}

func wasOrWere(n uint64) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

func (a *app) importFile(ctx context.Context, c *client.Client, path string, quiet bool) (client.Imported, error) {
	f, err := os.Open(path)
	if err != nil {
		return client.Imported{}, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return client.Imported{}, err
	}
	size := info.Size()
	sum, err := snapshot.SumAt(f, size)
	if err == nil {
		_, err = snapshot.NewReader(io.NewSectionReader(f, 0, size))
	}
	if err != nil {
		return client.Imported{}, cli.Hint(fmt.Errorf("%s: %w", path, err), "is it a file that lattice store export finished?")
	}
	at, done, err := c.SendSnapshot(ctx, sum.String(), size, 0, nil)
	if err != nil {
		return client.Imported{}, err
	}
	if at > 0 && done == nil {
		a.warnf("going on at %s of %s", cli.Bytes(at), cli.Bytes(size))
	}
	meter := a.meter(quiet, "sent", cli.OfBytes(size))
	defer meter.Stop()
	b := make([]byte, 1<<20)
	for done == nil {
		n, err := f.ReadAt(b, at)
		if n == 0 {
			return client.Imported{}, fmt.Errorf("read %s at %d: %w", path, at, err)
		}
		next := at
		if next, done, err = c.SendSnapshot(ctx, sum.String(), size, at, b[:n]); err != nil {
			return client.Imported{}, cli.Hint(err, "give the command again when that is mended: it goes on where it is")
		}
		if next <= at && done == nil {
			return client.Imported{}, lattice.E(lattice.Conflict, fmt.Errorf("the node has %d bytes of it, and had %d: does somebody else send it?", next, at))
		}
		meter.Add(1, next-at)
		at = next
	}
	return *done, nil
}
