package node_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/node"
)

// A node inside a Go program: no listeners, reached through the socket in its
// data directory.
func Example() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	cfg := node.Default()
	cfg.Data, cfg.Kafka.Listen, cfg.Redis.Listen, cfg.HTTP.Listen = dir, "", "", ""

	ctx, stop := context.WithCancel(context.Background())
	n, err := node.Open(ctx, cfg, node.Options{})
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- errors.Join(n.Run(ctx), n.Close()) }()
	<-n.Ready()

	if err := greet(ctx, dir); err != nil {
		log.Print(err)
	}
	stop()
	if err := <-done; err != nil {
		log.Print(err)
	}
	// Output: 0: hello
}

// greet writes a record and reads it back.
func greet(ctx context.Context, dir string) error {
	c, err := client.Dial(client.Options{DataDir: dir})
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.CreateTopic(ctx, client.NewTopic{Name: "greetings", Partitions: 1}); err != nil {
		return err
	}
	p, err := c.Producer(ctx, client.ProducerOptions{Topic: "greetings"})
	if err != nil {
		return err
	}
	if _, err := p.Send(ctx, client.Record{Value: []byte("hello")}); err != nil {
		return err
	}
	if err := p.Close(ctx); err != nil {
		return err
	}
	r, err := c.Consumer(ctx, client.ConsumerOptions{Topic: "greetings"})
	if err != nil {
		return err
	}
	defer r.Close()
	for rec, err := range r.All() {
		if err != nil {
			return err
		}
		fmt.Printf("%d: %s\n", rec.Offset, rec.Value)
	}
	return nil
}
