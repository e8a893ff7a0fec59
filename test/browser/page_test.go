// Package browser opens the example's page in Chromium. It is a module of its own: what
// drives the browser is for tests only.
package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// patience bounds each wait: what is waited for comes within a second or two, on a machine
// that does nothing else.
const patience = 2 * time.Minute

const application = "../../examples/concertapp"

// lattice returns the command, which it builds unless LATTICE_BIN names one.
func lattice(t *testing.T) string {
	t.Helper()
	if bin := os.Getenv("LATTICE_BIN"); bin != "" {
		return bin
	}
	bin := filepath.Join(t.TempDir(), "lattice")
	cmd := exec.Command("go", "build", "-o", bin, "./cmd/lattice")
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}

// process is one that runs until it is killed, or the test ends.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
}

func run(t *testing.T, bin string, args ...string) (*process, *bytes.Buffer) {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(bin, args...)}
	// What is LATTICE_… in the environment is a setting to the command.
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "LATTICE_") })
	out := &bytes.Buffer{}
	reader, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	log := &strings.Builder{}
	p.cmd.Stderr = log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%q said:\n%s", args, log)
		}
	})
	if args[0] == "up" {
		return p, out
	}
	// The first document says where it listens.
	var doc json.RawMessage
	if err := json.NewDecoder(reader).Decode(&doc); err != nil {
		t.Fatalf("%q: %v\n%s", args, err, log)
	}
	out.Write(doc)
	return p, out
}

// kill gives it no time to say goodbye.
func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Signal(syscall.SIGKILL)
		_ = p.cmd.Wait()
	}
}

// address returns where a role said that it listens.
func address(t *testing.T, out *bytes.Buffer) string {
	t.Helper()
	var doc struct{ HTTP string }
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil || doc.HTTP == "" {
		t.Fatalf("%v: %s", err, out)
	}
	return doc.HTTP
}

// follow has a user follow artist-456.
func follow(t *testing.T, runtime, user string) {
	t.Helper()
	body := fmt.Sprintf(`{"intentId":"i-%s","intentType":"FOLLOW_ARTIST","payload":{"user_id":%q,"artist_id":"artist-456"}}`, user, user)
	resp, err := http.Post("http://"+runtime+"/v1/intents", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct{ Accepted bool }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || !answer.Accepted {
		t.Fatalf("intent of %s: %v, status %d", user, err, resp.StatusCode)
	}
}

// frames are what the page's WebSocket has received.
type frames struct {
	mu  sync.Mutex
	all []string
}

// listen collects them from now on.
func (f *frames) listen(ctx context.Context) {
	received := chromedp.Events(ctx, network.WebSocketFrameReceived)
	go func() {
		for e, err := range received {
			if err != nil {
				return // the test is over
			}
			f.mu.Lock()
			f.all = append(f.all, string(e.Response.PayloadData))
			f.mu.Unlock()
		}
	}()
}

// answers returns what came of each resume.
func (f *frames) answers() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, text := range f.all {
		var frame struct{ Type, Answer string }
		if json.Unmarshal([]byte(text), &frame) == nil && frame.Type == "resume" {
			all = append(all, frame.Answer)
		}
	}
	return all
}

// chromium opens a page without anything in it.
func chromium(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not there: make deps")
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), chromedp.ExecPath(path), chromedp.Headless, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.DisableGPU, chromedp.NoSandbox, chromedp.WSURLReadTimeout(patience))
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// shows waits until an expression is true in the page.
func shows(t *testing.T, ctx context.Context, what, expression string) {
	t.Helper()
	_, err := chromedp.Run(ctx, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(patience), chromedp.WithPollingInterval(50*time.Millisecond)))
	if err != nil {
		page, _ := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
		t.Fatalf("%s: %v; the page shows %q", what, err, page)
	}
}

const counter = `document.querySelector("#rows td.n")?.textContent`

// The page counts followers as they come, without a reload; and when the gateway was killed
// and is back, the page comes back by itself, resumes, and shows what happened meanwhile.
func TestPage(t *testing.T) {
	ctx := chromium(t)
	bin, data := lattice(t), t.TempDir()
	run(t, bin, "up", "--data", data, "--kafka", "127.0.0.1:0", "--redis", "", "--http", "127.0.0.1:0")
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(data, "node.json")); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the node does not start")
		}
	}
	role := func(name, http string) (*process, string) {
		p, out := run(t, bin, "app", name, application, "--data", data, "--http", http, "-o", "json")
		return p, address(t, out)
	}
	_, runtime := role("runtime", "127.0.0.1:0")
	role("projector", "127.0.0.1:0")
	gateway, live := role("gateway", "127.0.0.1:0")

	var seen frames
	seen.listen(ctx)
	if err := chromedp.Do(ctx, chromedp.Navigate("http://"+live+"/"), chromedp.Evaluate[chromedp.Void](`window.opened = "once"`)); err != nil {
		t.Fatal(err)
	}
	shows(t, ctx, "the page is live", `document.getElementById("state").dataset.fresh === "true"`)
	follow(t, runtime, "user-1")
	shows(t, ctx, "the first follower", counter+` === "1"`)
	follow(t, runtime, "user-2")
	follow(t, runtime, "user-3")
	shows(t, ctx, "three followers", counter+` === "3"`)

	gateway.kill()
	shows(t, ctx, "the page says that it is not live", `document.getElementById("state").dataset.fresh === "false"`)
	follow(t, runtime, "user-4")
	follow(t, runtime, "user-5")
	before := len(seen.answers())
	role("gateway", live)
	shows(t, ctx, "what happened meanwhile", counter+` === "5"`)
	shows(t, ctx, "the page is live again", `document.getElementById("state").dataset.fresh === "true"`)
	follow(t, runtime, "user-6")
	shows(t, ctx, "what happens afterwards", counter+` === "6"`)
	shows(t, ctx, "the last follower", `document.querySelector("#rows td:last-child").textContent === "user-6"`)

	answers := seen.answers()
	if len(answers) <= before {
		t.Fatalf("the page did not resume: %q", answers)
	}
	for _, a := range answers[before:] {
		if a != "replay" && a != "nothing_missed" {
			t.Errorf("the page came back with a cursor and got %q", answers)
		}
	}
	if opened, err := chromedp.Run(ctx, chromedp.Evaluate[string](`window.opened`)); err != nil || opened != "once" {
		t.Errorf("the page was loaded again: %q, %v", opened, err)
	}
}
