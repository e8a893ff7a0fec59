package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/internal/cli"
	"github.com/lattice-log/lattice/node"
	"github.com/lattice-log/lattice/node/settings"
)

// stopWithin is how long a clean stop may take before the process ends anyway:
// what was acknowledged is safe either way, that is what durability means.
const stopWithin = 9500 * time.Millisecond

func newUp(a *app) *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a node",
		Long: `Start a node and serve until interrupted. On an empty data directory it first makes
an identity and the store "main". An empty address turns a listener off; port 0 picks
a free port. When every listener accepts connections, DATA/node.json says where.`,
		Example: `  lattice up
  lattice up --data /var/lib/lattice --kafka 127.0.0.1:0 --redis 127.0.0.1:0 --http ""
  lattice up --config lattice.yaml --set log.retention_ms=72h`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			loaded, err := a.load(cmd, f)
			if err != nil {
				return err
			}
			return a.up(cmd.Context(), loaded)
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) up(ctx context.Context, loaded settings.Loaded) error {
	cfg := loaded.Config
	log, err := a.logger(cfg)
	if err != nil {
		return err
	}
	v := thisVersion()
	n, err := node.Open(ctx, cfg, node.Options{Version: v.Version, Commit: v.Commit, Settings: loaded.Settings, Logger: log})
	if err != nil {
		return upHint(err, cfg)
	}
	overdue := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		time.Sleep(stopWithin)
		close(overdue)
	})
	defer unhook()
	finished := make(chan error, 1)
	go func() { finished <- errors.Join(n.Run(ctx), n.Close()) }()
	ready := n.Ready()
	for {
		select {
		case <-ready:
			ready = nil
			a.announce(n.Info(), cfg)
		case err := <-finished:
			if err == nil && cli.IsTerminal(a.stderr) {
				a.warnf("Stopped.")
			}
			return err
		case <-overdue:
			return errors.New("did not stop cleanly within 10 s; the next start recovers")
		}
	}
}

// upHint adds the next step to an error of starting.
func upHint(err error, cfg node.Config) error {
	var held *node.HeldError
	var taken *node.TakenError
	switch {
	case errors.As(err, &held):
		return cli.Hint(err, "lattice status --data %s, or stop it: kill %d", cfg.Data, held.PID)
	case errors.As(err, &taken):
		return cli.Hint(err, "%s", takenHint(taken))
	}
	if lattice.KindOf(err) == lattice.Corrupt {
		return cli.Hint(err, "lattice verify --data %s says what is damaged", cfg.Data)
	}
	return err
}

// takenHint says how to start beside the processes that have the addresses.
func takenHint(taken *node.TakenError) string {
	var any, off []string
	for _, l := range taken.Listeners {
		flag, _, _ := strings.Cut(l.Key, ".") // flags are named as the listeners' sections
		host, _, err := net.SplitHostPort(l.Address)
		if err != nil {
			host = "127.0.0.1"
		}
		any = append(any, fmt.Sprintf("--%s %s", flag, net.JoinHostPort(host, "0")))
		off = append(off, fmt.Sprintf("--%s ''", flag))
	}
	return fmt.Sprintf("take any free port: %s, or do without: %s", strings.Join(any, " "), strings.Join(off, " "))
}

// logger returns the node's logger: text for a person, JSON for a collector.
func (a *app) logger(cfg node.Config) (*slog.Logger, error) {
	level, err := cfg.LogLevel()
	if err != nil {
		return nil, err
	}
	o := &slog.HandlerOptions{Level: level}
	text := cfg.Logs.Format == "text" || cfg.Logs.Format == "auto" && cli.IsTerminal(a.stderr)
	if text {
		return slog.New(slog.NewTextHandler(a.stderr, o)), nil
	}
	return slog.New(slog.NewJSONHandler(a.stderr, o)), nil
}

// announce prints, for each kind of client, a line to paste.
func (a *app) announce(i node.Info, cfg node.Config) {
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "  %-13s %s\n", what, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "Lattice node %s serves store %s (%s) from %s\n\n", cli.Short(i.Node), i.StoreName, cli.Short(i.Store), cfg.Data)
	at := a.dataFlag(cfg)
	if i.Kafka != "" {
		kafka := reachable(i.Kafka)
		if cfg.Kafka.Advertise != "" {
			kafka = cfg.Kafka.Advertise
		}
		tls := ""
		if cfg.TLS.Cert != "" {
			tls = " -X security.protocol=ssl"
		}
		line("kcat", "seq 1000 | kcat -b %s%s -P -t numbers", kafka, tls)
		line("Java", "bootstrap.servers=%s", kafka)
		line("kafkajs", "new Kafka({ brokers: ['%s'] })", kafka)
		line("franz-go", `kgo.NewClient(kgo.SeedBrokers("%s"))`, kafka)
	}
	if i.Redis != "" {
		redisLines(line, reachable(i.Redis), cfg.TLS.Cert != "")
	}
	line("lattice", "seq 1000 | lattice produce numbers%s", at)
	line("", "lattice consume numbers --max 3%s", at)
	line("", "lattice kv put greeting hello%s", at)
	if i.HTTP != "" {
		scheme := "http"
		if cfg.TLS.Cert != "" {
			scheme = "https"
		}
		line("HTTP", `curl %s://%s/lattice.v1.TopicService/List -H 'Content-Type: application/json' -d '{}'`, scheme, reachable(i.HTTP))
		line("metrics", "curl %s://%s/metrics", scheme, reachable(i.HTTP))
	}
	b.WriteString("\nStop it with Ctrl-C.\n")
	fmt.Fprint(a.stdout, b.String())
}

// redisLines prints where to point Redis clients. What they take for granted is
// left out: this machine, port 6379, no TLS.
func redisLines(line func(what, format string, args ...any), addr string, tls bool) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return
	}
	cli, py, node := "redis-cli", []string{}, port
	if host != "127.0.0.1" && host != "localhost" {
		cli += " -h " + host
		py = append(py, fmt.Sprintf("host='%s'", host))
		node += fmt.Sprintf(", '%s'", host)
	}
	if port != "6379" {
		cli += " -p " + port
		py = append(py, "port="+port)
	}
	options := ""
	if tls {
		cli += " --tls"
		py = append(py, "ssl=True")
		node += ", { tls: {} }"
		options = ", TLSConfig: &tls.Config{}"
	}
	line("redis-cli", "%s SET greeting hello", cli)
	line("go-redis", `redis.NewClient(&redis.Options{Addr: "%s"%s})`, addr, options)
	line("redis-py", "redis.Redis(%s)", strings.Join(py, ", "))
	line("ioredis", "new Redis(%s)", node)
}

// dataFlag is what the other commands need to find this node.
func (a *app) dataFlag(cfg node.Config) string {
	if cfg.Data == node.DefaultData() || a.env("LATTICE_DATA") == cfg.Data {
		return ""
	}
	return " --data " + cfg.Data
}

// reachable turns the address of a listener on all interfaces into one that a
// client on this machine can use.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			return net.JoinHostPort(name, port)
		}
	}
	return addr
}
