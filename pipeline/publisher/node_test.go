package publisher_test

import (
	"testing"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
)

// The same against this repository's own node, as a process that is killed while
// it is written to and comes back at the same address.
func TestRealNode(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs the command")
	}
	bin, dir, addr := realnode.Build(t), t.TempDir(), realnode.FreeAddress(t)
	start := func() *realnode.Node { return realnode.Start(t, bin, dir, "--kafka", addr, "--redis", "") }
	n := start()
	r := newRig(t, []string{addr}, nil)
	r.commit(50)
	r.await()
	if extra := r.verify([]string{addr}); extra != 0 {
		t.Errorf("%d records twice, though nothing failed", extra)
	}
	for range 3 {
		r.commit(30)
		n.Kill()
		r.commit(30) // an intent does not notice
		n = start()
		r.commit(1)
		r.await()
		r.verify([]string{addr})
	}
	r.stop()
	r.commit(10)
	r.open()
	r.await()
	r.verify([]string{addr})
	n.Stop(t)
}
