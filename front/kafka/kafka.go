// Package kafka serves the Kafka protocol for one store. This node presents
// itself as the only broker and as the leader of every partition: what another node
// leads is read from the replica here, and written by that node (forward.go).
//
// Record batches pass through as bytes: a produced batch is checked and handed
// on inside the buffer that it was received in, and a fetch copies stored bytes
// to the socket through one recycled buffer. Everything else is decoded and
// encoded by kmsg, one file for each API (NN_name.go).
//
// # A connection
//
// One goroutine reads. It decodes a request, starts the work and reads on: an
// append completes when the disk has synced, a long poll when data arrives, a
// join when the group has gathered. Answers wait in a queue in request order,
// which is the order that Kafka promises, and a writer goroutine exists only
// while the answer at the head of the queue is ready. So an idle connection, or
// one that long polls, costs one blocked goroutine and no buffer.
//
// Everything that a peer can make grow is bounded by a field of Config: frame
// size, requests and bytes in flight, connections, idle time, time without
// progress, bytes of one answer. A frame's buffer grows with the bytes received,
// not with the length claimed. Whoever breaks the protocol (an unknown API or
// version, a frame that does not parse) is disconnected, as Kafka does.
//
// # What it does not do
//
// SASL and ACLs are not served and not advertised. There are no
// fetch sessions: session id 0 says so, which clients must accept (KIP-227).
package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/prometheus/client_golang/prometheus"
)

// Config says how the protocol is served. The zero value of each field stands
// for its default. Names in quotes are Kafka's broker settings.
type Config struct {
	// AdvertisedHost is the host that clients are told to connect to. Default:
	// the address at which the asking client reached this node.
	AdvertisedHost string
	// AdvertisedPort goes with it. Default: the port that the client reached.
	AdvertisedPort int32

	// AutoCreate makes a topic when a client that allows it asks for the
	// metadata of one that does not exist ("auto.create.topics.enable"). Default: no.
	AutoCreate bool
	// DefaultPartitions of an auto-created topic, and of one created with -1
	// partitions ("num.partitions"). Default: 4.
	DefaultPartitions int32
	// LenientReplication accepts replication factors above 1 for tools that
	// insist, and describes what is true. Default: no, INVALID_REPLICATION_FACTOR.
	LenientReplication bool

	// MaxRequestBytes bounds one frame ("socket.request.max.bytes"). Default: 100 MiB.
	MaxRequestBytes int
	// MaxControlBytes bounds a frame of any API but Produce: those are decoded
	// into structures several times their size. Default: 16 MiB.
	MaxControlBytes int
	// MaxFetchBytes bounds the records of one Fetch answer, but for a single
	// larger batch ("fetch.max.bytes"). Default: 55 MiB.
	MaxFetchBytes int
	// MaxBufferedBytes bounds the frames held at once, over all connections
	// ("queued.max.request.bytes"); readers wait beyond it. Default: 1 GiB.
	MaxBufferedBytes int64
	// MaxInFlight requests of one connection are worked on before it is read
	// further. Default: 128.
	MaxInFlight int
	// MaxInFlightBytes likewise, of frames and answers. Default: 16 MiB.
	MaxInFlightBytes int64
	// MaxConnections in all ("max.connections"). Default: 20,000.
	MaxConnections int
	// MaxConnectionsPerAddress of one IP address ("max.connections.per.ip").
	// Default: 12,000.
	MaxConnectionsPerAddress int

	// IdleTimeout closes a connection on which nothing was asked for and nothing
	// is pending ("connections.max.idle.ms"). Default: 10 minutes.
	IdleTimeout time.Duration
	// ReadTimeout closes a connection that stops in the middle of a frame, and
	// one whose frame finds no room in MaxBufferedBytes. Default: 30 s.
	ReadTimeout time.Duration
	// WriteTimeout closes a connection that does not take its answers. Default: 30 s.
	WriteTimeout time.Duration
	// DrainTimeout is how long Serve lets requests finish once its context ended.
	// Default: 5 s.
	DrainTimeout time.Duration

	// TLS, when set, is spoken on every connection.
	TLS *tls.Config
	// Logger gets what an operator should know. Default: none.
	Logger *slog.Logger
	// Metrics is where the counters are registered. Default: nowhere.
	Metrics prometheus.Registerer
	// Clock sets the timers of long polls. Default: the machine's.
	Clock tick.Clock
}

