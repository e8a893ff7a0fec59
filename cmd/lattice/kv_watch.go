package main

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/spf13/cobra"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

func newKVWatch(a *app) *cobra.Command {
	var current bool
	var from string
	var max int
	cmd := &cobra.Command{
		Use:   "watch [PREFIX]",
		Short: "Print each change of the keys that begin with PREFIX",
		Long: `Print each change as this node comes to know of it, until interrupted: the time, who wrote it, the
key, and what it is when it is printed. So changes that follow each other fast come as one, and a key that is
gone is never shown as live. With -o json a line a change; its "resume" is where --from goes on, also after
the node was stopped, and on any node of the store.

A watcher that falls behind further than the node's memory goes is told so, and goes on from the logs:
nothing is missing. Where those were pruned, it ends with an error: begin anew with --current.`,
		Example: `  lattice kv watch user:
  lattice kv watch --current -o json > changes.jsonl
  lattice kv watch --from "$(tail -1 changes.jsonl | jq -r .resume)" -o json >> changes.jsonl`,
		Args: atMostOne,
	}
	m := a.keyFlags(cmd)
	cmd.Flags().BoolVarP(&current, "current", "c", false, "begin with the keys as they are")
	cmd.Flags().StringVar(&from, "from", "", "go on from the resume of an earlier change")
	cmd.Flags().IntVarP(&max, "max", "n", 0, "end after so many changes")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o := client.WatchOptions{Current: current}
		token, err := hex.DecodeString(from)
		switch {
		case err != nil || cmd.Flags().Changed("from") && len(token) == 0:
			return cli.Usagef("--from: want the resume of an earlier change, in hex")
		case current && len(token) > 0:
			return cli.Usagef("give --from or --current, and not both")
		case max < 0:
			return cli.Usagef("--max: want 1 or more")
		}
		o.From = token
		return a.withClient(func(c *client.Client) error {
			return a.watchKeys(cmd.Context(), c.Keys(*m), first(args), o, max)
		})
	}
	return cmd
}

func (a *app) watchKeys(ctx context.Context, keys client.Keys, prefix string, o client.WatchOptions, max int) error {
	resume := o.From
	starting := o.Current
	for ch, err := range keys.Watch(ctx, []byte(prefix), o) {
		if ctx.Err() != nil {
			return nil // interrupted: that is how it ends
		}
		if err != nil {
			if len(resume) > 0 && lattice.KindOf(err) == lattice.Unavailable {
				return cli.Hint(err, "when the node runs again, --from %x goes on from here", resume)
			}
			return err
		}
		if len(ch.Resume) > 0 {
			resume = ch.Resume
		}
		if ch.CaughtUp {
			if !starting {
				continue // only a newer place to go on from
			}
			starting = false
		}
		if err := a.showChange(ch); err != nil {
			return err
		}
		if ch.Key == nil {
			continue
		}
		if max--; max == 0 {
			return nil
		}
	}
	return nil
}

func (a *app) showChange(ch client.KeyChange) error {
	if a.output == "json" {
		return cli.WriteJSONLine(a.stdout, changeObject(ch))
	}
	switch {
	case ch.Lagged:
		a.warnf("fell behind: what was not printed yet follows, from the logs")
		return nil
	case ch.CaughtUp:
		return nil
	}
	what := shownBytes(ch.Value)
	switch {
	case ch.Deleted:
		what = "(deleted)"
	case ch.Type != client.StringKey:
		what = "(" + string(ch.Type) + ")"
	}
	if ch.Conflicted {
		what += " in conflict"
	}
	_, err := fmt.Fprintf(a.stdout, "%s  %s  %s  %s\n", cli.Time(ch.Origin.Time), cli.Short(ch.Origin.Author), shownText(ch.Key), what)
	return err
}

func changeObject(ch client.KeyChange) object {
	o := object{"resume": hex.EncodeToString(ch.Resume)}
	switch {
	case ch.Lagged:
		o["lagged"] = true
		return o
	case ch.CaughtUp:
		o["caught_up"] = true
		return o
	}
	o["deleted"], o["conflicted"] = ch.Deleted, ch.Conflicted
	o.bytes("key", ch.Key)
	o.origin(ch.Origin)
	if !ch.Deleted {
		o["type"] = string(ch.Type)
		if ch.Type == client.StringKey {
			o.bytes("value", ch.Value)
		}
	}
	return o
}
