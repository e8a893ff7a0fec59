package spec

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/internal/testkit/transcript"
)

var rewrite = flag.Bool("rewrite", false, "write what the transcripts now compare with")

// load returns an application that must load.
func load(t testing.TB, dir string) *App {
	t.Helper()
	app, err := Load(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	return app
}

// TestExample checks that the example that ships loads without a warning.
func TestExample(t *testing.T) {
	app, problems := Check(os.DirFS("../../examples/concertapp"))
	if len(problems) > 0 {
		t.Fatalf("%v", problems)
	}
	if got := app.TenantSchema(""); got != "platform1_concertapp_prod" || app.Version != "v42" {
		t.Errorf("schema %q, version %q", got, app.Version)
	}
}

// TestMistakes checks the applications in testdata/mistakes, each a txtar archive of its
// files: the file "problems" has every line that Check must report, in order.
func TestMistakes(t *testing.T) {
	files, err := filepath.Glob("testdata/mistakes/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			fsys := fstest.MapFS{}
			want := -1
			for i, f := range ar.Files {
				if f.Name == "problems" {
					want = i
					continue
				}
				fsys[f.Name] = &fstest.MapFile{Data: f.Data}
			}
			app, problems := Check(fsys)
			got := problems.Error() + "\n"
			if len(problems) == 0 {
				got = ""
			}
			if (app == nil) != (len(problems.Mistakes()) > 0) {
				t.Errorf("an App: %v, mistakes: %d", app != nil, len(problems.Mistakes()))
			}
			switch {
			case *rewrite:
				if want < 0 {
					want = len(ar.Files)
					ar.Files = append(ar.Files, txtar.File{Name: "problems"})
				}
				ar.Files[want].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
			case want < 0 || got != string(ar.Files[want].Data):
				t.Errorf("got:\n%swant:\n%s", got, ar.Files[max(want, 0)].Data)
			}
		})
	}
}

// TestTranscripts plays testdata/*.txt. Commands:
//
//	app DIR [warnings]            load an application
//	ts N                          what time it is from now on
//	intent NAME PAYLOAD           decide, commit and project what was emitted
//	event NAME ENTITY PAYLOAD [V] project an event, written under irVersion V
//	state STATE ENTITY            an entity's state
//	put STATE ENTITY JSON         set an entity's state
//	rows TABLE                    a table
//	query NAME INPUT              what a query asks
//	tables                        columns, keys and indexes
func TestTranscripts(t *testing.T) {
	transcript.Run(t, *rewrite, func(*testing.T) func(string) string {
		w := &world{states: map[string]map[string]any{}, tables: tables{}}
		return w.run
	})
}

// world is an application with everything that it needs, in memory.
type world struct {
	app    *App
	ts     int64
	states map[string]map[string]any // state/entity
	tables tables
}

func (w *world) run(line string) string {
	words := strings.SplitN(line, " ", 3)
	arg := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	switch words[0] {
	case "app":
		app, problems := Check(os.DirFS(arg(1)))
		w.app = app
		if len(problems) > 0 && (arg(2) == "warnings" || app == nil) {
			return problems.Error() + "\n"
		}
		return "ok\n"
	case "ts":
		w.ts, _ = strconv.ParseInt(arg(1), 10, 64)
		return ""
	case "intent":
		return w.intent(arg(1), arg(2))
	case "event":
		rest := strings.SplitN(arg(2), " ", 2)
		raw, version, _ := strings.Cut(rest[1], " @")
		payload, err := Payload([]byte(raw))
		if err != nil {
			return err.Error() + "\n"
		}
		return w.project(arg(1), rest[0], version, payload)
	case "state":
		return asJSON(w.states[arg(1)+"/"+arg(2)]) + "\n"
	case "put":
		rest := strings.SplitN(arg(2), " ", 2)
		m, err := Payload([]byte(rest[1]))
		if err != nil {
			return err.Error() + "\n"
		}
		w.states[arg(1)+"/"+rest[0]] = m
		return ""
	case "rows":
		return w.tables.rows(arg(1))
	case "query":
		return w.query(arg(1), arg(2))
	case "tables":
		return w.describe()
	}
	return "unknown command\n"
}

func (w *world) lookup(state, id string) (map[string]any, bool, error) {
	if id == "unreachable" {
		return nil, false, lattice.E(lattice.Unavailable, errors.New("no connection"))
	}
	m, ok := w.states[state+"/"+id]
	return m, ok, nil
}

