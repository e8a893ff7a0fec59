package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

// produceFlags are the flags of "lattice produce".
type produceFlags struct {
	key, keySeparator string
	headers           []string
	partition         int32
	compression       string
	lengths           bool // records are preceded by their length
	nullEmpty         bool
	noCreate          bool
	keyed             bool // --key was given, perhaps empty
	quiet             bool
}

func newProduce(a *app) *cobra.Command {
	f := produceFlags{partition: -1}
	cmd := &cobra.Command{
		Use:   "produce TOPIC",
		Short: "Write records from standard input, one a line",
		Long: `Write records from standard input: one a line, or with --length-delimited each after
its length (4 bytes, big-endian). The command ends when the input ends and every
record is acknowledged at the topic's durability; a request that had to be repeated
is written once. The topic is created when it does not exist (--no-create refuses).

With --key-separator the text before its first occurrence is the key, and records of
one key go to one partition, where every Kafka client would put them. A line without
the separator has no key.`,
		Example: `  seq 100000 | lattice produce numbers
  lattice produce users --key-separator : --null-empty < users.txt
  echo '{"ok":true}' | lattice produce events --key node-7 --header type=health`,
		Args: exactly("TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.keyed = cmd.Flags().Changed("key")
			return a.produce(cmd.Context(), args[0], f)
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.key, "key", "k", "", "key of every record")
	fl.StringVarP(&f.keySeparator, "key-separator", "K", "", `text between key and value in each line (\t, \n, \0 understood)`)
	fl.StringArrayVarP(&f.headers, "header", "H", nil, "NAME=VALUE header of every record; repeatable")
	fl.Int32VarP(&f.partition, "partition", "p", -1, "write to this partition only")
	fl.VarP(&choice{&f.compression, []string{"none", "gzip", "snappy", "lz4", "zstd"}}, "compression", "z", "compress batches")
	fl.BoolVar(&f.lengths, "length-delimited", false, "each record follows its length: 4 bytes, big-endian")
	fl.BoolVarP(&f.nullEmpty, "null-empty", "Z", false, "an empty value is null (a tombstone), and an empty key none")
	fl.BoolVar(&f.noCreate, "no-create", false, "refuse when the topic does not exist")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "no progress")
	a.outputFlag(cmd)
	a.completeFirst(cmd, topicNames)
	a.clientFlags(cmd)
	return cmd
}

func (a *app) produce(ctx context.Context, topic string, f produceFlags) error {
	if f.keyed && f.keySeparator != "" {
		return cli.Usagef("give --key or --key-separator, and not both")
	}
	template := client.Record{}
	if f.keyed {
		template.Key = []byte(f.key)
	}
	for _, h := range f.headers {
		k, v, ok := strings.Cut(h, "=")
		if !ok {
			return cli.Usagef("--header %q: want NAME=VALUE", h)
		}
		template.Headers = append(template.Headers, client.Header{Key: k, Value: []byte(v)})
	}
	separator, err := unescape(f.keySeparator)
	if err != nil {
		return cli.Usagef("--key-separator: %v", err)
	}
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	o := client.ProducerOptions{Topic: topic, Compression: f.compression, Retrying: a.retrying()}
	if f.partition >= 0 {
		o.Partition = client.ToPartition(f.partition)
	}
	p, err := a.producer(ctx, c, o, f.noCreate)
	if err != nil {
		return err
	}
	if n := p.Partitions(); f.partition >= n {
		err := lattice.E(lattice.NotFound, fmt.Errorf("topic %s has no partition %d, its last is %d", topic, f.partition, n-1))
		return cli.Hint(errors.Join(err, p.Close(ctx)), "lattice topic alter %s --partitions %d", topic, f.partition+1)
	}
	in := newInput(ctx, a.stdin)
	src := &lines{r: in, separator: separator, nullEmpty: f.nullEmpty, lengths: f.lengths, record: template}
	// Someone who types is not to be disturbed.
	meter := a.meter(f.quiet || cli.IsTerminal(a.stdin), "produced", cli.OfBytes(sizeOf(a.stdin)))
	sendErr := send(ctx, p, src, meter)
	// What was read is written even if the rest is not wanted any more.
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin(ctx))
	defer cancel()
	closeErr := p.Close(closing)
	meter.Stop()
	stats := p.Stats()
	if err := errors.Join(closeErr, sendErr); err != nil {
		return fmt.Errorf("%w (%s records were written)", err, cli.Count(stats.Acked))
	}
	if a.output == "json" {
		return cli.WriteJSON(a.stdout, map[string]any{"topic": topic, "records": stats.Acked, "bytes": stats.Bytes, "batches": stats.Batches})
	}
	return nil
}

