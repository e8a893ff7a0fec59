package app

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
)

// patience bounds everything that is waited for, on a busy machine.
const patience = 3 * time.Minute

// role is one process of "lattice app". It comes back at its address.
type role struct {
	name, address string
	args          []string
	ready         string // a path that answers 200 when it works

	process *realnode.Process
	log     *os.File
}

// command makes one of lattice, with no settings of whoever runs the test.
func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.Command(w.bin, append(args, "--data", w.dir)...)
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "LATTICE_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	return cmd
}

// add makes a role with what its column says. more are flags of its own.
func (w *world) add(name, ready string, more ...string) {
	w.t.Helper()
	r := &role{name: name, address: realnode.FreeAddress(w.t), ready: ready}
	r.args = append([]string{"app", name, w.app, "--http", r.address, "-o", "json"}, slices.Concat(w.reach(name), more)...)
	log, err := os.Create(filepath.Join(w.dir, name+".log"))
	if err != nil {
		w.t.Fatal(err)
	}
	r.log = log
	w.t.Cleanup(func() {
		if r.process != nil {
			r.process.Kill()
		}
		log.Close()
		if w.t.Failed() {
			b, _ := os.ReadFile(log.Name())
			w.t.Logf("the last lines of %s:\n%s", name, b[max(0, len(b)-4<<10):])
		}
	})
	w.roles = append(w.roles, r)
}

func (w *world) role(name string) *role {
	return w.roles[slices.IndexFunc(w.roles, func(r *role) bool { return r.name == name })]
}

// start starts a role, with more flags, and waits until it works.
func (w *world) start(r *role, more ...string) {
	w.t.Helper()
	cmd := w.command(append(slices.Clone(r.args), more...)...)
	cmd.Stdout, cmd.Stderr = r.log, r.log
	p, err := realnode.Spawn(cmd)
	if err != nil {
		w.t.Fatal(err)
	}
	r.process = p
	w.until(r.name+" works", func() bool {
		select {
		case <-p.Exited():
			w.t.Fatalf("%s ended: %v", r.name, p.Err())
		default:
		}
		status, _ := w.get(r, r.ready)
		return status == http.StatusOK
	})
}

// restart ends a role as kill -9 does, and starts it again.
func (w *world) restart(r *role, more ...string) {
	w.t.Helper()
	r.process.Kill()
	w.start(r, more...)
}

// get asks a role by HTTP; 0: it did not answer.
func (w *world) get(r *role, path string) (status int, body string) {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.address+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, b.String()
}

// lattice runs a command to its end and returns what it printed.
func (w *world) lattice(args ...string) string {
	w.t.Helper()
	out, err := w.command(args...).Output()
	if err != nil {
		text := ""
		if e, ok := err.(*exec.ExitError); ok {
			text = string(e.Stderr)
		}
		w.t.Fatalf("lattice %s: %v\n%s%s", strings.Join(args, " "), err, out, text)
	}
	return string(out)
}

func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("after %s not so: %s", patience, what)
		}
	}
}

// writers submits intents from several users until stop. All of them are answered.
func (w *world) writers(n int) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for k := 0; ctx.Err() == nil; k++ {
				w.follow(fmt.Sprint("writer-", i), fmt.Sprintf("artist-%d", w.next.Add(1)))
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	return sync.OnceFunc(func() { cancel(); all.Wait() })
}
