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
the winner; the next write, which has seen them all, leaves one.`,
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
			for i, h := range heads {
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
			return a.print(doc, func() error { return a.showHeads(heads, more) })
		})
	}
	return cmd
}

func (a *app) showHeads(heads []client.KeyHead, more bool) error {
	for _, h := range heads {
		mark := " "
		if h.Winner {
			mark = "*"
		}
		what := shownBytes(h.Value)
		if h.Type != client.StringKey {
			what = fmt.Sprintf("%s %s: %s", h.Type, shownText(h.Item), what)
		}
		_, err := fmt.Fprintf(a.stdout, "%s %s\n    author  %s\n    time    %s\n    hash    %s\n    %s\n",
			mark, what, h.Origin.Author, cli.Time(h.Origin.Time), h.Origin.Hash, h.Why)
		if err != nil {
			return err
		}
	}
	if more {
		a.warnf("The key has more items than are shown.")
	}
	return nil
}

func newKVHistory(a *app) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "history KEY",
		Short: "Show what was done to a key, the newest first",
		Long: `Show what was done to a key, the newest first, as far back as this node's logs go. It reads the
logs backwards, so --limit makes it quick.`,
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
			t := cli.NewTable("TIME", "AUTHOR", "WHAT", "VALUE", "ENTRY")
			for e, err := range c.Keys(*m).History(cmd.Context(), []byte(args[0]), limit) {
				if err != nil {
					return err
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
			doc := object{"events": rows}
			doc.bytes("key", []byte(args[0]))
			return a.print(doc, func() error {
				_, err := t.WriteTo(a.stdout)
				return err
			})
		})
	}
	return cmd
}
