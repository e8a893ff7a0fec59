package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime/pprof"
	"syscall"

	"github.com/lattice-log/lattice/node"
)

func cpu() float64 {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

func main() {
	dir, _ := os.MkdirTemp("", "p")
	defer os.RemoveAll(dir)
	cfg := node.Default()
	cfg.Data, cfg.Kafka.Listen, cfg.Redis.Listen, cfg.HTTP.Listen = dir, "", "127.0.0.1:26399", ""
	cfg.State.Durability = os.Args[2]
	if len(os.Args) > 5 {
		cfg.Mesh.Listen = ""
	}
	ctx, stop := context.WithCancel(context.Background())
	n, err := node.Open(ctx, cfg, node.Options{})
	if err != nil {
		panic(err)
	}
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	<-n.Ready()
	f, _ := os.Create(os.Args[1])
	pprof.StartCPUProfile(f)
	for _, t := range []string{"set", "get", "incr", "hset", "zadd", "lpush"} {
		if len(os.Args[4]) > 0 && os.Args[4] != "all" && os.Args[4] != t {
			continue
		}
		b := cpu()
		out, _ := exec.Command("redis-benchmark", "-p", "26399", "-c", "50", "-d", "3", "-r", "100000", "-P", os.Args[3], "-q", "--csv", "-n", "600000", "-t", t).CombinedOutput()
		fmt.Printf("%s %.2f us/op %s\n", t, (cpu()-b)/0.6, out)
	}
	pprof.StopCPUProfile()
	f.Close()
	stop()
	<-done
	n.Close()
}
