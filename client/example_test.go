package client_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http/httptest"

	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/proof"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/front/api"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// startNode serves a store in memory, in place of "lattice up", and returns its
// address.
func startNode() (url string, stop func()) {
	fs, logger := disk.NewMem(), slog.New(slog.NewTextHandler(io.Discard, nil))
	key, err := identity.Generate(rand.Reader)
	check(err)
	check(fs.MkdirAll("stores", 0o700))
	id, err := store.Create(fs, "stores", key, "main", tick.Real{}, rand.Reader, logger)
	check(err)
	s, err := store.Open(store.Config{
		FS: fs, Dir: fs.PathJoin("stores", id.String()), Key: key, Clock: tick.Real{}, Rand: rand.Reader, Logger: logger,
	})
	check(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	h, err := api.Handler(api.Config{Stores: api.Fixed{s}, Node: func() api.Node { return api.Node{} }, Logger: logger})
	check(err)
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = api.Server(h, logger)
	srv.Start()
	return srv.URL, func() {
		srv.Close()
		cancel()
		<-done
		check(s.Close())
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Write records and read them back.
func Example() {
	url, stop := startNode()
	defer stop()
	ctx := context.Background()

	c, err := client.Dial(client.Options{URL: url}) // or DataDir, for a node on this machine
	check(err)
	defer c.Close()
	_, err = c.CreateTopic(ctx, client.NewTopic{Name: "orders", Partitions: 1})
	check(err)

	p, err := c.Producer(ctx, client.ProducerOptions{Topic: "orders", Compression: "zstd"})
	check(err)
	for _, item := range []string{"tea", "bread", "salt"} {
		check(p.SendAsync(ctx, client.Record{Key: []byte("alice"), Value: []byte(item)}, nil))
	}
	check(p.Close(ctx)) // waits until all of them are durable

	r, err := c.Consumer(ctx, client.ConsumerOptions{Topic: "orders", From: client.Start()})
	check(err)
	defer r.Close()
	for rec, err := range r.All() {
		check(err)
		fmt.Printf("%d %s %s\n", rec.Offset, rec.Key, rec.Value)
	}
	// Output:
	// 0 alice tea
	// 1 alice bread
	// 2 alice salt
}

// Send waits for one record and tells where it went.
func ExampleProducer_Send() {
	url, stop := startNode()
	defer stop()
	ctx := context.Background()
	c, err := client.Dial(client.Options{URL: url})
	check(err)
	defer c.Close()
	_, err = c.CreateTopic(ctx, client.NewTopic{Name: "orders", Partitions: 4})
	check(err)
	p, err := c.Producer(ctx, client.ProducerOptions{Topic: "orders"})
	check(err)
	defer p.Close(ctx)

	ack, err := p.Send(ctx, client.Record{Key: []byte("alice"), Value: []byte("tea")})
	check(err)
	fmt.Printf("partition %d, offset %d\n", ack.Partition, ack.Offset)
	// Output: partition 1, offset 0
}

// Two programs that run this share the topic's partitions.
func ExampleClient_GroupConsumer() {
	url, stop := startNode()
	defer stop()
	ctx := context.Background()
	c, err := client.Dial(client.Options{URL: url})
	check(err)
	defer c.Close()
	_, err = c.CreateTopic(ctx, client.NewTopic{Name: "orders", Partitions: 1})
	check(err)
	p, err := c.Producer(ctx, client.ProducerOptions{Topic: "orders"})
	check(err)
	_, err = p.Send(ctx, client.Record{Value: []byte("tea")})
	check(err)
	check(p.Close(ctx))

	g, err := c.GroupConsumer(ctx, client.GroupConsumerOptions{Group: "billing", Topic: "orders"})
	check(err)
	for rec, err := range g.All() {
		check(err)
		fmt.Printf("bill %s\n", rec.Value)
	}
	check(g.Close(ctx)) // commits
	d, err := c.Group(ctx, "billing")
	check(err)
	fmt.Println("lag", d.Lag)
	// Output:
	// bill tea
	// lag 0
}

// A proof convinces someone who does not trust the node, and needs no node.
func ExampleClient_ProveRecord() {
	url, stop := startNode()
	defer stop()
	ctx := context.Background()
	c, err := client.Dial(client.Options{URL: url})
	check(err)
	defer c.Close()
	_, err = c.CreateTopic(ctx, client.NewTopic{Name: "orders", Partitions: 1})
	check(err)
	p, err := c.Producer(ctx, client.ProducerOptions{Topic: "orders"})
	check(err)
	_, err = p.Send(ctx, client.Record{Value: []byte("tea")})
	check(err)
	check(p.Close(ctx))

	file, err := c.ProveRecord(ctx, "orders", 0, 0)
	check(err)
	res, err := proof.Verify(file)
	check(err)
	fmt.Printf("%s/%d offset %d: %s\n", res.TopicName, res.Partition, res.Record.Offset, res.Record.Value)

	_, err = proof.Verify(append(file, 'x'))
	fmt.Println("changed proof accepted:", err == nil)
	// Output:
	// orders/0 offset 0: tea
	// changed proof accepted: false
}

// Errors say what to do next.
func ExampleHint() {
	_, err := client.Dial(client.Options{DataDir: "/nowhere"})
	fmt.Println(err)
	fmt.Println(client.Hint(err))
	// Output:
	// no node runs on /nowhere
	// start one: lattice up --data /nowhere
}
