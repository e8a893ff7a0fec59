package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/user"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/internal/cli"
	"github.com/lattice-log/lattice/pipeline/projection"
)

func newAppDLQ(a *app) *cobra.Command {
	return family("dlq", "Look after events that could not be applied to a projection",
		newDLQList(a), newDLQShow(a), newDLQRetry(a), newDLQDiscard(a))
}

// letterDoc is a dead letter as JSON.
type letterDoc struct {
	ID              int64           `json:"id"`
	Projection      string          `json:"projection"`
	TenantSchema    string          `json:"tenant_schema"`
	Fork            string          `json:"fork"`
	Stream          string          `json:"stream"`
	Entity          string          `json:"entity"`
	Sequence        int64           `json:"sequence"`
	EventType       string          `json:"event_type"`
	State           string          `json:"state"`
	Class           string          `json:"class"`
	Error           string          `json:"error"`
	Trace           string          `json:"trace,omitempty"`
	Retries         int64           `json:"retries"`
	FirstFailed     time.Time       `json:"first_failed"`
	Failed          time.Time       `json:"failed"`
	SourceTopic     string          `json:"source_topic"`
	SourcePartition int64           `json:"source_partition"`
	SourceOffset    int64           `json:"source_offset"`
	Event           json.RawMessage `json:"event,omitempty"`
	Raw             []byte          `json:"raw,omitempty"`
	Resolved        *time.Time      `json:"resolved,omitempty"`
	ResolvedBy      string          `json:"resolved_by,omitempty"`
	Reason          string          `json:"reason,omitempty"`
}

func letterOf(l *projection.Letter, whole bool) letterDoc {
	d := letterDoc{
		ID: l.ID, Projection: l.Projection, TenantSchema: l.TenantSchema, Fork: l.ForkID, Stream: l.Stream, Entity: l.EntityID, Sequence: l.Sequence,
		EventType: l.EventType, State: l.State, Class: l.Class, Error: l.Error, Retries: l.Retries, FirstFailed: l.FirstFailed, Failed: l.Failed,
		SourceTopic: l.SourceTopic, SourcePartition: l.SourcePartition, SourceOffset: l.SourceOffset, ResolvedBy: l.ResolvedBy, Reason: l.Reason,
	}
	if !l.Resolved.IsZero() {
		d.Resolved = &l.Resolved
	}
	if whole {
		d.Trace = l.Trace
		if l.Sequence > 0 && json.Valid(l.Record) {
			d.Event = l.Record
		} else {
			d.Raw = l.Record
		}
	}
	return d
}

// dlqFlags name dead letters.
type dlqFlags struct {
	tables tablesFlags
	filter projection.Filter
}

func (f *dlqFlags) add(cmd *cobra.Command, state string) {
	f.tables.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.filter.Projection, "projection", "", "of this projection only")
	fl.StringVar(&f.filter.EntityID, "entity", "", "of this entity only")
	fl.StringVar(&f.filter.EventType, "event", "", "of this type of event only")
	fl.StringVar(&f.filter.Class, "class", "", "with this class of error only: decode, data, expression, constraint, internal, parked")
	fl.BoolVar(&f.filter.Rebuilding, "rebuilding", false, "those of tables that are being rebuilt or were swapped out")
	if state != "" {
		fl.StringVar(&f.filter.State, "state", state, "waiting, failed, parked, retried, discarded, superseded; empty: all")
	}
}

// dlqStore opens the projections of the application in dir.
func (a *app) dlqStore(ctx context.Context, dir string, f *tablesFlags) (*projection.Store, func(), error) {
	application, err := loadApp(dir)
	if err != nil {
		return nil, nil, err
	}
	return a.openTables(ctx, application, f)
}

