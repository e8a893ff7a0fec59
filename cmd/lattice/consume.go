package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

// consumeFlags are the flags of "lattice consume".
type consumeFlags struct {
	from, group  string
	partitions   []int32
	follow       bool
	max          int64
	keySeparator string
	lengths      bool
	skipExpired  bool
	quiet        bool
}

func newConsume(a *app) *cobra.Command {
	var f consumeFlags
	cmd := &cobra.Command{
		Use:   "consume TOPIC",
		Short: "Print the records of a topic",
		Long: `Print the records of a topic, from the first that is still there, or from where --from
says, up to what is committed now; with --follow go on until interrupted.

Output: raw is the value and a newline; kv is key, tab and value; json is one object a
line with topic, partition, offset, time, key, value and headers (key_base64 and
value_base64 where the bytes are no UTF-8).

With --group the command is a member of a consumer group: it shares the partitions
with the other members, begins where the group is, and commits what it has printed.`,
		Example: `  lattice consume numbers --max 3
  lattice consume orders --from -1h --follow -o json
  lattice consume orders --group billing --follow`,
		Args: exactly("TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.consume(cmd.Context(), args[0], f) },
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.from, "from", "f", "", "start, end, OFFSET, -N (N before the end), RFC 3339 time, or an age such as -1h (default start)")
	fl.StringVarP(&f.group, "group", "g", "", "read as a member of this consumer group, and commit")
	fl.Int32SliceVarP(&f.partitions, "partition", "p", nil, "only these partitions")
	fl.BoolVarP(&f.follow, "follow", "F", false, "wait for records to come")
	fl.Int64VarP(&f.max, "max", "n", 0, "end after so many records")
	fl.StringVarP(&f.keySeparator, "key-separator", "K", `\t`, "text between key and value with -o kv")
	fl.BoolVar(&f.lengths, "length-delimited", false, "with -o raw, write each value after its length: 4 bytes, big-endian")
	fl.BoolVar(&f.skipExpired, "skip-expired", false, "go on at the start when records expired before they were read")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "no progress")
	a.outputChoice(cmd, "raw", "json", "kv")
	a.completeFirst(cmd, topicNames)
	a.clientFlags(cmd)
	return cmd
}

// source is where records come from: a topic, or a group's share of it.
type source interface {
	Next() (client.Record, error)
	// Pending reports that Next need not wait for the node.
	Pending() bool
	// Flushed is called after everything that Next returned was written out.
	Flushed(context.Context) error
	Close(context.Context) error
}

// plainSource reads a topic without a group.
type plainSource struct{ *client.Consumer }

func (plainSource) Flushed(context.Context) error   { return nil }
func (s plainSource) Close(_ context.Context) error { return s.Consumer.Close() }

func (a *app) consume(ctx context.Context, topic string, f consumeFlags) error {
	format, err := a.format(f)
	if err != nil {
		return err
	}
	if f.max < 0 {
		return cli.Usagef("--max: want 1 or more")
	}
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	src, err := a.open(ctx, c, topic, f)
	if err != nil {
		return err
	}
	// A terminal shows the records themselves; a meter between them would only disturb.
	meter := a.meter(f.quiet || cli.IsTerminal(a.stdout), "consumed", cli.OfRecords(f.max))
	out := output{w: a.stdout, meter: meter}
	err = copyRecords(ctx, src, f.max, format, &out)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin(ctx))
	defer cancel()
	if err == nil {
		if err = out.flush(); err == nil {
			err = src.Flushed(closing)
		}
	}
	err = errors.Join(err, src.Close(closing))
	meter.Stop()
	return err
}

