package txn

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/internal/tick"
)

// Config holds the coordinator's limits. Start from DefaultConfig. The names in
// quotes are Kafka's broker settings.
type Config struct {
	Clock  tick.Clock
	Logger *slog.Logger

	MaxTimeout time.Duration // "transaction.max.timeout.ms"
	Expiry     time.Duration // "transactional.id.expiration.ms": unused ids are forgotten
	Check      time.Duration // how often that is looked at
	Retry      time.Duration // until a decision that could not be written is taken to the logs again
	MaxIDs     int           // transactional ids known at once
}

// DefaultConfig returns Kafka's defaults, with bounds where Kafka has none.
func DefaultConfig() Config {
	return Config{
		MaxTimeout: 15 * time.Minute, Expiry: 7 * 24 * time.Hour, Check: time.Hour, Retry: time.Second, MaxIDs: 100_000,
	}
}

func (c Config) validate() error {
	switch {
	case c.Clock == nil || c.Logger == nil:
		return lattice.E(lattice.Invalid, errors.New("transactions config: clock and logger are required"))
	case c.MaxTimeout < time.Millisecond || c.Expiry <= 0 || c.Check <= 0 || c.Retry <= 0 || c.MaxIDs <= 0:
		return lattice.E(lattice.Invalid, fmt.Errorf("transactions config: longest timeout %v, expiry %v, check %v, retry %v, %d ids: want positive",
			c.MaxTimeout, c.Expiry, c.Check, c.Retry, c.MaxIDs))
	}
	return nil
}

// Records keeps transactions. The Manager is its only writer, one call at a time.
type Records interface {
	// LoadTransactions yields every transaction, in any order.
	LoadTransactions(yield func(Transaction) error) error
	// PutTransactions writes and removes transactions in one atomic step, which is
	// durable when it returns if sync is set, and with the next synced one if not.
	// After an error the Manager assumes that nothing was written; it is harmless
	// if it was, and that is why: nobody was told of a state that it does not go
	// back to, and the next state of the same id replaces it.
	PutTransactions(put []Transaction, gone []string, sync bool) error
}

// Logs are the partitions of the store.
type Logs interface {
	// End writes the marker that ends a producer's transaction in a partition, once
	// however often it is called, and calls done when it is durable or refused: an
	// error of Kind NotFound means that the partition is gone. done may be called
	// before End returns, with no lock held.
	End(tp lattice.TopicPartition, m record.Marker, done func(error))
}

// Groups are the offsets of the store's groups.
type Groups interface {
	// EndTransaction makes a producer's offsets the group's, or drops them, likewise.
	EndTransaction(group string, producer int64, commit bool, done func(error))
}