// producer opens the topic for writing, and makes it first if need be.
func (a *app) producer(ctx context.Context, c *client.Client, o client.ProducerOptions, noCreate bool) (*client.Producer, error) {
	p, err := c.Producer(ctx, o)
	if err == nil || lattice.KindOf(err) != lattice.NotFound {
		return p, err
	}
	if noCreate {
		return nil, cli.Hint(withoutHint(err), "lattice topic create %s, or leave out --no-create", o.Topic)
	}
	t, err := c.CreateTopic(ctx, client.NewTopic{Name: o.Topic})
	if err != nil && lattice.KindOf(err) != lattice.Exists {
		return nil, err
	}
	if err == nil {
		a.warnf("Created topic %s (%s).", t.Name, cli.Of(t.Partitions, "partition"))
	}
	return c.Producer(ctx, o)
}

// send hands every record of src to the producer. It ends early when the
// producer lost records or ctx ended.
func send(ctx context.Context, p *client.Producer, src *lines, meter *cli.Meter) error {
	const often = 1024 // records between looks at what need not be looked at each time
	var n, bytes int64
	defer func() { meter.Add(n%often, bytes) }()
	for {
		rec, err := src.next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if err := p.SendAsync(ctx, rec, nil); err != nil {
			return err
		}
		bytes += int64(len(rec.Key) + len(rec.Value))
		if n++; n%often == 0 {
			meter.Add(often, bytes)
			bytes = 0
			if p.Stats().Failed > 0 {
				return nil // Close tells why
			}
		}
	}
}

// closeWithin is how long the last records get: as long as the producer tries,
// but after an interrupt only some seconds.
func closeWithin(ctx context.Context) time.Duration {
	if ctx.Err() != nil {
		return 5 * time.Second
	}
	return 10 * time.Minute
}

// meter returns a progress meter on stderr, or one that shows nothing.
func (a *app) meter(quiet bool, verb string, opts ...cli.MeterOption) *cli.Meter {
	if quiet {
		return cli.NewMeter(io.Discard, verb)
	}
	return cli.NewMeter(a.stderr, verb, opts...)
}

// retrying returns a callback that tells people, now and then, that the node is
// asked again.
func (a *app) retrying() func(error) {
	var last time.Time
	said := make(chan struct{}, 1) // a lock that is never waited for
	return func(err error) {
		select {
		case said <- struct{}{}:
			if now := time.Now(); now.Sub(last) > 5*time.Second {
				last = now
				a.warnf("%v; trying again", err)
			}
			<-said
		default:
		}
	}
}

// sizeOf returns the number of bytes that are left to read, when r is a regular
// file, else 0.
func sizeOf(r io.Reader) int64 {
	f, ok := r.(*os.File)
	if !ok {
		return 0
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return info.Size()
}

// unescape reads \t, \n, \r, \0 and \\ in a separator.
func unescape(s string) ([]byte, error) {
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			out = append(out, s[i])
			continue
		}
		i++
		if i == len(s) {
			return nil, fmt.Errorf("%q ends with a backslash", s)
		}
		plain := strings.IndexByte(`tnr0\`, s[i])
		if plain < 0 {
			return nil, fmt.Errorf(`%q: only \t, \n, \r, \0 and \\ are known`, s)
		}
		out = append(out, "\t\n\r\x00\\"[plain])
	}
	return out, nil
}
