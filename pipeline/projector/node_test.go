package projector_test

import (
	"context"
	"errors"
	"testing"

	"github.com/lattice-log/lattice/node"
)

// startNode runs a node of this repository in the process and returns its Kafka address.
func startNode(t *testing.T) string {
	t.Helper()
	cfg := node.Default()
	cfg.Data, cfg.Kafka.Listen, cfg.Redis.Listen, cfg.HTTP.Listen = t.TempDir(), "127.0.0.1:0", "", ""
	ctx, stop := context.WithCancel(context.Background())
	n, err := node.Open(ctx, cfg, node.Options{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- errors.Join(n.Run(ctx), n.Close()) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the node: %v", err)
		}
	})
	<-n.Ready()
	return n.Info().Kafka
}
