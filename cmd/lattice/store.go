package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
	"github.com/lattice-log/lattice/internal/nearest"
)

func newStore(a *app) *cobra.Command {
	return family("store", "Create, list, choose, copy and prune stores",
		newStoreCreate(a), newStoreList(a), newStoreUse(a), newStoreInfo(a), newStoreFork(a), newStoreSync(a),
		newStoreSnapshot(a), newStorePrune(a), newStoreExport(a), newStoreImport(a))
}

// storeRow is a store as JSON.
type storeRow struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Created     string `json:"created"`
	Default     bool   `json:"default"`
	Incarnation uint64 `json:"incarnation"`
	Topics      int32  `json:"topics"`
	Partitions  int32  `json:"partitions"`
	Bytes       int64  `json:"bytes"`
	Role        string `json:"role"`
	Creator     string `json:"creator"`
	ForkOf      string `json:"fork_of,omitempty"`
}

func storeRowOf(s client.Store) storeRow {
	return storeRow{s.ID, s.Name, cli.Time(s.Created), s.Default, s.Incarnation, s.Topics, s.Partitions, s.Bytes, s.Role, s.Creator, s.ForkOf}
}

func newStoreCreate(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a store on the node",
		Long: `Make a store: a space of its own, with topics, groups and keys that no other store sees.
The node becomes its owner and only member. No other command makes one but lattice store fork
and import: a mistyped --store is an error.`,
		Args: exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *client.Client) error {
				s, err := c.CreateStore(cmd.Context(), args[0])
				if err != nil && lattice.KindOf(err) == lattice.Exists {
					return cli.Hint(err, "lattice store info %s, or choose another name", args[0])
				}
				if err != nil {
					return err
				}
				return a.print(storeRowOf(s), func() error {
					_, err := fmt.Fprintf(a.stdout, "created store %s (%s)\nUse it: --store %s, or lattice store use %[1]s\n", s.Name, s.ID, s.Name)
					return err
				})
			})
		},
	}
	a.outputFlag(cmd)
	a.nodeFlags(cmd)
	return cmd
}

func newStoreList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the node's stores",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(func(c *client.Client) error {
				stores, err := c.Stores(cmd.Context())
				if err != nil {
					return err
				}
				rows := make([]storeRow, len(stores))
				for i, s := range stores {
					rows[i] = storeRowOf(s)
				}
				return a.print(map[string]any{"stores": rows}, func() error {
					t := cli.NewTable("STORE", "DEFAULT", ">TOPICS", ">PARTITIONS", ">SIZE", "ROLE", "ID")
					for _, r := range rows {
						if r.ForkOf != "" {
							r.Role += ", fork of " + nameOf(stores, r.ForkOf)
						}
						mark := ""
						if r.Default {
							mark = "*"
						}
						t.Row(r.Name, mark, r.Topics, r.Partitions, cli.Bytes(r.Bytes), r.Role, r.ID)
					}
					_, err := t.WriteTo(a.stdout)
					return err
				})
			})
		},
	}
	a.outputFlag(cmd)
	a.nodeFlags(cmd)
	return cmd
}

// nameOf returns the name of a store, or of one that is not here the beginning of its id.
func nameOf(all []client.Store, id string) string {
	for _, s := range all {
		if s.ID == id {
			return s.Name
		}
	}
	return cli.Short(id)
}

func newStoreUse(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "use NAME|ID",
		Short: "Choose the store that commands mean when they name none",
		Long: `Make a store the node's default: commands without --store and requests that name no
store mean it from now on, also after a restart. The Kafka and Redis listeners change over at
once: their clients are disconnected, and find it when they connect again. Listeners for which the
configuration names a store (kafka.store, redis.store) stay with that.`,
		Args: exactly("NAME|ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *client.Client) error {
				s, err := c.UseStore(cmd.Context(), args[0])
				if err != nil {
					return a.noStore(cmd.Context(), c, args[0], err)
				}
				return a.print(storeRowOf(s), func() error {
					_, err := fmt.Fprintf(a.stdout, "store %s (%s) is the default now\n", s.Name, s.ID)
					return err
				})
			})
		},
	}
	a.completeFirst(cmd, storeNames)
	a.outputFlag(cmd)
	a.nodeFlags(cmd)
	return cmd
}

