package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/internal/cli"
	"github.com/lattice-log/lattice/pipeline/kafka"
	"github.com/lattice-log/lattice/pipeline/projection"
	"github.com/lattice-log/lattice/pipeline/rebuild"
	"github.com/lattice-log/lattice/pipeline/topic"
)

// rebuildFlags are what a rebuild is started with.
type rebuildFlags struct {
	tables        tablesFlags
	from, topic   string
	hold, unequal bool
	quiet         bool
	kafka         kafka.Config
}

func (f *rebuildFlags) add(a *app, cmd *cobra.Command) {
	f.tables.add(cmd)
	fl := cmd.Flags()
	fl.Var(&choice{&f.from, []string{"auto", rebuild.FromTopic, rebuild.FromLedger}}, "from", "what is read: topic, ledger, or auto: the topic if it still has its beginning, else the ledger")
	fl.StringVar(&f.topic, "projection-topic", topic.ProjectionEvents, "topic of the events")
	fl.BoolVar(&f.unequal, "accept-counts", false, "swap although the numbers of rows differ")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "no progress")
	kafkaFlags(cmd, &f.kafka)
	a.outputFlag(cmd)
}

func newAppRebuild(a *app) *cobra.Command {
	f := rebuildFlags{from: "auto"}
	cmd := &cobra.Command{
		Use:   "rebuild DIR [PROJECTION...]",
		Short: "Fill projections anew beside the live tables, and swap them in",
		Long: `Fill new tables for the projections of the application in DIR (all, or those that are named, and
those that write the same tables) from the first event on, while projectors keep the live
ones. When all is read, the numbers of rows are compared, and the tables are swapped in one
transaction; clients of the gateway read the rows anew. Numbers that differ are for you to judge:
nothing is swapped then, and --accept-counts does it.

It can be killed at any time: the same command goes on. A changed application begins anew; after
the swap, projectors that run with the old one pause and say so: start them with the new one.
Events that cannot be applied become dead letters of the new tables ("dlq list --rebuilding");
those that were discarded from the live ones are passed over.

The tables that were swapped out stay until "drop", and "rollback" brings them up to date and back.`,
		Example: `  lattice app rebuild examples/concertapp artist_followers
  lattice app rebuild . --hold                 # fill only; without --hold later: swap
  lattice app rebuild status .
  lattice app rebuild rollback .
  lattice app rebuild drop .`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.appRebuild(cmd.Context(), args[0], args[1:], f, (*projection.Store).Begin)
		},
	}
	f.add(a, cmd)
	cmd.Flags().BoolVar(&f.hold, "hold", false, "fill the tables, and do not swap them")
	cmd.AddCommand(newRebuildStatus(a), newRebuildRollback(a), newRebuildDrop(a))
	return cmd
}