// copyRecords reads records until the end, the limit or an interrupt. Whenever
// the source would have to wait, what was read is written out first; the last
// of it stays in out.
func copyRecords(ctx context.Context, src source, limit int64, format recordFormat, out *output) error {
	for n := int64(0); limit == 0 || n < limit; n++ {
		if !src.Pending() {
			if err := out.flush(); err != nil {
				return err
			}
			if err := src.Flushed(ctx); err != nil {
				return ended(ctx, err)
			}
		}
		rec, err := src.Next()
		if err != nil {
			return ended(ctx, err)
		}
		out.buf = format(out.buf, &rec)
		out.records++
		out.bytes += int64(len(rec.Key) + len(rec.Value))
		if len(out.buf) >= outputBytes {
			if err := out.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// ended turns the two good ends of reading into none: the last record, and an
// interrupt.
func ended(ctx context.Context, err error) error {
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	if lattice.KindOf(err) == lattice.OutOfRange {
		return cli.Hint(err, "--from start begins at the first record that is still there; --skip-expired goes on from there by itself")
	}
	return err
}

// open starts reading.
func (a *app) open(ctx context.Context, c *client.Client, topic string, f consumeFlags) (source, error) {
	from := client.Start()
	if f.from != "" {
		var err error
		if from, err = position("--from", f.from); err != nil {
			return nil, err
		}
	}
	if f.group != "" {
		return a.join(ctx, c, topic, from, f)
	}
	r, err := c.Consumer(ctx, client.ConsumerOptions{
		Topic: topic, Partitions: f.partitions, From: from, Follow: f.follow, MaxRecords: f.max,
		SkipExpired: f.skipExpired, Skipped: a.skipped(topic), Retrying: a.retrying(),
	})
	switch {
	case err == nil:
		return plainSource{r}, nil
	case lattice.KindOf(err) == lattice.NotFound:
		return nil, cli.Hint(withoutHint(err), "lattice topic list shows the topics")
	}
	return nil, ended(ctx, err)
}

// groupSource reads as a member of a group. What is printed is committed
// whenever there is time, so that other members do not print it again.
type groupSource struct{ *client.GroupConsumer }

func (s groupSource) Flushed(ctx context.Context) error { return s.Commit(ctx) }

// join becomes a member of the group.
func (a *app) join(ctx context.Context, c *client.Client, topic string, from client.Position, f consumeFlags) (source, error) {
	if len(f.partitions) > 0 {
		return nil, cli.Usagef("--partition does not go with --group: the group shares the partitions out")
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	g, err := c.GroupConsumer(ctx, client.GroupConsumerOptions{
		Group: f.group, Topic: topic, From: from, Follow: f.follow, CommitEvery: -1,
		ClientID: fmt.Sprintf("lattice-%s-%d", host, os.Getpid()), Skipped: a.skipped(topic), Retrying: a.retrying(),
	})
	switch {
	case err == nil:
		return groupSource{g}, nil
	case lattice.KindOf(err) == lattice.NotFound:
		return nil, cli.Hint(withoutHint(err), "lattice topic list shows the topics")
	}
	return nil, ended(ctx, err)
}

func (a *app) skipped(topic string) func(int32, int64, int64) {
	return func(partition int32, from, to int64) {
		a.warnf("%s/%d: %s records expired before they were read (offsets %d to %d)", topic, partition, cli.Count(to-from), from, to-1)
	}
}

// format returns how records are written.
func (a *app) format(f consumeFlags) (recordFormat, error) {
	if f.lengths && a.output != "raw" {
		return nil, cli.Usagef("--length-delimited goes with -o raw")
	}
	switch a.output {
	case "json":
		return jsonFormat, nil
	case "kv":
		separator, err := unescape(f.keySeparator)
		if err != nil {
			return nil, cli.Usagef("--key-separator: %v", err)
		}
		return kvFormat(separator), nil
	}
	return rawFormat(f.lengths), nil
}

// outputBytes is how much output is collected while more is at hand.
const outputBytes = 128 << 10

// output collects what is to be printed, and counts it when it was.
type output struct {
	w     io.Writer
	meter *cli.Meter
	buf   []byte
	// records and bytes (of keys and values) in buf.
	records, bytes int64
}

func (o *output) flush() error {
	if o.records == 0 {
		return nil
	}
	if _, err := o.w.Write(o.buf); err != nil {
		return fmt.Errorf("write the records: %w", err)
	}
	o.meter.Add(o.records, o.bytes)
	o.buf, o.records, o.bytes = o.buf[:0], 0, 0
	return nil
}
