package segment

import (
	"fmt"

	lattice "github.com/lattice-log/lattice"
)

// SetSegmentBytes changes the size at which files are sealed, from the next
// append on; 0 stands for the default. Kind Invalid.
func (l *Log) SetSegmentBytes(n int64) error {
	if n < 0 || n > maxSegmentBytes {
		return lattice.E(lattice.Invalid, fmt.Errorf("segment: size %d, want 0 to %d", n, maxSegmentBytes))
	}
	if n == 0 {
		n = DefaultSegmentBytes
	}
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	l.growMu.Lock() // Prepare reads it too
	defer l.growMu.Unlock()
	l.opt.SegmentBytes = n
	return nil
}
