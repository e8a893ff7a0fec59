package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/lattice-log/lattice/app/bench/compare"
)

// env is where the programs are and the data goes.
type env struct {
	bins      string // directory of lattice, kfake and nats-server
	classpath string // file with the class path of Apache Kafka's broker
	dir       string // for data; on the disk that is measured
}

func (e *env) bin(name string) string { return filepath.Join(e.bins, name) }

// contestant is a program with the peers that it is in, and what it needs.
type contestant struct {
	name  string
	peers []compare.Peer
	needs []need
}

// need is something that must be there, and the command that brings it.
type need struct {
	path string // of a file, or the name of a command
	from string
}

func (e *env) contestants() []contestant {
	durable, cache := compare.Durable, compare.PageCache
	kcat := need{"kcat", "apt-get install kcat"}
	build := func(name string) need { return need{e.bin(name), "scripts/bench.sh, which builds it"} }
	return []contestant{
		{"lattice", []compare.Peer{e.lattice(durable, "fsync"), e.lattice(cache, "os")}, []need{build("lattice"), kcat}},
		{"kfake", []compare.Peer{
			e.kfake(durable, "franz-go's Kafka in Go; segment files, synced at each append; neither hashed nor signed", "-sync"),
			e.kfake(cache, "segment files without syncs"),
			e.kfake(compare.Discards, "acknowledges and forgets: what the client can do", "-discard"),
		}, []need{build("kfake"), kcat}},
		{"kafka", []compare.Peer{
			e.apacheKafka(durable, "one KRaft node, topic config flush.messages=1", map[string]string{"flush.messages": "1"}),
			e.apacheKafka(cache, "one KRaft node, its defaults", nil),
		}, []need{
			{"java", "apt-get install openjdk-17-jre-headless"}, kcat,
			{e.classpath, "scripts/bench.sh, which asks Maven (apt-get install maven)"},
		}},
		{"jetstream", []compare.Peer{
			e.jetStream(durable, "always", "file store, sync_interval always"),
			e.jetStream(cache, "2m", "file store, sync_interval 2m, its default"),
		}, []need{build("nats-server")}},
		{"redis", []compare.Peer{e.redis(durable, "always"), e.redis(cache, "everysec")}, []need{{"redis-server", "apt-get install redis-server"}}},
	}
}

// peers returns those to measure, class by class, and what was left out by
// without. A peer that cannot be had is an error that says how to get it.
func (e *env) peers(only, without []string) (peers []compare.Peer, left []string, err error) {
	known := map[string]bool{}
	var missing []error
	for _, c := range e.contestants() {
		known[c.name] = true
		if len(only) > 0 && !slices.Contains(only, c.name) || slices.Contains(without, c.name) {
			left = append(left, c.name)
			continue
		}
		for _, n := range c.needs {
			if _, err := exec.LookPath(n.path); err != nil {
				if _, err := os.Stat(n.path); err != nil {
					missing = append(missing, fmt.Errorf("%s needs %s: %s (or leave it out: -without %s)", c.name, n.path, n.from, c.name))
				}
			}
		}
		peers = append(peers, c.peers...)
	}
	for _, name := range slices.Concat(only, without) {
		if !known[name] {
			missing = append(missing, fmt.Errorf("no peer %q", name))
		}
	}
	order := []compare.Class{compare.Durable, compare.PageCache, compare.Discards}
	slices.SortStableFunc(peers, func(a, b compare.Peer) int { return slices.Index(order, a.Class) - slices.Index(order, b.Class) })
	return peers, left, errors.Join(missing...)
}

// version is what a command says of itself.
func (e *env) version(command string, args ...string) string {
	out, err := exec.Command(command, args...).Output()
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}

// module returns the version of a Go module that the peers were built from.
func (e *env) module(path string) string {
	for _, name := range []string{"kfake", "nats-server"} {
		if info, err := readBuildInfo(e.bin(name)); err == nil {
			for _, m := range append(info.Deps, &info.Main) {
				if m.Path == path {
					return m.Version
				}
			}
		}
	}
	return "unknown"
}

func readBuildInfo(bin string) (*debug.BuildInfo, error) {
	out, err := exec.Command("go", "version", "-m", bin).Output()
	if err != nil {
		return nil, err
	}
	_, mods, _ := bytes.Cut(out, []byte("\n"))
	return debug.ParseBuildInfo(strings.ReplaceAll(string(mods), "\n\t", "\n")[1:])
}

func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(name), err, bytes.TrimSpace(out))
	}
	return nil
}

// machine describes where this runs: processor, cores, memory, kernel, file
// system of dir.
func machine(dir string) string {
	field := func(file, key string) string {
		b, _ := os.ReadFile(file)
		for line := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
				return strings.TrimSpace(v)
			}
		}
		return "unknown"
	}
	var kb int64
	_, _ = fmt.Sscanf(field("/proc/meminfo", "MemTotal"), "%d kB", &kb)
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	release, _, _ := strings.Cut(strings.TrimSpace(string(kernel)), "-")
	return fmt.Sprintf("%d cores of %s, %d GiB of memory, Linux %s, %s",
		runtime.NumCPU(), field("/proc/cpuinfo", "model name"), (kb+1<<19)>>20, release, fileSystem(dir))
}

// fileSystem returns the kind that dir is on: of the longest mount point above it.
func fileSystem(dir string) string {
	kind, at := "unknown file system", ""
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && len(f[1]) > len(at) && strings.HasPrefix(dir+"/", strings.TrimSuffix(f[1], "/")+"/") {
			at, kind = f[1], f[2]
		}
	}
	return kind
}

func load() string {
	b, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(b), " ")
	return first
}
