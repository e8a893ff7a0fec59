package mesh

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// network is namespaces with a bridge between them that leads nowhere else: one for the
// bridge, one for each node. Nodes reach each other at 10.77.0.1, .2, ...; clients dial
// from inside a node's namespace, over its loopback, which nothing here slows or loses.
type network struct {
	t      *testing.T
	prefix string
	nodes  int
}

const needs = `

This test runs nodes in network namespaces. It needs root, and the commands ip and nft
(Debian: iproute2 and nftables; scripts/deps.sh installs them). Run it as root:
	sudo go test ./test/mesh
`

func newNetwork(t *testing.T, nodes int) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatalf("this is user %d.%s", os.Geteuid(), needs)
	}
	n := &network{t: t, prefix: fmt.Sprintf("lattice%d-", os.Getpid()), nodes: nodes}
	for i := range nodes + 1 {
		name := n.name(i)
		n.do("ip", "netns", "add", name)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
		n.do("ip", "-n", name, "link", "set", "lo", "up")
	}
	hub := n.name(0)
	n.do("ip", "-n", hub, "link", "add", "br0", "type", "bridge")
	n.do("ip", "-n", hub, "link", "set", "br0", "up")
	for i := 1; i <= nodes; i++ {
		port := fmt.Sprintf("to%d", i)
		n.do("ip", "-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", n.name(i))
		n.do("ip", "-n", hub, "link", "set", port, "master", "br0", "up")
		n.do("ip", "-n", n.name(i), "addr", "add", n.address(i)+"/24", "dev", "eth0")
		n.do("ip", "-n", n.name(i), "link", "set", "eth0", "up")
	}
	n.rules("")
	return n
}

// name is a node's namespace; 0 is the bridge's.
func (n *network) name(i int) string { return fmt.Sprintf("%s%d", n.prefix, i) }

func (n *network) address(i int) string { return fmt.Sprintf("10.77.0.%d", i) }

func (n *network) do(name string, args ...string) {
	n.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		n.t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, needs)
	}
}

// rules replaces what is done to packets that come in from other nodes, everywhere:
// "from to rule" lines, such as "1 2 drop", or a rule for all nodes alone.
func (n *network) rules(text string) {
	n.t.Helper()
	for i := 1; i <= n.nodes; i++ {
		var b strings.Builder
		b.WriteString("table inet lattice\ndelete table inet lattice\ntable inet lattice {\nchain in {\ntype filter hook input priority 0; policy accept;\n")
		for _, line := range strings.Split(text, "\n") {
			var from, to int
			rule, match := line, `iifname "eth0" `
			if k, _ := fmt.Sscanf(line, "%d %d", &from, &to); k == 2 {
				if to != i {
					continue
				}
				rule = strings.SplitN(line, " ", 3)[2]
				match = "ip saddr " + n.address(from) + " "
			}
			if rule != "" {
				b.WriteString(match + rule + "\n")
			}
		}
		b.WriteString("}\n}\n")
		cmd := exec.Command("ip", "netns", "exec", n.name(i), "nft", "-f", "-")
		cmd.Stdin = strings.NewReader(b.String())
		if out, err := cmd.CombinedOutput(); err != nil {
			n.t.Fatalf("nft in %s: %v\n%s\n%s%s", n.name(i), err, out, b.String(), needs)
		}
	}
}

// rate limits what each node sends; empty: no limit.
func (n *network) rate(limit string) {
	n.t.Helper()
	for i := 1; i <= n.nodes; i++ {
		if limit == "" {
			n.do("tc", "-n", n.name(i), "qdisc", "del", "dev", "eth0", "root")
			continue
		}
		n.do("tc", "-n", n.name(i), "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", limit, "burst", "32k", "latency", "100ms")
	}
}

// wrapper is a program that runs the command inside a node's namespace.
func (n *network) wrapper(i int, bin string) string {
	n.t.Helper()
	path := filepath.Join(n.t.TempDir(), fmt.Sprintf("lattice-in-%d", i))
	script := fmt.Sprintf("#!/bin/sh\nexec ip netns exec %s %s \"$@\"\n", n.name(i), bin)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		n.t.Fatal(err)
	}
	return path
}

// inside runs f on a thread that is in a node's namespace: sockets that it opens are
// there.
func (n *network) inside(i int, f func() error) error {
	got := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		ns, err := os.Open("/run/netns/" + n.name(i))
		if err == nil {
			defer func() { _ = ns.Close() }()
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = f()
		}
		got <- err
	}()
	return <-got
}

// dial connects to an address as a node's namespace has it.
func (n *network) dial(i int) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = n.inside(i, func() error {
			var d net.Dialer
			c, err = d.DialContext(ctx, network, address)
			return err
		})
		return c, err
	}
}
