package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/lattice-log/lattice/app/bench"
	"github.com/lattice-log/lattice/app/bench/compare"
)

// foldWork is a log that is written, and folded again.
type foldWork struct {
	test     string // of redis-benchmark
	pipeline int
	requests int64
	keys     int // keys, or items of one, that are chosen from
}

// anyKey are so many keys that a chosen one is nearly always new.
const anyKey = 1_000_000_000

func (w foldWork) String() string {
	keys := fmt.Sprintf("of %d", w.keys)
	if w.keys == anyKey {
		keys = "nearly all new"
	}
	return fmt.Sprintf("%s, 50 clients, -P %d, %s", w.test, w.pipeline, keys)
}

// measureFolds writes each log with a node, deletes the folded state, and starts
// the node again on one core. Works for which there is no time are left out.
func (e *env) measureFolds(ctx context.Context, works []foldWork, until time.Time, say func(string, ...any)) (all []compare.Fold, err error) {
	for _, w := range works {
		if time.Now().After(until) {
			say("fold: no time for %s", w)
			continue
		}
		say("fold: %s, %d operations", w, w.requests)
		f, err := e.foldAgain(ctx, w)
		if err != nil {
			return all, fmt.Errorf("fold %s: %w", w, err)
		}
		all = append(all, f)
	}
	return all, nil
}

func (e *env) foldAgain(ctx context.Context, w foldWork) (f compare.Fold, err error) {
	dir, err := os.MkdirTemp(e.dir, "fold-")
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	data := filepath.Join(dir, "data")
	s, err := e.startKeysIn(ctx, dir, "", func(_ string, port int) *exec.Cmd { return e.latticeUp(data, port, "os") })
	if err != nil {
		return f, err
	}
	_, err = s.bench(ctx, compare.KeyWork{Test: w.test, Pipeline: w.pipeline}, w.requests, []string{"-c", "50", "-d", "3", "-r", strconv.Itoa(w.keys)})
	if err = errors.Join(err, s.end()); err != nil {
		return f, err
	}
	states, err := filepath.Glob(filepath.Join(data, "stores", "*", "state"))
	if err == nil && len(states) == 0 {
		err = fmt.Errorf("no folded state below %s", data)
	}
	if err != nil {
		return f, err
	}
	for _, dir := range states {
		if err := os.RemoveAll(dir); err != nil {
			return f, err
		}
	}
	f = compare.Fold{Log: w.String(), Operations: w.requests}
	for _, dir := range states {
		f.LogBytes += size(filepath.Join(filepath.Dir(dir), "authors"))
	}
	start := time.Now()
	s, err = e.startKeysIn(ctx, dir, "", func(_ string, port int) *exec.Cmd {
		cmd := e.latticeUp(data, port, "os")
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
		return cmd
	})
	if err != nil {
		return f, err
	}
	f.Seconds, f.CPUSeconds = time.Since(start).Seconds(), bench.ServerCPU(s.PID()).Seconds()
	_, f.PeakBytes = bench.Memory(s.PID())
	if err := s.end(); err != nil {
		return f, err
	}
	for _, dir := range states {
		f.StateBytes += size(dir)
	}
	return f, nil
}

// size returns the bytes that the files below dir take on the disk.
func size(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil // it is a figure for people: what cannot be read is not counted
	})
	return n
}