func newDLQList(a *app) *cobra.Command {
	var f dlqFlags
	var count bool
	cmd := &cobra.Command{
		Use:     "list DIR",
		Short:   "List or count the dead letters of an application",
		Example: "  lattice app dlq list examples/concertapp --projection artist_followers",
		Args:    exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, closeStore, err := a.dlqStore(cmd.Context(), args[0], &f.tables)
			if err != nil {
				return err
			}
			defer closeStore()
			if count {
				return a.dlqCount(cmd.Context(), store, f.filter)
			}
			return a.dlqList(cmd.Context(), store, f.filter)
		},
	}
	f.add(cmd, projection.StateWaiting)
	cmd.Flags().IntVar(&f.filter.Limit, "max", 100, "how many at most")
	cmd.Flags().Int64Var(&f.filter.After, "after", 0, "those with a greater id only")
	cmd.Flags().BoolVar(&count, "count", false, "count them by projection")
	a.outputFlag(cmd)
	return cmd
}

func (a *app) dlqCount(ctx context.Context, store *projection.Store, f projection.Filter) error {
	counts, err := store.Count(ctx, f)
	if err != nil {
		return err
	}
	return a.print(map[string]any{"counts": counts}, func() error {
		t := cli.NewTable("PROJECTION", ">DEAD LETTERS")
		for _, p := range store.App().Projections {
			t.Row(p.Name, counts[p.Name])
		}
		if n := counts[""]; n > 0 {
			t.Row("(no event)", n)
		}
		_, err := t.WriteTo(a.stdout)
		return err
	})
}

func (a *app) dlqList(ctx context.Context, store *projection.Store, f projection.Filter) error {
	all, err := store.Letters(ctx, f)
	if err != nil {
		return err
	}
	docs := make([]letterDoc, len(all))
	for i := range all {
		docs[i] = letterOf(&all[i], false)
	}
	return a.print(map[string]any{"dead_letters": docs}, func() error {
		if len(all) == 0 {
			a.warnf("There are no such dead letters.")
			return nil
		}
		t := cli.NewTable(">ID", "STATE", "PROJECTION", "ENTITY", ">SEQUENCE", "EVENT", "CLASS", "FAILED", "ERROR")
		for _, l := range all {
			t.Row(l.ID, l.State, l.Projection, l.EntityID, l.Sequence, l.EventType, l.Class, l.Failed.Format(time.RFC3339), oneLine(l.Error))
		}
		_, err := t.WriteTo(a.stdout)
		return err
	})
}

// oneLine cuts a text for a table.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if utf8.RuneCountInString(s) > 100 {
		return string([]rune(s)[:99]) + "…"
	}
	return s
}

func newDLQShow(a *app) *cobra.Command {
	var f tablesFlags
	cmd := &cobra.Command{
		Use:   "show DIR ID",
		Short: "Show a dead letter: the event, why it failed, what became of it",
		Args:  exactly("DIR", "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := letterID(args[1])
			if err != nil {
				return err
			}
			store, closeStore, err := a.dlqStore(cmd.Context(), args[0], &f)
			if err != nil {
				return err
			}
			defer closeStore()
			l, err := store.Letter(cmd.Context(), id)
			if err != nil {
				return err
			}
			return a.print(letterOf(&l, true), func() error {
				fmt.Fprintf(a.stdout, "dead letter %d: %s\n  projection  %s\n  entity      %s\n  event       %s, sequence %d\n  from        %s, partition %d, offset %d\n  failed      %s, first %s, %d retries\n  error       (%s) %s\n",
					l.ID, l.State, l.Projection, l.Address, l.EventType, l.Sequence, l.SourceTopic, l.SourcePartition, l.SourceOffset,
					l.Failed.Format(time.RFC3339), l.FirstFailed.Format(time.RFC3339), l.Retries, l.Class, l.Trace)
				if !l.Resolved.IsZero() {
					fmt.Fprintf(a.stdout, "  %-11s %s by %s %s\n", l.State, l.Resolved.Format(time.RFC3339), l.ResolvedBy, l.Reason)
				}
				_, err := fmt.Fprintf(a.stdout, "  record      %q\n", l.Record)
				return err
			})
		},
	}
	f.add(cmd)
	a.outputFlag(cmd)
	return cmd
}

