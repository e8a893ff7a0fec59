package main

import (
	"context"
	"errors"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/core/proof"
	"github.com/lattice-log/lattice/internal/cli"
	"github.com/lattice-log/lattice/node"
)

func newProof(a *app) *cobra.Command {
	return family("proof", "Print proofs that can be checked without the node", newProofRecord(a), newProofKey(a), newProofCheckpoint(a))
}

func newProofRecord(a *app) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "record TOPIC PARTITION OFFSET",
		Short: "Prove one record",
		Long: `Print a proof of one record: a text file with the record's batch, where it is in the
partition's Merkle tree, and the signed checkpoint. "lattice verify" checks it anywhere,
without the node. Works on the data directory of a stopped node too.`,
		Example: `  lattice proof record orders 0 1234 > order.proof
  lattice verify order.proof`,
		Args: exactly("TOPIC", "PARTITION", "OFFSET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			number, err := partitionNumber(args[1])
			if err != nil {
				return err
			}
			offset, err := strconv.ParseInt(args[2], 10, 64)
			if err != nil || offset < 0 {
				return cli.Usagef("OFFSET %q: want a number of 0 or more", args[2])
			}
			return ofTopic(args[0], a.prove(cmd, out,
				func(ctx context.Context, c *client.Client) ([]byte, error) {
					return c.ProveRecord(ctx, args[0], number, offset)
				},
				func(ctx context.Context, o *node.Offline) ([]byte, error) {
					return o.ProveRecord(ctx, args[0], number, offset)
				}))
		},
	}
	a.proofFlags(cmd, &out)
	a.completeFirst(cmd, topicNames)
	return cmd
}

func newProofCheckpoint(a *app) *cobra.Command {
	var out string
	var last, note bool
	cmd := &cobra.Command{
		Use:   "checkpoint TOPIC PARTITION",
		Short: "Prove how far a partition's log is",
		Long: `Print a proof of how many blocks the partition's log has, what their Merkle root is and
who signed that; "lattice verify" checks it. It covers everything committed now, or with
--last is the newest that was made already. With --note print only the signed note (C2SP
tlog-checkpoint), which any tool for transparency logs reads.`,
		Args: exactly("TOPIC", "PARTITION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			number, err := partitionNumber(args[1])
			if err != nil {
				return err
			}
			cut := func(b []byte, err error) ([]byte, error) {
				if err != nil || !note {
					return b, err
				}
				f, err := proof.Parse(b)
				return f.Checkpoint, err
			}
			return ofTopic(args[0], a.prove(cmd, out,
				func(ctx context.Context, c *client.Client) ([]byte, error) {
					cp, err := c.Checkpoint(ctx, args[0], number, !last)
					return cut(cp.Proof, err)
				},
				func(ctx context.Context, o *node.Offline) ([]byte, error) {
					return cut(o.ProveCheckpoint(ctx, args[0], number))
				}))
		},
	}
	cmd.Flags().BoolVar(&last, "last", false, "the newest checkpoint that exists, without making one")
	cmd.Flags().BoolVar(&note, "note", false, "only the signed note")
	a.proofFlags(cmd, &out)
	a.completeFirst(cmd, topicNames)
	return cmd
}

func newProofKey(a *app) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "key KEY",
		Short: "Prove what a key holds, or that there is no such key",
		Long: `Print a proof of all that a key holds now: a text file with every version of it and when it
ends, where that is in the Merkle tree over the store's state, and the tree's root, which the node signs.
Where there is no such key it proves that. "lattice verify" checks it anywhere, without the node. Works
on the data directory of a stopped node too.`,
		Example: `  lattice proof key user:42 > user.proof
  lattice verify user.proof`,
		Args: exactly("KEY"),
	}
	m := a.mapFlag(cmd)
	a.proofFlags(cmd, &out)
	a.completeFirst(cmd, keyNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.prove(cmd, out,
			func(ctx context.Context, c *client.Client) ([]byte, error) {
				return c.Keys(*m).ProveKey(ctx, []byte(args[0]))
			},
			func(ctx context.Context, o *node.Offline) ([]byte, error) {
				return o.ProveKey(ctx, *m, []byte(args[0]))
			})
	}
	return cmd
}

func (a *app) proofFlags(cmd *cobra.Command, out *string) {
	cmd.Flags().StringVar(out, "out", "", "write to this file instead of standard output")
	a.clientFlags(cmd)
}

// ofTopic adds to an error where to look for what there is.
func ofTopic(topic string, err error) error {
	switch lattice.KindOf(err) {
	case lattice.NotFound, lattice.OutOfRange, lattice.NotYet:
		return cli.Hint(err, "lattice topic describe %s shows its partitions and offsets", topic)
	}
	return err
}

// prove asks the running node, or else opens the directory of a stopped one.
func (a *app) prove(cmd *cobra.Command, out string, online func(context.Context, *client.Client) ([]byte, error),
	offline func(context.Context, *node.Offline) ([]byte, error),
) error {
	b, err := a.proveOnline(cmd.Context(), online)
	if err != nil && lattice.KindOf(err) == lattice.Unavailable && a.nodeURL == "" && cmd.Context().Err() == nil {
		b, err = a.proveOffline(cmd.Context(), err, offline)
	}
	if err != nil {
		return err
	}
	if out != "" {
		return os.WriteFile(out, b, 0o644)
	}
	_, err = a.stdout.Write(b)
	return err
}

func (a *app) proveOnline(ctx context.Context, f func(context.Context, *client.Client) ([]byte, error)) (b []byte, err error) {
	err = a.withClient(func(c *client.Client) error {
		b, err = f(ctx, c)
		return err
	})
	return b, err
}

// proveOffline asks the directory of a stopped node; see openStopped.
func (a *app) proveOffline(ctx context.Context, unreachable error, f func(context.Context, *node.Offline) ([]byte, error)) ([]byte, error) {
	o, err := a.openStopped(unreachable)
	if err != nil {
		return nil, err
	}
	b, err := f(ctx, o)
	return b, errors.Join(err, o.Close())
}

func partitionNumber(s string) (int32, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 0 {
		return 0, cli.Usagef("PARTITION %q: want a number of 0 or more", s)
	}
	return int32(n), nil
}
