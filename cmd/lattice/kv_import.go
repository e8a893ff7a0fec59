package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

const (
	// importKeys and importBytes bound what one atomic step of an import writes.
	importKeys  = 1000
	importBytes = 4 << 20
	// maxImportLine bounds a line: an entry holds no more.
	maxImportLine = 32 << 20
)

func newKVExport(a *app) *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "export [PREFIX]",
		Short: "Write keys with what they hold, a JSON object a line",
		Long: `Write the keys that begin with PREFIX, or all, with what they hold and when they end: one JSON
object a line, which "lattice kv import" reads. Of a key in conflict the winner is written. Authors, times and
other versions are not in it: to carry a store with all of that, copy the directory of a stopped node.`,
		Example: `  lattice kv export > keys.jsonl
  lattice kv export user: --map 3 | lattice kv import --store test`,
		Args: atMostOne,
	}
	a.clientFlags(cmd)
	m := a.mapFlag(cmd)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "no progress")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withClient(func(c *client.Client) error {
			w := bufio.NewWriterSize(a.stdout, 64<<10)
			meter := a.meter(quiet || cli.IsTerminal(a.stdout), "exported")
			for k, err := range c.Keys(*m).List(cmd.Context(), []byte(first(args)), true) {
				if err != nil {
					meter.Stop()
					return errors.Join(err, w.Flush())
				}
				o := object{}
				o.bytes("key", k.Key)
				o.content(k.Content)
				if !k.Expires.IsZero() {
					o["expires"] = cli.Time(k.Expires)
				}
				if err := cli.WriteJSONLine(w, o); err != nil {
					return err
				}
				meter.Add(1, int64(len(k.Key)+len(k.Value)))
			}
			meter.Stop()
			return w.Flush()
		})
	}
	return cmd
}

func newKVImport(a *app) *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "import [FILE|-]",
		Short: "Write the keys of an export",
		Long: `Write the keys of a file that "lattice kv export" made, or of standard input: one JSON object a
line with key, type (string, hash, set, zset, list), and value, fields, members or items; expires is
optional. Names that end in _base64 hold bytes. Keys are written in steps of ` + strconv.Itoa(importKeys) + `, each atomic and durable;
an error names the line, and what came before it is written. To import twice does no harm.`,
		Example: `  lattice kv import keys.jsonl
  echo '{"key":"queue","type":"list","items":[{"item":"first"}]}' | lattice kv import`,
		Args: atMostOne,
	}
	a.clientFlags(cmd)
	m := a.mapFlag(cmd)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "no progress")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := first(args)
		if name == "" {
			name = "-"
		}
		in, err := a.openInput(name)
		if err != nil {
			return err
		}
		defer in.Close()
		return a.withClient(func(c *client.Client) error {
			return a.importKeys(cmd.Context(), c.Keys(*m), in, quiet)
		})
	}
	return cmd
}

func (a *app) importKeys(ctx context.Context, keys client.Keys, in io.Reader, quiet bool) error {
	var opts []cli.MeterOption
	if f, ok := in.(*os.File); ok {
		if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
			opts = append(opts, cli.OfBytes(st.Size()))
		}
	}
	meter := a.meter(quiet, "imported", opts...)
	defer meter.Stop()
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), maxImportLine)
	batch, size, line := new(client.KeyBatch), 0, 0
	flush := func() error {
		if batch.Len() == 0 {
			return nil
		}
		if err := keys.Write(ctx, batch); err != nil {
			return fmt.Errorf("keys up to line %d: %w", line, err)
		}
		meter.Add(int64(batch.Len()), int64(size))
		batch, size = new(client.KeyBatch), 0
		return nil
	}
	for lines.Scan() {
		line++
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		k, err := parseKeyLine(text)
		if err != nil {
			return errors.Join(flush(), cli.Hint(fmt.Errorf("line %d: %w", line, err), "lattice kv import --help shows what a line holds"))
		}
		if batch.Len() >= importKeys || size > 0 && size+len(text) > importBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		batch.Put(k.Key, k.Content, k.Expires)
		size += len(text) + 1
	}
	if err := lines.Err(); err != nil {
		return errors.Join(flush(), fmt.Errorf("line %d: %w", line+1, err))
	}
	return flush()
}

