package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

func newKVHeads(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "heads KEY",
		Short: "Show every current version of a key, and which one a read returns",
		Long: `Show the heads of a key: every version that no later write has seen and replaced. There is one
as long as nodes know of each other's writes, and one for each that wrote apart. A read returns
the winner; the next write, which has seen them all, leaves one. A version stays also when the entry
that wrote it was pruned (lattice store prune); its hash is not known then, and the output says so.`,
		Args: exactly("KEY"),
	}
	m := a.keyFlags(cmd)
	a.completeFirst(cmd, keyNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withClient(func(c *client.Client) error {
			heads, more, err := c.Keys(*m).Heads(cmd.Context(), []byte(args[0]))
			if err != nil {
				return a.noKey(err, args[0])
			}
			rows := make([]object, len(heads))
			pruned := false
			for i, h := range heads {
				pruned = pruned || h.Origin.Pruned
				o := object{"type": string(h.Type), "winner": h.Winner, "why": h.Why}
				o.bytes("value", h.Value)
				if h.Type != client.StringKey {
					o.bytes("item", h.Item)
				}
				o.origin(h.Origin)
				rows[i] = o
			}
			doc := object{"heads": rows, "truncated": more}
			doc.bytes("key", []byte(args[0]))
			var floor *client.Floor
			if pruned {
				s, err := c.Store(cmd.Context())
				if err != nil {
					return err
				}
				floor = s.Floor
				doc["pruned"] = floorObject(floor)
			}
			return a.print(doc, func() error { return a.showHeads(heads, more, floor) })
		})
	}
	return cmd
}

// floorObject is up to where entries were pruned, as JSON; nil when they were not.
func floorObject(f *client.Floor) any {
	if f == nil {
		return nil
	}
	o := object{"snapshot": f.Snapshot, "through": cli.Time(f.Through), "pruned": nil}
	if !f.Pruned.IsZero() {
		o["pruned"] = cli.Time(f.Pruned)
	}
	return o
}

// floorText says the same to people.
func floorText(f *client.Floor) string {
	when := ""
	if !f.Pruned.IsZero() {
		when = " on " + cli.Time(f.Pruned)
	}
	return fmt.Sprintf("entries up to %s were pruned%s, to snapshot %s", cli.Time(f.Through), when, cli.Short(f.Snapshot))
}

func (a *app) showHeads(heads []client.KeyHead, more bool, floor *client.Floor) error {
	for _, h := range heads {
		mark := " "
		if h.Winner {
			mark = "*"
		}
		what := shownBytes(h.Value)
		if h.Type != client.StringKey {
			what = fmt.Sprintf("%s %s: %s", h.Type, shownText(h.Item), what)
		}
		hash := h.Origin.Hash
		if h.Origin.Pruned {
			hash = "not known: the entry was pruned"
		}
		_, err := fmt.Fprintf(a.stdout, "%s %s\n    author  %s\n    time    %s\n    hash    %s\n    %s\n",
			mark, what, h.Origin.Author, cli.Time(h.Origin.Time), hash, h.Why)
		if err != nil {
			return err
		}
	}
	if floor != nil {
		a.warnf("%s: what was written there stays, the hash of its entry is not known here any more", floorText(floor))
	}
	if more {
		a.warnf("the key has more items than are shown")
	}
	return nil
}

func newKVHistory(a *app) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "history KEY",
		Short: "Show what was done to a key, the newest first",
		Long: `Show what was done to a key, the newest first, as far back as this node's logs go. It reads the
logs backwards, so --limit makes it quick. Where entries were pruned (lattice store prune), it says so
at the end: what they came to is kept, what they did is not.`,
		Args: exactly("KEY"),
	}
	m := a.keyFlags(cmd)
	cmd.Flags().IntVarP(&limit, "limit", "n", 0, "end after so many events")
	a.completeFirst(cmd, keyNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if limit < 0 {
			return cli.Usagef("--limit: want 1 or more")
		}
		return a.withClient(func(c *client.Client) error {
			rows := []object{}
			var floor *client.Floor
			t := cli.NewTable("TIME", "AUTHOR", "WHAT", "VALUE", "ENTRY")
			for e, err := range c.Keys(*m).History(cmd.Context(), []byte(args[0]), limit) {
				if err != nil {
					return err
				}
				if floor = e.Floor; floor != nil {
					break
				}
				o := object{"what": e.What}
				o.bytes("value", e.Value)
				if len(e.Item) > 0 {
					o.bytes("item", e.Item)
				}
				o.origin(e.Origin)
				rows = append(rows, o)
				value := ""
				if e.Value != nil {
					value = shownBytes(e.Value)
				}
				t.Row(cli.Time(e.Origin.Time), cli.Short(e.Origin.Author), e.What, value, cli.Short(e.Origin.Hash))
			}
			doc := object{"events": rows, "pruned": floorObject(floor)}
			doc.bytes("key", []byte(args[0]))
			return a.print(doc, func() error {
				if _, err := t.WriteTo(a.stdout); err != nil {
					return err
				}
				if floor != nil {
					a.warnf("%s: what they did to the key is not known here any more", floorText(floor))
				}
				return nil
			})
		})
	}
	return cmd
}
