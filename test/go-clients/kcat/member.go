package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/lattice-log/lattice/test/go-clients/driver"
)

var (
	// Eager: "(memberid M): assigned: LIST". Cooperative: "incremental
	// assignment of 3 partition(s) (memberid M, ...): LIST".
	rebalanced = regexp.MustCompile(`rebalanced.*(assigned|assignment|revoked|revoke|lost).*: (.*)$`)
	listed     = regexp.MustCompile(`\[(\d+)\]`)
)

// member is one member of a group until its context ends.
func member(ctx context.Context, r driver.Request, tell func(driver.Event)) error {
	args := []string{
		"-b", r.Bootstrap, "-G", r.Group, "-u", "-f", `%p %o\n`,
		"-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=200", "-X", "fetch.wait.max.ms=100",
		"-X", "auto.commit.interval.ms=500", "-X", "partition.assignment.strategy=" + r.Balancer,
	}
	if r.Instance != "" {
		args = append(args, "-X", "group.instance.id="+r.Instance)
	}
	cmd := exec.Command("kcat", append(args, r.Topic)...)
	cmd.SysProcAttr = gone
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // for as long as the process: see gone
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // gone already is as good
	})
	defer stop()
	var readers sync.WaitGroup
	readers.Go(func() { each(stdout, func(line string) { read(line, tell) }) })
	readers.Go(func() {
		each(stderr, func(line string) {
			fmt.Fprintln(os.Stderr, line)
			moved(line, tell)
		})
	})
	readers.Wait() // Wait closes the pipes
	return cmd.Wait()
}

func each(r io.Reader, take func(string)) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		take(lines.Text())
	}
}

func read(line string, tell func(driver.Event)) {
	e := driver.Event{Event: "read"}
	if _, err := fmt.Sscanf(line, "%d %d", &e.Partition, &e.Offset); err != nil {
		fmt.Fprintf(os.Stderr, "printed %q: %v\n", line, err)
		return
	}
	tell(e)
}

func moved(line string, tell func(driver.Event)) {
	found := rebalanced.FindStringSubmatch(line)
	if found == nil {
		return
	}
	e := driver.Event{Event: "revoked"}
	if strings.HasPrefix(found[1], "assign") {
		e.Event = "assigned"
	}
	for _, p := range listed.FindAllStringSubmatch(found[2], -1) {
		n, _ := strconv.Atoi(p[1]) // digits, by the expression
		e.Partitions = append(e.Partitions, int32(n))
	}
	tell(e)
}