// infoObject is all that is known of a store, as JSON.
func infoObject(s client.Store) object {
	o := object{
		"id": s.ID, "name": s.Name, "created": cli.Time(s.Created), "creator": s.Creator, "role": s.Role, "default": s.Default, "incarnation": s.Incarnation,
		"topics": s.Topics, "partitions": s.Partitions, "bytes": s.Bytes,
		"frontier": hex.EncodeToString(s.Frontier), "pruned": floorObject(s.Floor),
	}
	o["watermark"] = s.Watermark
	if s.ForkOf != "" {
		o["fork_of"] = s.ForkOf
	}
	if u := s.Upkeep; u != nil {
		k := object{
			"every_ms": u.SnapshotEvery.Milliseconds(), "keep": u.SnapshotKeep, "prune_after_ms": max(u.PruneAfter.Milliseconds(), -1),
			"kept": u.Snapshots, "newest": nil, "pruned_entries": u.PrunedEntries, "failures": u.Failures, "failed": u.Failed,
		}
		if !u.Newest.IsZero() {
			k["newest"] = cli.Time(u.Newest)
		}
		o["snapshots"] = k
	}
	return o
}

// infoText is the same for people.
func infoText(s client.Store) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-11s  "+format+"\n", append([]any{name}, args...)...)
	}
	line("name", "%s", s.Name)
	line("id", "%s", s.ID)
	if s.ForkOf != "" {
		line("fork of", "%s", s.ForkOf)
	}
	line("created", "%s by %s", cli.Time(s.Created), cli.Short(s.Creator))
	line("role", "%s", s.Role)
	line("default", "%v", s.Default)
	line("incarnation", "%d", s.Incarnation)
	line("topics", "%d with %s, %s", s.Topics, cli.Of(s.Partitions, "partition"), cli.Bytes(s.Bytes))
	if u := s.Upkeep; u != nil {
		line("snapshots", "%s", upkeepText(u))
		if u.Failed != "" {
			line("", "failed %s since the start; the last time: %s", cli.Of(u.Failures, "time"), u.Failed)
		}
	}
	if s.Watermark != nil {
		line("watermark", "%s", watermarkText(s.Watermark))
	}
	if s.Floor != nil {
		line("pruned", "%s", floorText(s.Floor))
	}
	return b.String()
}

// watermarkText says what all active members have, and who is behind.
func watermarkText(w *client.Watermark) string {
	text := fmt.Sprintf("all %d active members have %s", len(w.Members), cli.Of(w.Entries, "entry"))
	for _, m := range w.Members {
		if m.Behind > 0 && !m.Self {
			text += fmt.Sprintf("; %s has said to have all but %d", cli.Short(m.Node), m.Behind)
		}
	}
	return text
}

// upkeepText says what snapshots there are and what the node does by itself.
func upkeepText(u *client.Upkeep) string {
	there := "none kept"
	if u.Snapshots > 0 {
		there = fmt.Sprintf("%d kept, the newest of %s", u.Snapshots, cli.Time(u.Newest))
	}
	if u.SnapshotEvery <= 0 {
		return there + "; taken when asked for"
	}
	there += fmt.Sprintf("; one every %s if keys changed, %d stay", u.SnapshotEvery, u.SnapshotKeep)
	switch {
	case u.PruneAfter < 0:
		return there + ", nothing is pruned"
	case u.PruneAfter == 0:
		return there + ", what is below is pruned"
	}
	return there + fmt.Sprintf(", what is below and %s old is pruned", u.PruneAfter)
}

func newStoreInfo(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "info [NAME|ID]",
		Short: "Show one store, or the default one",
		Long: `Show one store, or the default one: its topics, the snapshots of its keys that are kept, when the node
takes and prunes them by itself, and up to where entries were pruned. With -o json also the frontier,
which lattice store prune --below and lattice kv watch --from take.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.Usagef("does not know what to do with %q", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			a.store = name
			return a.withClient(func(c *client.Client) error {
				s, err := c.Store(cmd.Context())
				if err != nil {
					return a.noStore(cmd.Context(), c, name, err)
				}
				return a.print(infoObject(s), func() error {
					_, err := io.WriteString(a.stdout, infoText(s))
					return err
				})
			})
		},
	}
	a.completeFirst(cmd, storeNames)
	a.outputFlag(cmd)
	a.nodeFlags(cmd)
	return cmd
}

// noStore adds the nearest name to an error about a store that is not there.
func (a *app) noStore(ctx context.Context, c *client.Client, name string, err error) error {
	if lattice.KindOf(err) != lattice.NotFound {
		return err
	}
	names, listErr := storeNames(ctx, c)
	if listErr != nil {
		return err
	}
	if best, ok := nearest.Name(name, names); ok {
		return cli.Hint(err, "did you mean %q? lattice store list shows them all", best)
	}
	return cli.Hint(err, "lattice store list shows those there are; lattice store create %s makes it", name)
}

// storeNames lists the stores, for completion.
func storeNames(ctx context.Context, c *client.Client) ([]string, error) {
	stores, err := c.Stores(ctx)
	names := make([]string, len(stores))
	for i, s := range stores {
		names[i] = s.Name
	}
	return names, err
}

// withClient runs f with a connection to the node.
func (a *app) withClient(f func(*client.Client) error) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}
