package keyval

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/authorlog"
	"github.com/lattice-log/lattice/storage/disk"
)

// logs are the author logs of the store that are open.
type logs struct {
	o     *Options
	store lattice.StoreID

	mu   sync.Mutex
	list map[state.Writer]*authorlog.Log
}

func (l *logs) dir() string { return l.o.FS.PathJoin(l.o.Dir, "authors") }

func (l *logs) get(w state.Writer) *authorlog.Log {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list[w]
}

// open returns a writer's log, opening or making it.
func (l *logs) open(w state.Writer) (*authorlog.Log, error) {
	return l.openBehind(w, sigchain.Link{}, 0)
}

// openBehind is open for a log that begins behind an entry.
func (l *logs) openBehind(w state.Writer, after sigchain.Link, time uint64) (*authorlog.Log, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if x := l.list[w]; x != nil {
		return x, nil
	}
	x, err := authorlog.Open(authorlog.Options{
		FS: l.o.FS, Dir: l.dir(), Store: l.store, Writer: w, After: after, AfterTime: time, Key: l.o.Key, Clock: l.o.Clock, Stamp: l.o.Stamp,
		Committer: l.o.Committer, Handles: l.o.Handles, Logger: l.o.Logger,
	}, authorlog.Settings{Durability: l.o.Durability, FlushEvery: l.o.FlushEvery})
	if err != nil {
		return nil, err
	}
	l.list[w] = x
	return x, nil
}

// remove closes a log and removes its files. A crash leaves a directory with the
// suffix .gone, or what there was.
func (l *logs) remove(x *authorlog.Log) error {
	l.mu.Lock()
	delete(l.list, x.Writer())
	l.mu.Unlock()
	err := x.Close()
	if err != nil && x.Failed() == "" {
		return err
	}
	dir := x.Start().Dir(l.o.FS, l.dir())
	gone := dir + goneSuffix
	if err := l.o.FS.Rename(dir, gone); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("remove the log of %s: %w", authorlog.Name(x.Writer()), err))
	}
	if err := disk.SyncDir(l.o.FS, l.o.FS.PathDir(dir)); err != nil {
		return lattice.E(lattice.Storage, err)
	}
	if err := l.o.FS.RemoveAll(gone); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("remove the log of %s: %w", authorlog.Name(x.Writer()), err))
	}
	return nil
}

// goneSuffix marks the directory of a log that is being removed.
const goneSuffix = ".gone"

// clean removes what a crash left of logs that were being removed.
func (l *logs) clean() error {
	authors, err := l.o.FS.List(l.dir())
	if disk.IsNotExist(err) {
		return nil
	}
	for _, a := range authors {
		dir := l.o.FS.PathJoin(l.dir(), a)
		names, lerr := l.o.FS.List(dir)
		if lerr != nil {
			continue // no directory
		}
		for _, name := range names {
			if strings.HasSuffix(name, goneSuffix) {
				err = errors.Join(err, l.o.FS.RemoveAll(l.o.FS.PathJoin(dir, name)))
			}
		}
	}
	if err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("clean up author logs: %w", err))
	}
	return nil
}

func (l *logs) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.list)
}

// size returns the bytes of all entries.
func (l *logs) size() (n int64) {
	for _, x := range l.all() {
		n += x.Size()
	}
	return n
}

// all returns the open logs, ascending by writer.
func (l *logs) all() []*authorlog.Log {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := slices.Collect(maps.Values(l.list))
	slices.SortFunc(out, func(a, b *authorlog.Log) int { return a.Writer().Compare(b.Writer()) })
	return out
}

// flush makes durable what was appended to any log.
func (l *logs) flush() error {
	for _, x := range l.all() {
		if err := x.Flush(); err != nil {
			return fmt.Errorf("sync the log of %s: %w", authorlog.Name(x.Writer()), err)
		}
	}
	return nil
}

func (l *logs) close() error {
	var err error
	for _, x := range l.all() {
		err = errors.Join(err, x.Close())
	}
	return err
}

// feed reads one log in order, a piece at a time.
type feed struct {
	log  *authorlog.Log
	next uint64 // sequence number behind what is in buf
	last uint64 // where it ends
	buf  []sigchain.Signed
	room []sigchain.Signed // what buf is part of
}

const (
	feedBytes   = 1 << 20 // of all feeds of a replay together
	feedEntries = 1024    // of one
)

// fill reads on, if the feed has nothing left; share is how many bytes it may
// hold, one entry aside.
func (f *feed) fill(share int) error {
	if len(f.buf) > 0 || f.next > f.last {
		return nil
	}
	f.buf = f.room[:0]
	size := 0
	errEnough := errors.New("enough")
	err := f.log.Scan(f.next, f.last, func(s sigchain.Signed) error {
		if size > 0 && size+len(s.Bytes()) > share || len(f.buf) == feedEntries {
			return errEnough
		}
		size += len(s.Bytes())
		f.buf = append(f.buf, s)
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	if len(f.buf) == 0 {
		return fmt.Errorf("entries %d to %d of %s are not there", f.next, f.last, authorlog.Name(f.log.Writer()))
	}
	f.next = f.buf[len(f.buf)-1].Seq + 1
	f.room = f.buf
	return nil
}

// mergeLogs yields the entries of all feeds, each log's in order, earlier times
// first: an entry is later than all it depends on. yield ends a feed by returning
// false.
func mergeLogs(feeds []*feed, yield func(sigchain.Signed) (more bool, err error)) error {
	share := feedBytes / max(len(feeds), 1)
	for {
		first := -1
		for i, f := range feeds {
			if err := f.fill(share); err != nil {
				return err
			}
			if len(f.buf) > 0 && (first < 0 || f.buf[0].Time < feeds[first].buf[0].Time) {
				first = i
			}
		}
		if first < 0 {
			return nil
		}
		f := feeds[first]
		e := f.buf[0]
		f.buf = f.buf[1:]
		more, err := yield(e)
		if err != nil {
			return err
		}
		if !more {
			feeds = slices.Delete(slices.Clone(feeds), first, first+1)
		}
	}
}