func (w *world) intent(name, raw string) string {
	in := w.app.Intents[name]
	if in == nil {
		return "no such intent\n"
	}
	payload, err := Payload([]byte(raw))
	if err != nil {
		return err.Error() + "\n"
	}
	id, err := in.Entity(payload)
	if err != nil {
		return fmt.Sprintf("%v [%v]\n", err, lattice.KindOf(err))
	}
	d, err := in.Decide(Request{Payload: payload, EntityID: id, State: w.states[in.State+"/"+id], TS: w.ts, Lookup: w.lookup})
	if err != nil {
		return fmt.Sprintf("%v [%v]\n", err, lattice.KindOf(err))
	}
	if r := d.Rejection; r != nil {
		return fmt.Sprintf("rejected by %s: %s: %s\n", r.Rule, r.Code, r.Message)
	}
	var b strings.Builder
	for _, c := range d.Changes {
		if c.Gone {
			fmt.Fprintf(&b, "remove %s\n", joinPath(c.Path))
			continue
		}
		fmt.Fprintf(&b, "set %s %s\n", joinPath(c.Path), asJSON(c.Value))
	}
	w.states[in.State+"/"+id] = d.State
	for _, e := range d.Events {
		fmt.Fprintf(&b, "%s %s/%s %s\n", e.Type, e.Stream, e.EntityID, asJSON(e.Payload))
		b.WriteString(w.project(e.Type, e.EntityID, w.app.Version, e.Payload))
	}
	return b.String()
}

func (w *world) project(event, entity, version string, payload map[string]any) string {
	e := w.app.Events[event]
	if e == nil {
		return "no such event\n"
	}
	payload, err := e.Current(version, payload)
	if err != nil {
		return fmt.Sprintf("%v [%v]\n", err, lattice.KindOf(err))
	}
	m := Message{Type: event, EntityID: entity, TS: w.ts, IRVersion: version, Payload: payload, Lookup: w.lookup}
	var b strings.Builder
	for _, p := range w.app.ProjectionsOf(event) {
		ops, err := w.tables.project(p, m)
		if err != nil {
			fmt.Fprintf(&b, "  %v [%v]\n", err, lattice.KindOf(err))
		}
		for _, op := range ops {
			fmt.Fprintf(&b, "  %s %s%s%s%s\n", op.Kind, op.Table, cells(" ", op.Key), cells(" where ", op.Where), cells(": ", op.Set))
		}
	}
	return b.String()
}

func cells(before string, cs []Cell) string {
	var parts []string
	for _, c := range cs {
		parts = append(parts, c.Column+"="+asJSON(c.Value))
	}
	if len(parts) == 0 {
		return ""
	}
	return before + strings.Join(parts, " ")
}

func (w *world) query(name, raw string) string {
	q := w.app.Queries[name]
	input, err := Payload([]byte(raw))
	if q == nil || err != nil {
		return fmt.Sprintf("%v %v\n", q, err)
	}
	input, wrong := q.Conform(input)
	if wrong != nil {
		return strings.Join(wrong, "; ") + "\n"
	}
	out := fmt.Sprintf("%v of %s\n", q.Columns, q.Table)
	for _, c := range q.Where {
		v, ok, err := c.Value(input)
		out += fmt.Sprintf("where %s %s %s %v %v\n", c.Column, c.Op, asJSON(v), ok, err)
	}
	return out + fmt.Sprintf("order %v limit %d\n", q.Order, q.Limit)
}

func (w *world) describe() string {
	var b strings.Builder
	for _, t := range w.app.Tables {
		fmt.Fprintf(&b, "%s by %v, of %v\n", t.Name, t.Key, t.Projections)
		for _, c := range t.Columns {
			fmt.Fprintf(&b, "  %s %s", c.Name, c.Type)
			if c.Size+c.Precision+c.Scale > 0 {
				fmt.Fprintf(&b, " (%d %d %d)", c.Size, c.Precision, c.Scale)
			}
			b.WriteString("\n")
		}
		for _, ix := range t.Indexes {
			fmt.Fprintf(&b, "  index %+v\n", ix)
		}
	}
	return b.String()
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// tables are rows in memory, by table and key.
type tables map[string]map[string]map[string]any

// project does what a projector does: step, read the row, apply, write.
func (ts tables) project(p *Projection, m Message) ([]RowOp, error) {
	step, err := p.Step(m)
	if err != nil || step == nil {
		return nil, err
	}
	var row map[string]any
	if step.Key != nil {
		row = ts[step.Table][keyText(step.Key)]
	}
	ops, err := step.Apply(row)
	if err != nil {
		return nil, err
	}
	for _, op := range ops {
		ts.write(op)
	}
	return ops, nil
}

func keyText(key []Cell) string {
	var parts []string
	for _, c := range key {
		parts = append(parts, asJSON(c.Value))
	}
	return strings.Join(parts, ",")
}

func (ts tables) write(op RowOp) {
	if ts[op.Table] == nil {
		ts[op.Table] = map[string]map[string]any{}
	}
	t := ts[op.Table]
	switch op.Kind {
	case Insert:
		row := map[string]any{}
		for _, c := range slices.Concat(op.Key, op.Set) {
			row[c.Column] = c.Value
		}
		t[keyText(op.Key)] = row
	case Update:
		for _, c := range op.Set {
			t[keyText(op.Key)][c.Column] = c.Value
		}
	case Delete:
		delete(t, keyText(op.Key))
	case UpdateWhere:
		for _, row := range t {
			if slices.ContainsFunc(op.Where, func(c Cell) bool { return !same(row[c.Column], c.Value) }) {
				continue
			}
			for _, c := range op.Set {
				row[c.Column] = c.Value
			}
		}
	}
}

func (ts tables) rows(table string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(ts[table])) {
		fmt.Fprintf(&b, "%s\n", asJSON(ts[table][k]))
	}
	return b.String()
}