// keyLine is a line of an export.
type keyLine struct {
	Key       *string       `json:"key"`
	KeyBase64 *string       `json:"key_base64"`
	Type      string        `json:"type"`
	Value     *string       `json:"value"`
	Value64   *string       `json:"value_base64"`
	Fields    []keyLineItem `json:"fields"`
	Items     []keyLineItem `json:"items"`
	Members   []keyLineItem `json:"members"`
	Expires   *time.Time    `json:"expires"`
}

type keyLineItem struct {
	Field    *string `json:"field"`
	Field64  *string `json:"field_base64"`
	Value    *string `json:"value"`
	Value64  *string `json:"value_base64"`
	Item     *string `json:"item"`
	Item64   *string `json:"item_base64"`
	Member   *string `json:"member"`
	Member64 *string `json:"member_base64"`
	Score    score   `json:"score"`
}

// score is a number, or a text that holds one: JSON has no infinity.
type score float64

// UnmarshalJSON implements json.Unmarshaler.
func (s *score) UnmarshalJSON(b []byte) error {
	text := strings.Trim(string(b), `"`)
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) {
		return fmt.Errorf("score %s: want a number", b)
	}
	*s = score(f)
	return nil
}

// decoder reads texts, and remembers the first that is wrong.
type decoder struct{ err error }

func (d *decoder) bytes(name string, text, b64 *string) []byte {
	switch {
	case d.err != nil:
	case (text == nil) == (b64 == nil):
		d.err = fmt.Errorf("want %s or %s_base64, and not both", name, name)
	case text != nil:
		return []byte(*text)
	default:
		b, err := base64.StdEncoding.DecodeString(*b64)
		if err != nil {
			d.err = fmt.Errorf("%s_base64: %w", name, err)
		}
		return b
	}
	return nil
}

// lineError says for people what is wrong with a line.
func lineError(err error) error {
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typ) && typ.Field == "":
		return fmt.Errorf("want an object, not %s %s", article(typ.Value), typ.Value)
	case errors.As(err, &typ) && typ.Type.Kind() == reflect.String:
		return fmt.Errorf("%s: want a text, not %s %s: put it in quotation marks", typ.Field, article(typ.Value), typ.Value)
	case errors.As(err, &typ):
		return fmt.Errorf("%s: not what belongs there (%s)", typ.Field, typ.Value)
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

// article returns the article of a word.
func article(word string) string {
	if strings.ContainsRune("aeiou", rune(word[0])) {
		return "an"
	}
	return "a"
}

func parseKeyLine(text []byte) (client.Key, error) {
	var l keyLine
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil {
		return client.Key{}, lineError(err)
	}
	if dec.More() {
		return client.Key{}, errors.New("more than one object on the line")
	}
	var d decoder
	k := client.Key{Key: d.bytes("key", l.Key, l.KeyBase64)}
	if l.Expires != nil {
		k.Expires = *l.Expires
	}
	switch k.Type = client.KeyType(l.Type); k.Type {
	case client.StringKey, "":
		k.Type = client.StringKey
		k.Value = d.bytes("value", l.Value, l.Value64)
	case client.HashKey:
		for _, i := range l.Fields {
			k.Fields = append(k.Fields, client.KeyField{Field: d.bytes("field", i.Field, i.Field64), Value: d.bytes("value", i.Value, i.Value64)})
		}
	case client.SetKey, client.ListKey:
		for _, i := range l.Items {
			k.Items = append(k.Items, d.bytes("item", i.Item, i.Item64))
		}
	case client.SortedSetKey:
		for _, i := range l.Members {
			k.Scored = append(k.Scored, client.ScoredItem{Member: d.bytes("member", i.Member, i.Member64), Score: float64(i.Score)})
		}
	default:
		d.err = fmt.Errorf("type %q: want string, hash, set, zset or list", l.Type)
	}
	return k, d.err
}
