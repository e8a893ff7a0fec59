// Package redis serves the Redis protocol for one store's state: its maps "0" to
// "15" are the databases that SELECT chooses.
//
// One table of commands (newTable, one file for each family) drives dispatch,
// the answers of COMMAND, and docs/protocol/redis.md. The data types themselves
// are in engine/structs; a handler here reads arguments and writes a reply.
//
// # A connection
//
// A few loops serve all connections that ask for state and nothing else: each reads
// what those that it serves have sent, and runs it in one transaction of the store, so that they
// share a lock, an entry and its signature (loop.go). Whatever else a client asks for
// is served by a goroutine of its connection, which reads, executes and writes: what
// has arrived is cut into commands, and runs of those that touch state share one
// transaction. Replies leave in order, and never show what is not yet durable at the
// store's level.
//
// Nobody waits for another's socket: messages of pub/sub are queued at their
// receiver and written by a goroutine that exists only while there are any. A client that
// blocks (BLPOP) is a place in a queue, served inside the transaction that
// brought what it waits for, so that nobody can take it in between; its goroutine is
// the one that reads its connection anyway.
//
// # Limits
//
// Everything that a peer can make grow is bounded by a field of Config:
// connections, bytes of a command, of a reply, of queued messages, and all of
// those together. Buffers grow with the bytes received, not with the length claimed.
package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/prometheus/client_golang/prometheus"
)

// Version is the version of Redis whose semantics are served, as INFO and HELLO
// say it: the one that Debian 12 ships, which the tests compare with.
const Version = "7.0.15"

// Databases is the number of databases that SELECT knows.
const Databases = 16

// State is the store's state, as the engine runs transactions on it. Safe for
// concurrent use.
type State interface {
	// View runs fn on a consistent state. The ticket is nil when everything that
	// fn saw is durable already.
	View(fn func(structs.Rows) error) (Ticket, error)
	// Update runs fn alone: what it writes becomes one atomic part of an entry,
	// unless fn or the engine fails, and then nothing of it stays. Tickets are
	// decided in the order of the updates.
	Update(fn func(structs.Rows) error) (Ticket, error)
}

// Ticket is a transaction on its way to the disk.
type Ticket interface {
	// Wait returns when the transaction, and all before it, are durable at the
	// store's level, or will not be: an error, after which it never happened.
	Wait(ctx context.Context) error
}

// About is what INFO says of the node around the server.
type About struct {
	Version, Commit string // of the program
	Node, Store     string // ids, in hexadecimal
	Data            string // directory
	Durability      string // "fsync", "interval" or "os"
}

// Config says how the protocol is served. The zero value of each field stands for
// its default. Names in quotes are Redis's settings, which CONFIG GET shows.
type Config struct {
	// MaxClients connections are served at once ("maxclients"). Default: 10,000.
	MaxClients int
	// MaxClientsPerAddress of one IP address. Default: as many.
	MaxClientsPerAddress int
	// MaxBulkBytes is the longest argument ("proto-max-bulk-len"). Default: 64 MiB.
	MaxBulkBytes int
	// MaxArgs is the most arguments of a command. Default: 1,048,576.
	MaxArgs int
	// MaxQueryBytes is the most that a connection may have sent and not yet had
	// executed, a transaction's queued commands included
	// ("client-query-buffer-limit"). Default: 128 MiB.
	MaxQueryBytes int
	// MaxReplyBytes is the most that waits for one connection to take it: replies
	// and messages. Default: 256 MiB.
	MaxReplyBytes int
	// MaxPushBytes is the most of messages (pub/sub) that waits for one connection
	// ("client-output-buffer-limit pubsub"). Default: 32 MiB.
	MaxPushBytes int
	// MaxBufferedBytes is the most of all that, over all connections. Default: 1 GiB.
	MaxBufferedBytes int64

	// IdleTimeout closes a connection that asks for nothing ("timeout"). Default: never.
	IdleTimeout time.Duration
	// StallTimeout closes a connection that does not take its replies. Default: 60 s.
	StallTimeout time.Duration
	// DrainTimeout is how long Serve lets connections write once its context ended.
	// Default: 5 s.
	DrainTimeout time.Duration

	// TLS, when set, is spoken on every connection.
	TLS *tls.Config
	// About is shown by INFO.
	About About
	// Logger gets what an operator should know. Default: none.
	Logger *slog.Logger
	// Metrics is where the counters are registered. Default: nowhere.
	Metrics prometheus.Registerer
	// Clock tells the time. Default: the machine's.
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
	c.MaxClients = or(c.MaxClients, 10_000)
	c.MaxClientsPerAddress = or(c.MaxClientsPerAddress, c.MaxClients)
	c.MaxBulkBytes = or(c.MaxBulkBytes, 64<<20)
	c.MaxArgs = or(c.MaxArgs, 1<<20)
	c.MaxQueryBytes = or(c.MaxQueryBytes, 128<<20)
	c.MaxReplyBytes = or(c.MaxReplyBytes, 256<<20)
	c.MaxPushBytes = or(c.MaxPushBytes, 32<<20)
	c.MaxBufferedBytes = or(c.MaxBufferedBytes, 1<<30)
	c.StallTimeout = or(c.StallTimeout, time.Minute)
	c.DrainTimeout = or(c.DrainTimeout, 5*time.Second)
	c.About.Durability = or(c.About.Durability, "fsync")
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
		return lattice.E(lattice.Invalid, fmt.Errorf("redis config: "+format, args...))
	}
	switch {
	case c.MaxClients < 1 || c.MaxClientsPerAddress < 1:
		return bad("%d clients, %d an address: want at least 1", c.MaxClients, c.MaxClientsPerAddress)
	case c.MaxBulkBytes < 1<<10 || c.MaxBulkBytes > 512<<20:
		return bad("longest argument %d bytes: want 1 KiB to 512 MiB", c.MaxBulkBytes)
	case c.MaxArgs < 16 || c.MaxArgs > 1<<24:
		return bad("%d arguments: want 16 to %d", c.MaxArgs, 1<<24)
	case c.MaxQueryBytes < c.MaxBulkBytes:
		return bad("%d bytes of commands cannot hold one argument of %d", c.MaxQueryBytes, c.MaxBulkBytes)
	case c.MaxReplyBytes < 1<<10 || c.MaxPushBytes < 1<<10:
		return bad("%d bytes of replies, %d of messages: want at least 1 KiB", c.MaxReplyBytes, c.MaxPushBytes)
	case c.MaxBufferedBytes < int64(c.MaxQueryBytes):
		return bad("%d buffered bytes cannot hold the commands of one connection (%d)", c.MaxBufferedBytes, c.MaxQueryBytes)
	case c.IdleTimeout < 0 || c.StallTimeout < 0 || c.DrainTimeout < 0:
		return lattice.E(lattice.Invalid, errors.New("redis config: timeouts must be positive"))
	}
	return nil
}
