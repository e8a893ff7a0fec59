package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lattice-log/lattice/app/bench/compare"
)

// keysFlags are redis-benchmark's, for every test and server.
var keysFlags = []string{"-c", "50", "-d", "3", "-r", "100000"}

// keysPlan returns what is measured of keys: in a minute, or in twelve.
func keysPlan(short bool, say func(string, ...any)) (compare.KeyPlan, []foldWork) {
	var works []compare.KeyWork
	for _, pipeline := range []int{1, 16} {
		for _, test := range []string{"set", "get", "incr", "hset", "zadd", "lpush"} {
			works = append(works, compare.KeyWork{Test: test, Pipeline: pipeline, Reads: test == "get"})
		}
	}
	plan := compare.KeyPlan{
		Rounds: 3, Budget: 5 * time.Minute, Works: works, Warm: 3000, For: 1200 * time.Millisecond,
		Settle: unix.Sync, Say: say,
	}
	folds := []foldWork{
		{"set", 16, 1_000_000, anyKey}, {"set", 16, 3_000_000, anyKey}, {"set", 16, 1_000_000, 100_000}, {"set", 1, 300_000, 100_000},
		{"incr", 16, 500_000, 100_000}, {"hset", 16, 500_000, 100_000}, {"zadd", 16, 500_000, 100_000}, {"lpush", 16, 500_000, 100_000},
	}
	if short {
		plan.Rounds, plan.Warm, plan.For = 1, 500, 200*time.Millisecond
		for i := range folds {
			folds[i].requests /= 20
		}
	}
	return plan, folds
}

// foldsUntil is how far into a run another log is begun: a slow machine measures
// fewer, not longer.
const foldsUntil = 10*time.Minute + 30*time.Second

// measureKeys is make bench-redis.
func (o *options) measureKeys(ctx context.Context, say func(string, ...any)) error {
	for _, n := range []need{{"redis-server", "apt-get install redis-server"}, {"redis-benchmark", "apt-get install redis-tools"}, {o.bin("lattice"), "make build"}} {
		if _, err := exec.LookPath(n.path); err != nil {
			return fmt.Errorf("no %s: %s", n.path, n.from)
		}
	}
	began := time.Now()
	plan, folds := keysPlan(o.short, say)
	if o.rounds > 0 {
		plan.Rounds = o.rounds
	}
	r := compare.KeysReport{
		Command: o.command, Flags: strings.Join(keysFlags, " "), Commit: o.commit, Date: time.Now().UTC().Format(time.DateOnly),
		Machine: machine(o.dir), Load: load(), Works: plan.Works,
	}
	var err error
	if r.Peers, r.Rounds, err = plan.Run(ctx, o.keyPeers()); err != nil {
		return err
	}
	var failed error
	if o.folds {
		r.Folds, failed = o.measureFolds(ctx, folds, began.Add(foldsUntil), say)
	}
	section := r.Markdown()
	all := struct {
		*compare.KeysReport
		Goals []compare.Goal `json:"goals"`
	}{&r, r.Goals()}
	return errors.Join(o.write("make bench-redis", section, all), r.Failures(), failed)
}

func (e *env) keyPeers() []compare.KeyPeer {
	return []compare.KeyPeer{
		e.redisKeys(compare.Durable, "always"), e.latticeKeys(compare.Durable, "fsync"),
		e.redisKeys(compare.EverySecond, "everysec"), e.latticeKeys(compare.EverySecond, "interval"),
	}
}

// keyServer is any server that speaks Redis's protocol.
type keyServer struct {
	*process
	version string
	port    int
}

func (s *keyServer) Version() string { return s.version }

// connect waits until the server answers.
func (s *keyServer) connect(ctx context.Context) error {
	return s.await(ctx, func() error {
		c, err := dialRESP(s.port)
		if err != nil {
			return err
		}
		defer c.close()
		_, err = c.do("PING")
		return err
	})
}

// Bench runs redis-benchmark.
func (s *keyServer) Bench(ctx context.Context, w compare.KeyWork, requests int64) (float64, error) {
	return s.bench(ctx, w, requests, keysFlags)
}

