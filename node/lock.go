package node

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	lattice "github.com/lattice-log/lattice"
)

// HeldError says which process has a data directory.
type HeldError struct {
	Dir string
	PID int // 0 when the lock does not tell
}

func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("the data directory %s is in use by another process", e.Dir)
	}
	return fmt.Sprintf("the data directory %s is in use by process %d", e.Dir, e.PID)
}

// lock is the right to use a data directory. The operating system takes it back
// when the process ends, however it ends.
type lock struct{ f *os.File }

// takeLock makes the directory if need be and locks it. Kind Conflict, with a
// *HeldError, when another process has it.
func takeLock(dir string) (*lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, lattice.E(lattice.Storage, fmt.Errorf("data directory: %w", err))
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, lattice.E(lattice.Storage, fmt.Errorf("data directory: %w", err))
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, lattice.E(lattice.Conflict, &HeldError{dir, readPID(f)})
		}
		return nil, lattice.E(lattice.Storage, fmt.Errorf("lock %s: %w", f.Name(), err))
	}
	if err := writePID(f); err != nil {
		f.Close()
		return nil, lattice.E(lattice.Storage, fmt.Errorf("lock %s: %w", f.Name(), err))
	}
	return &lock{f}, nil
}

// holdLock keeps others from a directory that is only read. It writes nothing,
// and needs no right to: a directory without a lock file was never used.
func holdLock(dir string) (release func() error, err error) {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if os.IsNotExist(err) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, lattice.E(lattice.Storage, fmt.Errorf("data directory: %w", err))
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, lattice.E(lattice.Conflict, &HeldError{dir, readPID(f)})
		}
		return nil, lattice.E(lattice.Storage, fmt.Errorf("lock %s: %w", f.Name(), err))
	}
	return f.Close, nil
}

func writePID(f *os.File) error {
	pid := strconv.Itoa(os.Getpid()) + "\n"
	if _, err := f.WriteAt([]byte(pid), 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(pid)))
}

// readPID returns the process that the holder wrote down, 0 if it did not.
func readPID(f *os.File) int {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

// release gives the directory back. The file stays: removing it would let two
// processes lock two files of one name.
func (l *lock) release() error {
	return errors.Join(l.f.Truncate(0), l.f.Close())
}
