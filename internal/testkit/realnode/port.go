package realnode

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// FreeAddress returns an address that is free now, for a node that must come
// back at the same one. It lies below the range from which systems take the
// ports of outgoing connections: a client that dials a port of that range again
// and again, while nothing listens there, in the end connects to itself.
func FreeAddress(t testing.TB) string {
	t.Helper()
	const low, high = 20000, 32000
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", low+rand.IntN(high-low)))
		if err != nil {
			continue
		}
		defer l.Close()
		return l.Addr().String()
	}
	t.Fatalf("no free port between %d and %d", low, high)
	return ""
}