func (s *keyServer) bench(ctx context.Context, w compare.KeyWork, requests int64, flags []string) (float64, error) {
	args := append([]string{
		"-h", "127.0.0.1", "-p", strconv.Itoa(s.port), "-t", w.Test, "-P", strconv.Itoa(w.Pipeline), "-n", strconv.FormatInt(requests, 10), "--csv",
	}, flags...)
	cmd := exec.CommandContext(ctx, "redis-benchmark", args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("redis-benchmark %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(said.Bytes()))
	}
	return perSecond(out)
}

// perSecond reads the rate that redis-benchmark --csv printed.
func perSecond(out []byte) (float64, error) {
	rows, err := csv.NewReader(bytes.NewReader(out)).ReadAll()
	if err != nil {
		return 0, fmt.Errorf("redis-benchmark printed %.200q: %w", out, err)
	}
	if len(rows) != 2 || len(rows[1]) < 2 || rows[0][1] != "rps" {
		return 0, fmt.Errorf("redis-benchmark printed %.200q", out)
	}
	return strconv.ParseFloat(rows[1][1], 64)
}

func (e *env) redisKeys(class compare.Class, fsync string) compare.KeyPeer {
	return compare.KeyPeer{
		Name: compare.Redis, Class: class, How: "redis-server --appendonly yes --appendfsync " + fsync + ", without snapshots and rewrites",
		Start: func(ctx context.Context) (compare.KeyServer, error) {
			return e.startKeys(ctx, redisVersion(e.version("redis-server", "--version")), func(dir string, port int) *exec.Cmd {
				return exec.Command("redis-server", "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir,
					"--save", "", "--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0")
			})
		},
	}
}

// redisVersion picks the number out of what redis-server says of itself.
func redisVersion(line string) string {
	for f := range strings.FieldsSeq(line) {
		if v, ok := strings.CutPrefix(f, "v="); ok {
			return v
		}
	}
	return line
}

func (e *env) latticeKeys(class compare.Class, durability string) compare.KeyPeer {
	return compare.KeyPeer{
		Name: compare.Lattice, Class: class, How: "lattice up --set state.durability=" + durability + ", signed",
		Start: func(ctx context.Context) (compare.KeyServer, error) {
			return e.startKeys(ctx, e.version(e.bin("lattice"), "version"), func(dir string, port int) *exec.Cmd {
				return e.latticeUp(filepath.Join(dir, "data"), port, durability)
			})
		},
	}
}

// latticeUp runs a node that serves keys and nothing else.
func (e *env) latticeUp(data string, port int, durability string) *exec.Cmd {
	return exec.Command(e.bin("lattice"), "up", "--data", data, "--redis", address(port), "--kafka", "", "--http", "", "--set", "state.durability="+durability)
}

func (e *env) startKeys(ctx context.Context, version string, command func(dir string, port int) *exec.Cmd) (*keyServer, error) {
	dir, err := os.MkdirTemp(e.dir, "keys-")
	if err != nil {
		return nil, err
	}
	s, err := e.startKeysIn(ctx, dir, version, command)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

func (e *env) startKeysIn(ctx context.Context, dir, version string, command func(dir string, port int) *exec.Cmd) (*keyServer, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	p, err := launch(dir, command(dir, port))
	if err != nil {
		return nil, err
	}
	s := &keyServer{process: p, version: version, port: port}
	if err := s.connect(ctx); err != nil {
		return nil, errors.Join(err, p.end())
	}
	return s, nil
}

// write prints a section, and writes the files that were asked for: the section
// between the marks of command, and all figures.
func (o *options) write(command, section string, figures any) error {
	fmt.Println(section)
	if o.json != "" {
		b, err := json.MarshalIndent(figures, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.json, append(b, '\n'), 0o644); err != nil {
			return err
		}
	}
	if o.page == "" {
		return nil
	}
	page, err := os.ReadFile(o.page)
	if err != nil {
		return err
	}
	if page, err = compare.Insert(page, command, section); err != nil {
		return err
	}
	return os.WriteFile(o.page, page, 0o644)
}
