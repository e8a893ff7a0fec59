package p2p

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/multiformats/go-multiaddr"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/mesh/batches"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// Config is what a Mesh works with.
type Config struct {
	// Key is the node's identity. Required.
	Key identity.Key
	// Listen are the multiaddresses on which others may call, such as
	// /ip4/0.0.0.0/tcp/7400 and /ip4/0.0.0.0/udp/7400/quic-v1. TCP costs a third of
	// the CPU for bulk and is called first. None: this node only calls.
	Listen []string
	// Announce are the addresses that others are told to call, where they differ from
	// those on which it listens: behind a mapped port, for example.
	Announce []string
	// MDNS announces this node on the local network, and looks for members there.
	MDNS bool
	// Book keeps the address book. nil: it is forgotten when the node stops.
	Book Book
	// Logger is told of peers that come and go and of what they send that is refused.
	// nil: nobody is.
	Logger *slog.Logger
	Limits Limits
	// SendRate bounds what is replicated to all peers together, in bytes a second, at
	// least MinSendRate; 0: there is no bound.
	SendRate int64
	// Replicas has numbers for how replicas compare and send. Store, Node, Session
	// and Admit are set here.
	Replicas reconcile.Config
	// Batches has such numbers for partitions' batches.
	Batches batches.Config
}

// Limits bound what others can make this node do. Numbers that are 0 get their
// defaults, which follow each.
type Limits struct {
	Peers        int           // members that are connected at a time; 128
	Strangers    int           // others that are connected at a time; 32
	StrangerTime time.Duration // after which a stranger is disconnected; 30 s
	Joins        int           // claims that are looked at in a minute; 60

	Queue     int           // bytes of messages that wait to be sent to one peer of one store; 32 MiB
	Large     int           // messages of more than 256 KiB that are being received at a time, of all peers; 8
	HelloTime time.Duration // for a stream to say what it is about; 10 s
	IdleTime  time.Duration // a peer that says nothing for so long has gone; 90 s
	Rate      int           // bytes a second at which a message must come and go, after HelloTime; 16 KiB

	RedialMin time.Duration // after a failed call; doubled for each further one; 1 s
	RedialMax time.Duration // 60 s
	Calls     int           // that are under way at a time; 8
	Check     time.Duration // how often a round trip to each member is measured; 15 s

	Keepers       int   // logs of a store that are made durable at a time; 4
	Readers       int   // reads of a store at a time; 4
	Snapshots     int   // snapshots that are sent at a time; 2
	SnapshotBytes int64 // of the largest snapshot that is taken; 1 TiB

	Asking  int // bytes that may wait for the answer of one leader; 32 MiB
	Leading int // bytes of what others ask of partitions led here that are worked on at a time; 128 MiB

	Memory int64 // bytes that libp2p may hold in buffers; 256 MiB
}

func (l *Limits) defaults() {
	or(&l.Peers, 128)
	or(&l.Strangers, 32)
	or(&l.StrangerTime, 30*time.Second)
	or(&l.Joins, 60)
	or(&l.Queue, 32<<20)
	or(&l.Large, 8)
	or(&l.HelloTime, 10*time.Second)
	or(&l.IdleTime, 90*time.Second)
	or(&l.Rate, 16<<10)
	or(&l.RedialMin, time.Second)
	or(&l.RedialMax, time.Minute)
	or(&l.Calls, 8)
	or(&l.Check, 15*time.Second)
	or(&l.Keepers, 4)
	or(&l.Readers, 4)
	or(&l.Snapshots, 2)
	or(&l.SnapshotBytes, 1<<40)
	or(&l.Asking, 32<<20)
	or(&l.Leading, 128<<20)
	or(&l.Memory, 256<<20)
}

func or[T int | int64 | time.Duration](n *T, v T) {
	if *n == 0 {
		*n = v
	}
}

// allowance is how long n bytes may take.
func (l *Limits) allowance(n int) time.Duration {
	return l.HelloTime + time.Duration(n)*time.Second/time.Duration(l.Rate)
}

// MinSendRate is the lowest Config.SendRate: peers give up a message that takes too long.
const MinSendRate = 64 << 10

const (
	maxAddress   = 255 // bytes of one, as in an invitation
	maxAddresses = 16  // of one node
)

// withDefaults checks the relations between the fields. Kind Invalid.
func (c Config) withDefaults() (Config, error) {
	c.Limits.defaults()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Key.IsZero() {
		return c, lattice.E(lattice.Invalid, errors.New("mesh: the node has no key"))
	}
	if l := c.Limits; l.RedialMax < l.RedialMin || l.Peers < 1 || l.Keepers < 1 || l.Readers < 1 || l.Large < 1 || l.Rate < 1 || l.Calls < 1 {
		return c, lattice.E(lattice.Invalid, errors.New("mesh: limits must be positive, and RedialMax at least RedialMin"))
	}
	if c.SendRate != 0 && c.SendRate < MinSendRate {
		return c, lattice.E(lattice.Invalid, fmt.Errorf("mesh: at least %d bytes a second must go out, or peers take it for broken", MinSendRate))
	}
	for _, all := range [][]string{c.Listen, c.Announce} {
		if _, err := parseAddresses(all); err != nil {
			return c, err
		}
		if len(all) > maxAddresses {
			return c, lattice.E(lattice.TooLarge, fmt.Errorf("mesh: %d addresses, at most %d", len(all), maxAddresses))
		}
	}
	return c, nil
}

// parseAddresses reads multiaddresses. Kind Invalid, with the first that is none.
func parseAddresses(all []string) ([]multiaddr.Multiaddr, error) {
	out := make([]multiaddr.Multiaddr, 0, len(all))
	for _, s := range all {
		a, err := multiaddr.NewMultiaddr(s)
		switch {
		case len(s) > maxAddress:
			err = fmt.Errorf("longer than %d bytes", maxAddress)
		case err == nil && !callable(a):
			err = errors.New("neither TCP nor QUIC")
		}
		if err != nil {
			return nil, lattice.E(lattice.Invalid, fmt.Errorf("mesh address %q: %w; it looks like /ip4/192.0.2.1/tcp/7400", s, err))
		}
		out = append(out, a)
	}
	return out, nil
}

// callable reports whether an address is of a transport that this package has: TCP
// or QUIC over an IP address or a name, and nothing behind it.
func callable(a multiaddr.Multiaddr) bool {
	var codes []int
	multiaddr.ForEach(a, func(c multiaddr.Component) bool {
		codes = append(codes, c.Protocol().Code)
		return true
	})
	if len(codes) == 3 && codes[0] == multiaddr.P_IP6ZONE { // a zone comes first
		codes = codes[1:]
	}
	if len(codes) < 2 {
		return false
	}
	switch codes[0] {
	case multiaddr.P_IP4, multiaddr.P_IP6, multiaddr.P_DNS, multiaddr.P_DNS4, multiaddr.P_DNS6:
	default:
		return false
	}
	switch len(codes) {
	case 2:
		return codes[1] == multiaddr.P_TCP
	case 3:
		return codes[1] == multiaddr.P_UDP && codes[2] == multiaddr.P_QUIC_V1
	}
	return false
}
