package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

func newKV(a *app) *cobra.Command {
	return family("kv", "Read and write keys",
		newKVPut(a), newKVGet(a), newKVDelete(a), newKVList(a), newKVHeads(a), newKVHistory(a), newKVWatch(a), newKVImport(a), newKVExport(a))
}

// mapFlag adds --map.
func (a *app) mapFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("map", "0", "named map of the store; Redis clients see 0 to 15 as databases")
}

// keyFlags adds what every command on keys has.
func (a *app) keyFlags(cmd *cobra.Command) *string {
	a.outputFlag(cmd)
	a.clientFlags(cmd)
	return a.mapFlag(cmd)
}

// object is a JSON object in the making.
type object map[string]any

// bytes sets name to b when that is text, and otherwise name_base64.
func (o object) bytes(name string, b []byte) {
	if utf8.Valid(b) {
		o[name] = string(b)
		return
	}
	o[name+"_base64"] = base64.StdEncoding.EncodeToString(b)
}

func (o object) origin(from client.Origin) {
	o["author"], o["hash"], o["time"] = from.Author, from.Hash, nil
	if from.Pruned {
		o["hash"], o["pruned"] = nil, true
	}
	if !from.Time.IsZero() {
		o["time"] = cli.Time(from.Time)
	}
}

// content sets value, fields, items or members.
func (o object) content(c client.Content) {
	o["type"] = string(c.Type)
	switch c.Type {
	case client.HashKey:
		fields := make([]object, len(c.Fields))
		for i, f := range c.Fields {
			fields[i] = object{}
			fields[i].bytes("field", f.Field)
			fields[i].bytes("value", f.Value)
		}
		o["fields"] = fields
	case client.SetKey, client.ListKey:
		items := make([]object, len(c.Items))
		for i, b := range c.Items {
			items[i] = object{}
			items[i].bytes("item", b)
		}
		o["items"] = items
	case client.SortedSetKey:
		scored := make([]object, len(c.Scored))
		for i, s := range c.Scored {
			scored[i] = object{"score": strconv.FormatFloat(s.Score, 'g', -1, 64)}
			scored[i].bytes("member", s.Member)
		}
		o["members"] = scored
	default:
		o.bytes("value", c.Value)
	}
}

func keyObject(k client.Key) object {
	o := object{"conflicted": k.Conflicted}
	o.bytes("key", k.Key)
	o.content(k.Content)
	o.origin(k.Origin)
	if !k.Expires.IsZero() {
		o["expires"] = cli.Time(k.Expires)
	}
	return o
}

func newKVPut(a *app) *cobra.Command {
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "put KEY VALUE|-",
		Short: "Write a key (- reads the value from standard input)",
		Long: `Write a key. What the node knows of it is replaced; a write elsewhere that this one could not
have seen stays beside it, and "lattice kv heads" shows both. It returns when the write is durable.`,
		Example: `  lattice kv put greeting hello
  lattice kv put session:7 token --ttl 30m
  lattice kv put logo - < logo.png`,
		Args: exactly("KEY", "VALUE"),
	}
	m := a.keyFlags(cmd)
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "end the key after this time")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if ttl < 0 || cmd.Flags().Changed("ttl") && ttl < time.Millisecond {
			return cli.Usagef("--ttl: want a time such as 30s or 24h")
		}
		value := []byte(args[1])
		if args[1] == "-" {
			var err error
			if value, err = io.ReadAll(a.stdin); err != nil {
				return fmt.Errorf("read the value: %w", err)
			}
		}
		var expires time.Time
		if ttl > 0 {
			expires = time.Now().Add(ttl)
		}
		return a.withClient(func(c *client.Client) error {
			b := new(client.KeyBatch).Put([]byte(args[0]), client.Content{Type: client.StringKey, Value: value}, expires)
			if err := c.Keys(*m).Write(cmd.Context(), b); err != nil {
				return err
			}
			if a.output == "json" {
				o := object{"existed": b.Existed[0]}
				o.bytes("key", []byte(args[0]))
				return cli.WriteJSON(a.stdout, o)
			}
			return nil
		})
	}
	return cmd
}

func newKVGet(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get KEY",
		Short: "Print what a key holds",
		Long: `Print what a key holds: a string and a line feed, of other types a line an item; with -o raw a
string as it is. Where nodes wrote apart, that is the winner, and standard error says that the key is in
conflict. It also works on the directory of a stopped node.`,
		Example: `  lattice kv get greeting
  lattice kv get logo -o raw > logo.png`,
		Args: exactly("KEY"),
	}
	a.outputChoice(cmd, "text", "json", "raw")
	a.clientFlags(cmd)
	m := a.mapFlag(cmd)
	a.completeFirst(cmd, keyNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		k, err := a.getKey(cmd.Context(), *m, []byte(args[0]))
		if err != nil {
			return a.noKey(err, args[0])
		}
		return a.print(keyObject(k), func() error {
			if k.Conflicted {
				a.warnf("%s is in conflict; lattice kv heads %s shows all versions", args[0], args[0])
			}
			out := contentText(k.Content)
			if a.output == "raw" {
				if k.Type != client.StringKey {
					return cli.Hint(lattice.E(lattice.Conflict, fmt.Errorf("%s is a %s: only a string can be printed as it is", args[0], k.Type)), "without -o raw it is printed a line an item")
				}
				out = k.Value
			}
			_, err := a.stdout.Write(out)
			return err
		})
	}
	return cmd
}

