package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/internal/cli"
	"github.com/lattice-log/lattice/pipeline/kafka"
	"github.com/lattice-log/lattice/pipeline/projection"
	"github.com/lattice-log/lattice/pipeline/projector"
	"github.com/lattice-log/lattice/pipeline/topic"
)

// lagFlags are what "lattice app lag" asks with.
type lagFlags struct {
	tables       tablesFlags
	group, topic string
	kafka        kafka.Config
}

func newAppLag(a *app) *cobra.Command {
	var f lagFlags
	cmd := &cobra.Command{
		Use:   "lag DIR",
		Short: "Show how far an application's projections are behind",
		Long: `Show, for each projection and partition, how many events are on the topic that are not
committed as applied, and, for each projection, how many dead letters wait.`,
		Args: exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.appLag(cmd.Context(), args[0], f) },
	}
	f.tables.add(cmd)
	cmd.Flags().StringVar(&f.group, "group", "", "what the names of the consumer groups begin with (default: lattice-projector.APP)")
	cmd.Flags().StringVar(&f.topic, "projection-topic", topic.ProjectionEvents, "topic of the events")
	kafkaFlags(cmd, &f.kafka)
	a.outputFlag(cmd)
	return cmd
}

func (a *app) appLag(ctx context.Context, dir string, f lagFlags) error {
	application, err := loadApp(dir)
	if err != nil {
		return err
	}
	if err := a.ownKafka(&f.kafka); err != nil {
		return err
	}
	reach, err := f.kafka.Options()
	if err != nil {
		return cli.Usage(err)
	}
	store, closeStore, err := a.openTables(ctx, application, &f.tables)
	if err != nil {
		return err
	}
	defer closeStore()
	if f.group == "" {
		f.group = projector.DefaultGroup(application)
	}
	var names []string
	for _, p := range application.Projections {
		names = append(names, p.Name)
	}
	lags, err := projector.Lags(ctx, reach, f.group, f.topic, names)
	if err != nil {
		return err
	}
	dead, err := store.Count(ctx, projection.Filter{State: projection.StateWaiting})
	if err != nil {
		return err
	}
	outbox, err := store.Waiting(ctx)
	if err != nil {
		return err
	}
	return a.print(map[string]any{"lag": lags, "dead_letters": dead, "outbox": outbox}, func() error {
		t := cli.NewTable("PROJECTION", ">PARTITION", ">COMMITTED", ">END", ">LAG", ">DEAD LETTERS")
		last := ""
		for _, l := range lags {
			var waiting any = ""
			if l.Projection != last {
				waiting, last = dead[l.Projection], l.Projection
			}
			t.Row(l.Projection, l.Partition, l.Committed, l.End, l.Lag, waiting)
		}
		_, err := t.WriteTo(a.stdout)
		return err
	})
}
