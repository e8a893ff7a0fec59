package api_test

import (
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"

	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/front/api"
	"github.com/lattice-log/lattice/storage/disk"
)

// onDisk serves a store on the real disk over a socket, as "lattice up" does.
func onDisk(b *testing.B) *client.Client {
	b.Helper()
	dir := b.TempDir()
	s := openStore(b, disk.OS(), filepath.Join(dir, "stores"))
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	h, err := api.Handler(api.Config{Stores: api.Fixed{s}, Node: func() api.Node { return api.Node{} }, Logger: logger})
	if err != nil {
		b.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	srv := api.Server(h, logger)
	go srv.Serve(l)
	b.Cleanup(func() { srv.Close() })
	return dial(b, client.Options{URL: "unix://" + socket})
}

func write(b *testing.B, c *client.Client, n int, codec string) {
	p, err := c.Producer(b.Context(), client.ProducerOptions{Topic: "bench", Compression: codec})
	if err != nil {
		b.Fatal(err)
	}
	r := client.Record{Value: make([]byte, 100)}
	for range n {
		if err := p.SendAsync(b.Context(), r, nil); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkProduce counts records of 100 bytes, durable, through client, socket and store.
func BenchmarkProduce(b *testing.B) {
	for _, codec := range []string{"none", "lz4"} {
		b.Run(codec, func(b *testing.B) {
			c := onDisk(b)
			fill(b, c, "bench", 4, 0)
			b.SetBytes(100)
			b.ReportAllocs()
			b.ResetTimer()
			write(b, c, b.N, codec)
		})
	}
}

// BenchmarkConsume counts records of 100 bytes.
func BenchmarkConsume(b *testing.B) {
	c := onDisk(b)
	fill(b, c, "bench", 4, 0)
	write(b, c, b.N, "none")
	b.SetBytes(100)
	b.ReportAllocs()
	b.ResetTimer()
	r, err := c.Consumer(b.Context(), client.ConsumerOptions{Topic: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	n := 0
	for _, err := range r.All() {
		if err != nil {
			b.Fatal(err)
		}
		n++
	}
	if n != b.N {
		b.Fatalf("%d records of %d", n, b.N)
	}
}

// BenchmarkSend is one record at a time, each durable before the next.
func BenchmarkSend(b *testing.B) {
	c := onDisk(b)
	fill(b, c, "bench", 1, 0)
	p, err := c.Producer(b.Context(), client.ProducerOptions{Topic: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close(b.Context())
	r := client.Record{Value: make([]byte, 100)}
	b.ResetTimer()
	for range b.N {
		if _, err := p.Send(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}