func (a *app) noKey(err error, key string) error {
	if lattice.KindOf(err) == lattice.NotFound {
		return cli.Hint(err, "lattice kv list shows the keys there are, lattice kv history %s what became of it", shownWord(key))
	}
	return err
}

// contentText writes a content for people, a line an item.
func contentText(c client.Content) []byte {
	var b bytes.Buffer
	switch c.Type {
	case client.HashKey:
		for _, f := range c.Fields {
			fmt.Fprintf(&b, "%s\t%s\n", f.Field, f.Value)
		}
	case client.SetKey, client.ListKey:
		for _, i := range c.Items {
			fmt.Fprintf(&b, "%s\n", i)
		}
	case client.SortedSetKey:
		for _, s := range c.Scored {
			fmt.Fprintf(&b, "%s\t%s\n", strconv.FormatFloat(s.Score, 'g', -1, 64), s.Member)
		}
	default:
		fmt.Fprintf(&b, "%s\n", c.Value)
	}
	return b.Bytes()
}

func newKVDelete(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete KEY...",
		Short: "Delete keys, all in one step",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("needs KEY")
			}
			return nil
		},
	}
	m := a.keyFlags(cmd)
	a.completeFirst(cmd, keyNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withClient(func(c *client.Client) error {
			b := new(client.KeyBatch)
			for _, k := range args {
				b.Delete([]byte(k))
			}
			if err := c.Keys(*m).Write(cmd.Context(), b); err != nil {
				return err
			}
			n := 0
			for i, was := range b.Existed {
				if was {
					n++
				} else if a.output == "text" {
					a.warnf("there was no key %q", args[i])
				}
			}
			return a.print(object{"deleted": n}, func() error {
				_, err := fmt.Fprintf(a.stdout, "deleted %d\n", n)
				return err
			})
		})
	}
	return cmd
}

func newKVList(a *app) *cobra.Command {
	var limit int
	var values bool
	cmd := &cobra.Command{
		Use:   "list [PREFIX]",
		Short: "List keys, or those that begin with PREFIX",
		Args:  atMostOne,
	}
	m := a.keyFlags(cmd)
	cmd.Flags().IntVarP(&limit, "limit", "n", 0, "end after so many keys")
	cmd.Flags().BoolVarP(&values, "values", "v", false, "what they hold as well")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if limit < 0 {
			return cli.Usagef("--limit: want 1 or more")
		}
		return a.withClient(func(c *client.Client) error {
			rows := []object{}
			t := cli.NewTable("KEY", "TYPE", "EXPIRES", "CONFLICT")
			if values {
				t = cli.NewTable("KEY", "TYPE", "EXPIRES", "CONFLICT", "VALUE")
			}
			for k, err := range c.Keys(*m).List(cmd.Context(), []byte(first(args)), values) {
				if err != nil {
					return err
				}
				if a.output == "json" {
					rows = append(rows, listObject(k, values))
				} else {
					t.Row(listRow(k, values)...)
				}
				if limit--; limit == 0 {
					break
				}
			}
			if a.output == "json" {
				return cli.WriteJSON(a.stdout, object{"keys": rows})
			}
			_, err := t.WriteTo(a.stdout)
			return err
		})
	}
	return cmd
}

func listObject(k client.Key, values bool) object {
	if values {
		return keyObject(k)
	}
	o := object{"type": string(k.Type), "conflicted": k.Conflicted}
	o.bytes("key", k.Key)
	if !k.Expires.IsZero() {
		o["expires"] = cli.Time(k.Expires)
	}
	return o
}

func listRow(k client.Key, values bool) []any {
	expires, conflict := "", ""
	if !k.Expires.IsZero() {
		expires = cli.Time(k.Expires)
	}
	if k.Conflicted {
		conflict = "yes"
	}
	row := []any{shownText(k.Key), string(k.Type), expires, conflict}
	if values {
		v := shownBytes(k.Value)
		if k.Type != client.StringKey {
			v = cli.Of(len(k.Fields)+len(k.Items)+len(k.Scored), "item")
		}
		row = append(row, v)
	}
	return row
}

// shownText is a key in a table: as it is when that is harmless, else quoted.
func shownText(b []byte) string {
	q := strconv.Quote(string(b))
	if q == `"`+string(b)+`"` {
		return string(b)
	}
	return q
}

// shownWord is a word in a command that is shown: quoted when a shell would need that.
func shownWord(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("-_./:@%+=,", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// atMostOne wants one positional argument or none.
func atMostOne(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return cli.Usagef("does not know what to do with %q", args[1])
	}
	return nil
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// keyNames lists some keys, for completion.
func keyNames(ctx context.Context, c *client.Client) ([]string, error) {
	var names []string
	for k, err := range c.Keys("").List(ctx, nil, false) {
		if err != nil {
			return nil, err
		}
		if names = append(names, string(k.Key)); len(names) == 1000 {
			break
		}
	}
	return names, nil
}