func newDLQRetry(a *app) *cobra.Command {
	var f dlqFlags
	var all bool
	cmd := &cobra.Command{
		Use:   "retry DIR [ID...]",
		Short: "Apply dead letters after all, each entity's in order",
		Long: `Apply the dead letters of the entities that the IDs belong to, or with --all of all that fit
the flags: in order, those that are parked too, until one fails. It is safe to repeat, and
while projectors run. Exit code 1: some failed again, and wait.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all != (len(args) == 1) {
				return cli.Usagef("name dead letters by their IDs, or say --all, not both")
			}
			store, closeStore, err := a.dlqStore(cmd.Context(), args[0], &f.tables)
			if err != nil {
				return err
			}
			defer closeStore()
			var ids []int64
			for _, arg := range args[1:] {
				id, err := letterID(arg)
				if err != nil {
					return err
				}
				ids = append(ids, id)
			}
			if all {
				f.filter.State = projection.StateWaiting
				found, err := store.Letters(cmd.Context(), f.filter)
				if err != nil {
					return err
				}
				for _, l := range found {
					ids = append(ids, l.ID)
				}
			}
			return a.dlqRetry(cmd.Context(), store, ids)
		},
	}
	f.add(cmd, "")
	cmd.Flags().BoolVar(&all, "all", false, "all that wait and fit the flags")
	a.outputFlag(cmd)
	return cmd
}

func (a *app) dlqRetry(ctx context.Context, store *projection.Store, ids []int64) error {
	applied, failed := 0, map[string]string{} // by entity and projection: what comes behind is not tried again
	for _, id := range ids {
		l, err := store.Letter(ctx, id)
		if err != nil {
			return err
		}
		of := l.Projection + " " + l.Address.String()
		if l.Sequence == 0 {
			of = fmt.Sprintf("dead letter %d", id)
		}
		if _, tried := failed[of]; tried {
			continue
		}
		n, err := store.Retry(ctx, id, whoami())
		applied += n
		if err != nil {
			failed[of] = err.Error()
		}
	}
	err := a.print(map[string]any{"applied": applied, "failed": failed}, func() error {
		for of, why := range failed {
			a.warnf("%s: %s", of, why)
		}
		_, err := fmt.Fprintf(a.stdout, "%s applied.\n", counted(applied, "dead letter"))
		return err
	})
	if err == nil && len(failed) > 0 {
		err = cli.Exit(cli.ExitFailed)
	}
	return err
}

func newDLQDiscard(a *app) *cobra.Command {
	var f tablesFlags
	var reason string
	cmd := &cobra.Command{
		Use:   "discard DIR ID --reason WHY",
		Short: "Say that a dead letter is not to be applied, and why",
		Long: `Settle a dead letter without applying it. It stays in the list (--state discarded) with the
reason and who gave it. What is parked behind it is not applied by this: retry that next.`,
		Args: exactly("DIR", "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return cli.Usagef("say why: --reason WHY")
			}
			id, err := letterID(args[1])
			if err != nil {
				return err
			}
			store, closeStore, err := a.dlqStore(cmd.Context(), args[0], &f)
			if err != nil {
				return err
			}
			defer closeStore()
			left, err := store.Discard(cmd.Context(), id, whoami(), reason)
			if err != nil {
				return err
			}
			return a.print(map[string]any{"discarded": id, "waiting": left}, func() error {
				_, err := fmt.Fprintf(a.stdout, "Discarded; %s of its entity waiting.\n", counted(left, "dead letter"))
				return err
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who look later")
	a.outputFlag(cmd)
	return cmd
}

func letterID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, cli.Usagef("%q is no id of a dead letter: lattice app dlq list shows them", text)
	}
	return id, nil
}

// whoami names who settles a dead letter.
func whoami() string {
	u, err := user.Current()
	if err != nil {
		return "unknown"
	}
	return u.Username
}
