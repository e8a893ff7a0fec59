package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

func newTopicLead(a *app) *cobra.Command {
	var to string
	var all, takeover, unclean, yes bool
	var partitions []int32
	cmd := &cobra.Command{
		Use:   "lead TOPIC (--to NODE [--unclean] | --takeover [--to NODE]) (--partition N | --all)",
		Short: "Give partitions to another leader",
		Long: `Give partitions of a topic to another member, which takes what is written from then on. It can be asked
for at any node; the leader and who is to lead must be connected. What is acknowledged stays, and
producers and consumers go on: for a moment they are told to try again.

If the leader is out of reach, --takeover has one of the members that hold the partition (--replicas) lead
it: this node, or --to NODE. So many of them must promise to follow that whatever enough of them
acknowledged (--min-in-sync) is known to one that did, and is kept. The old leader follows when it comes
back. While the leader answers, --takeover does what is done without it.

With --unclean the old leader is not asked: it may be gone for good. Only an admin can, and it is asked for
at a node of an admin: the new leader goes on from what that node has. What the old leader, or another member, has beyond that
is not in the log any more, also if it was acknowledged: when they hear of it they keep it aside
(lattice topic stranded). If the old leader is away and went on in a term of its own that nobody here has
heard of, its own term rules once it is back, and what was written meanwhile is kept aside instead.`,
		Example: `  lattice topic lead orders --partition 3 --to 8c2f
  lattice topic lead orders --all --to 8c2f
  lattice topic lead orders --all --takeover
  lattice topic lead orders --all --to 8c2f --unclean`,
		Args: exactly("TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case to == "" && !takeover:
				return cli.Usagef("needs --to NODE, or --takeover")
			case unclean && takeover:
				return cli.Usagef("--takeover or --unclean, not both")
			case all == (len(partitions) > 0):
				return cli.Usagef("needs --partition N or --all")
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			if unclean {
				return a.leadUnclean(cmd, c, args[0], to, yes, partitions)
			}
			lead := c.LeadTopic
			if takeover {
				lead = c.TakeOverTopic
			}
			led, err := lead(cmd.Context(), args[0], to, partitions...)
			var e *client.Error
			switch {
			case err == nil:
			case takeover && lattice.KindOf(err) == lattice.Unavailable:
				return cli.Hint(err, "start the members that are away, and see \"lattice peer list\"; if they do not come back, an admin can lead it uncleanly, and lose what only they have")
			case lattice.KindOf(err) == lattice.Unavailable && strings.Contains(err.Error(), "cannot be reached"):
				return cli.Hint(err, "if the leader is away and members hold the partition: lattice topic lead %s --takeover; lattice peer list says who is reachable", args[0])
			case lattice.KindOf(err) == lattice.Unavailable:
				return cli.Hint(err, "lattice peer list says who is reachable")
			case errors.As(err, &e) && e.Hint != "": // of a member
				return err
			default:
				return a.noTopic(cmd, c, args[0], err)
			}
			return a.print(map[string]any{"topic": args[0], "partitions": led}, func() error {
				t := cli.NewTable(">PARTITION", "OLD LEADER", "LEADER")
				for _, l := range led {
					t.Row(l.Partition, cli.Short(l.OldLeader), cli.Short(l.Leader))
				}
				_, err := t.WriteTo(a.stdout)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the member that is to lead, by its key or how that begins")
	cmd.Flags().BoolVar(&takeover, "takeover", false, "lead it by promises of its members if the leader does not answer")
	cmd.Flags().BoolVar(&all, "all", false, "all partitions")
	cmd.Flags().BoolVar(&unclean, "unclean", false, "without the old leader's word; records that only others have are stranded")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().Int32SliceVarP(&partitions, "partition", "p", nil, "these partitions")
	a.outputFlag(cmd)
	a.completeFirst(cmd, topicNames)
	a.clientFlags(cmd)
	return cmd
}