// or returns v unless it is its type's zero value.
func or[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// withDefaults fills the fields that are not set.
func (c Config) withDefaults() Config {
	c.DefaultPartitions = or(c.DefaultPartitions, 4)
	c.MaxRequestBytes = or(c.MaxRequestBytes, 100<<20)
	c.MaxControlBytes = or(c.MaxControlBytes, 16<<20)
	c.MaxFetchBytes = or(c.MaxFetchBytes, 55<<20)
	c.MaxBufferedBytes = or(c.MaxBufferedBytes, 1<<30)
	c.MaxInFlight = or(c.MaxInFlight, 128)
	c.MaxInFlightBytes = or(c.MaxInFlightBytes, 16<<20)
	c.MaxConnections = or(c.MaxConnections, 20_000)
	c.MaxConnectionsPerAddress = or(c.MaxConnectionsPerAddress, 12_000)
	c.IdleTimeout = or(c.IdleTimeout, 10*time.Minute)
	c.ReadTimeout = or(c.ReadTimeout, 30*time.Second)
	c.WriteTimeout = or(c.WriteTimeout, 30*time.Second)
	c.DrainTimeout = or(c.DrainTimeout, 5*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = tick.Real{}
	}
	return c
}

// validate checks a Config that has its defaults.
func (c Config) validate() error {
	bad := func(format string, args ...any) error {
		return lattice.E(lattice.Invalid, fmt.Errorf("kafka config: "+format, args...))
	}
	switch {
	case c.AdvertisedPort < 0 || c.AdvertisedPort > 65535:
		return bad("advertised port %d: want 1 to 65535", c.AdvertisedPort)
	case c.AdvertisedPort != 0 && c.AdvertisedHost == "":
		return lattice.E(lattice.Invalid, errors.New("kafka config: an advertised port needs an advertised host"))
	case c.DefaultPartitions < 0 || c.DefaultPartitions > maxPartitions:
		return bad("default partitions %d: want 1 to %d", c.DefaultPartitions, maxPartitions)
	case c.MaxRequestBytes < 1<<10 || c.MaxRequestBytes > 1<<30:
		return bad("largest request %d bytes: want 1 KiB to 1 GiB", c.MaxRequestBytes)
	case c.MaxControlBytes < 1<<10 || c.MaxFetchBytes < 1 || c.MaxFetchBytes > 1<<30:
		return bad("largest control request %d, largest fetch %d: want at least 1 KiB, and 1 byte to 1 GiB", c.MaxControlBytes, c.MaxFetchBytes)
	case c.MaxBufferedBytes < int64(c.MaxRequestBytes):
		return bad("%d buffered bytes cannot hold one request of %d", c.MaxBufferedBytes, c.MaxRequestBytes)
	case c.MaxInFlight < 1 || c.MaxInFlightBytes < 1:
		return bad("%d requests, %d bytes in flight: want at least 1", c.MaxInFlight, c.MaxInFlightBytes)
	case c.MaxConnections < 1 || c.MaxConnectionsPerAddress < 1:
		return bad("%d connections, %d an address: want at least 1", c.MaxConnections, c.MaxConnectionsPerAddress)
	case c.IdleTimeout < 0 || c.ReadTimeout < 0 || c.WriteTimeout < 0 || c.DrainTimeout < 0:
		return lattice.E(lattice.Invalid, errors.New("kafka config: timeouts must be positive"))
	}
	return nil
}