func newRebuildRollback(a *app) *cobra.Command {
	f := rebuildFlags{from: "auto"}
	cmd := &cobra.Command{
		Use:   "rollback DIR [PROJECTION...]",
		Short: "Bring back the tables that were swapped out last",
		Long: `Apply to the tables that a rebuild swapped out what came since, and swap them in again. DIR must have
the version of the application that filled them. It can be repeated; what it swaps out stays, too.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.appRebuild(cmd.Context(), args[0], args[1:], f, (*projection.Store).Revert)
		},
	}
	f.add(a, cmd)
	return cmd
}

// rebuildStore opens the projections, and makes nothing of the live tables.
func (a *app) rebuildStore(ctx context.Context, dir string, f *tablesFlags) (*openedTables, error) {
	application, err := loadApp(dir)
	if err != nil {
		return nil, err
	}
	return a.openTablesWith(ctx, application, f, projection.Options{App: application, Forks: f.forks, Rebuild: true})
}

func (a *app) appRebuild(ctx context.Context, dir string, names []string, f rebuildFlags, begin func(*projection.Store, context.Context, []string) (*projection.Rebuild, error)) error {
	if err := a.ownKafka(&f.kafka); err != nil {
		return err
	}
	reach, err := f.kafka.Options()
	if err != nil {
		return cli.Usage(err)
	}
	opened, err := a.rebuildStore(ctx, dir, &f.tables)
	if err != nil {
		return err
	}
	defer opened.close()
	of, err := begin(opened.store, ctx, names)
	if err != nil {
		return err
	}
	if of.Resumed {
		a.warnf("Going on with what was begun earlier.")
	}
	o := rebuild.Options{
		Store: opened.store, Rebuild: of, Ledger: opened.ledger, Topic: f.topic, Kafka: reach, Hold: f.hold, Unequal: f.unequal,
		Logger: slog.New(slog.NewTextHandler(a.stderr, nil)),
	}
	if f.from != "auto" {
		o.From = f.from
	}
	if !f.quiet {
		var last time.Time
		o.Progress = func(p rebuild.Progress) {
			if time.Since(last) >= time.Second {
				last = time.Now()
				a.warnf("%s", sayProgress(p))
			}
		}
	}
	out, err := rebuild.Run(ctx, o)
	if ctx.Err() != nil {
		return cli.Hint(fmt.Errorf("the rebuild was interrupted: %w", ctx.Err()), "the same command goes on with it; lattice app rebuild drop %s ends it", dir)
	}
	return a.rebuilt(dir, of, out, err)
}

func sayProgress(p rebuild.Progress) string {
	percent := 100.0
	if p.Total > 0 {
		percent = 100 * float64(p.Done) / float64(p.Total)
	}
	return fmt.Sprintf("%d of %d events read from the %s (%.0f %%), %.0f a second, about %s left", p.Done, p.Total, p.Source, percent, p.PerSecond, p.Left)
}

// rebuilt says what came of a rebuild.
func (a *app) rebuilt(dir string, of *projection.Rebuild, out rebuild.Result, err error) error {
	var names []string
	for _, p := range of.Projections() {
		names = append(names, p.Name)
	}
	counted := errors.Is(err, projection.ErrCounts) || errors.Is(err, projection.ErrAhead)
	if err != nil && !counted {
		var behind *projection.BehindError
		switch {
		case errors.As(err, &behind) && strings.HasPrefix(out.Source, "topic"):
			return cli.Hint(err, "name the ledger to take it from: --ledger, or --from ledger")
		case errors.As(err, &behind):
			return cli.Hint(err, "events that other programs sent are on the topic only: --from topic")
		case lattice.KindOf(err) == lattice.NotFound:
			return cli.Hint(err, "--ledger URL names it; --from topic takes the topic as it is")
		}
		return err
	}
	doc := struct {
		Projections []string `json:"projections"`
		rebuild.Result
	}{names, out}
	perr := a.print(doc, func() error {
		fmt.Fprintf(a.stdout, "%s: %s of the %s read, %d applied, %s.\n", strings.Join(names, ", "), counted2(out.Done, "event"), out.Source, out.Applied, counted2(out.DeadLetters, "dead letter"))
		if len(out.Counts) > 0 {
			t := cli.NewTable("SCHEMA", "TABLE", ">GENERATION", ">ROWS BEFORE", ">ROWS REBUILT")
			for _, c := range out.Counts {
				t.Row(c.TenantSchema, c.Table, c.Generation, c.Live, c.Rebuilt)
			}
			if _, err := t.WriteTo(a.stdout); err != nil {
				return err
			}
		}
		what := "Filled, and not swapped: the same command without --hold does that."
		if out.Swapped {
			what = fmt.Sprintf("Swapped. What was live stays until: lattice app rebuild drop %s", dir)
		}
		if counted {
			return nil
		}
		_, err := fmt.Fprintln(a.stdout, what)
		return err
	})
	if counted {
		return errors.Join(perr, cli.Hint(err, "look at both (lattice app rebuild status %s names the tables), then the same command with --accept-counts", dir))
	}
	return perr
}

// counted2 is counted for what is counted in 64 bits.
func counted2(n int64, noun string) string { return counted(int(n), noun) }

func newRebuildStatus(a *app) *cobra.Command {
	var f tablesFlags
	cmd := &cobra.Command{
		Use:   "status DIR",
		Short: "Show which tables are live, being filled, and swapped out",
		Args:  exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opened, err := a.rebuildStore(cmd.Context(), args[0], &f)
			if err != nil {
				return err
			}
			defer opened.close()
			sets, err := opened.store.Sets(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(map[string]any{"tables": sets}, func() error { return a.printSets(sets) })
		},
	}
	f.add(cmd)
	a.outputFlag(cmd)
	return cmd
}

func (a *app) printSets(sets []projection.SetInfo) error {
	t := cli.NewTable("SCHEMA", "TABLE", ">GENERATION", "STATE", "STORED AS", ">READ", ">DEAD LETTERS", "CHANGED")
	for _, s := range sets {
		read, changed := "", ""
		if s.Total > 0 {
			read = fmt.Sprintf("%.0f %%", 100*float64(s.Done)/float64(s.Total))
		}
		if !s.Changed.IsZero() {
			changed = s.Changed.Format(time.RFC3339)
		}
		t.Row(s.TenantSchema, s.Table, s.Generation, s.State, s.Stored, read, s.DeadLetters, changed)
	}
	_, err := t.WriteTo(a.stdout)
	return err
}

func newRebuildDrop(a *app) *cobra.Command {
	var f tablesFlags
	cmd := &cobra.Command{
		Use:   "drop DIR [PROJECTION...]",
		Short: "Drop the tables that are not live",
		Long: `Drop what a rebuild swapped out, and what one is filling: that ends it. The live tables stay. Dead
letters that wait in what is dropped are settled as superseded.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			opened, err := a.rebuildStore(cmd.Context(), args[0], &f)
			if err != nil {
				return err
			}
			defer opened.close()
			dropped, err := opened.store.Drop(cmd.Context(), args[1:])
			if err != nil {
				return err
			}
			return a.print(map[string]any{"dropped": dropped}, func() error {
				for _, s := range dropped {
					fmt.Fprintf(a.stdout, "dropped %s.%s (generation %d, %s)\n", s.TenantSchema, s.Stored, s.Generation, s.State)
				}
				if len(dropped) == 0 {
					a.warnf("There are none.")
				}
				return nil
			})
		},
	}
	f.add(cmd)
	a.outputFlag(cmd)
	return cmd
}
