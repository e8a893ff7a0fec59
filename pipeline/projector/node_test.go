package projector_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/lattice-log/lattice/node"
)

// startNode runs a node of this repository in the process and returns its Kafka address.
func startNode(t *testing.T) string {
	t.Helper()
	address, _ := startNodeAt(t, t.TempDir(), "127.0.0.1:0")
	return address
}

// startNodeAt runs a node on a directory and an address. stop ends it.
func startNodeAt(t *testing.T, dir, listen string) (address string, stop func()) {
	t.Helper()
	cfg := node.Default()
	cfg.Data, cfg.Kafka.Listen, cfg.Redis.Listen, cfg.HTTP.Listen = dir, listen, "", ""
	ctx, cancel := context.WithCancel(context.Background())
	n, err := node.Open(ctx, cfg, node.Options{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- errors.Join(n.Run(ctx), n.Close()) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the node: %v", err)
		}
	})
	t.Cleanup(stop)
	<-n.Ready()
	return n.Info().Kafka, stop
}
