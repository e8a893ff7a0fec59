package segment

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
)

// Resume is the place from which a log's blocks are not known to be good: what
// Synced returned once. The zero value trusts nothing, not even where the log
// begins: the first file, whatever its offset, is the first, and all is read. With
// nothing but a Term of -1, all is read too, but the log begins at offset 0: right
// for a log that had no chance to drop anything yet, because a crash can take the
// first file and leave a later one.
type Resume struct {
	Pos
	Next  int64 // the offset at Pos
	Term  int32 // the last term before Pos, or a lower one if that is unknown
	Start int64 // offsets below it may be missing
}

// Damage is a range of offsets before the place to resume from whose blocks are
// not there. They are not cut, and not replaced by anything.
type Damage struct {
	From, To int64 // [From, To)
	Reason   string
}

// Cut says what recovery cut off the end of the log.
type Cut struct {
	Pos           // where the log ends now
	Offset int64  // likewise
	Bytes  int64  // what looked like data behind it, over all files
	Reason string // what was wrong with the first block that was cut
	Saved  []string
}

// Recovery reports what Open found.
type Recovery struct {
	Blocks  int64 // read and checked from the place to resume from
	Bytes   int64
	Cut     *Cut     // nil when the log ended cleanly
	Damaged []Damage // what should be there before the place to resume from, and is not
}

// Open opens the log in dir, which it creates if needed. What lies before resume
// is trusted, and looked at only as far as names and sizes go. From there on
// every block is read and checked: offsets must continue, terms must not
// decrease, and the codec must accept it; onTail, if not nil, is called with each
// in order, the bytes being valid until it returns. The first block that does not
// pass ends the log. It and what follows are cut, durably, before Open returns;
// bytes other than zeros are kept in a side file. The blocks accepted are not
// durable until Sync. An error of Kind Storage leaves a log that can be opened
// again; an error of onTail is returned as it is.
func Open(fs disk.FS, dir string, opt Options, resume Resume, onTail func(Meta, []byte) error) (*Log, Recovery, error) {
	if err := opt.fill(); err != nil {
		return nil, Recovery{}, err
	}
	if resume.At < 0 || resume.Next < resume.Segment {
		return nil, Recovery{}, lattice.E(lattice.Invalid, fmt.Errorf("open %s: resume at %s, offset %d", dir, resume.Pos, resume.Next))
	}
	if err := disk.MkdirAll(fs, dir); err != nil {
		return nil, Recovery{}, storage("open %s: %w", dir, err)
	}
	l := &Log{fs: fs, dir: dir, opt: opt}
	if shares(fs, dir) {
		l.opt.Recycle = 0
	}
	files, err := l.list()
	if err != nil {
		return nil, Recovery{}, storage("open %s: %w", dir, err)
	}
	if resume == (Resume{}) && len(files) > 0 {
		resume = Resume{Pos: Pos{Segment: files[0].base}, Next: files[0].base, Start: files[0].base}
	}
	l.synced, l.syncedOff = resume.Pos, resume.Next
	r := &recovery{l: l, resume: resume, onTail: onTail, next: resume.Next, term: resume.Term}
	tail := r.trust(files)
	if err := r.readTail(tail); err != nil {
		return nil, r.Recovery, fmt.Errorf("open %s: %w", dir, err)
	}
	l.next, l.term = r.next, r.term
	return l, r.Recovery, nil
}

// file is a segment file found in the directory.
type file struct {
	base, size int64
	compacted  bool
}

// list returns the segment files in order, remembers the spare ones, and
// removes what a crash left behind.
func (l *Log) list() ([]file, error) {
	names, err := l.fs.List(l.dir)
	if err != nil {
		return nil, err
	}
	var files []file
	marked := map[int64]bool{}
	var beside []string // files that belong to a segment
	for _, name := range names {
		switch base, ext, ok := parseName(name); {
		case strings.HasPrefix(name, recyclePre):
			// A crash can have taken back its new name, but not the new blocks in
			// it. So no offset is too new for what it holds: it is of no use.
			beside = append(beside, name)
		case !ok:
		case ext == logExt:
			info, err := l.fs.Stat(l.fs.PathJoin(l.dir, name))
			if err != nil {
				return nil, err
			}
			files = append(files, file{base: base, size: info.Size()})
		case ext == compactedExt:
			marked[base] = true
			beside = append(beside, name)
		case ext == indexExt || ext == timeExt || ext == hintExt || ext == newExt:
			beside = append(beside, name)
		}
	}
	slices.SortFunc(files, func(a, b file) int { return int(min(max(a.base-b.base, -1), 1)) })
	for i := range files {
		files[i].compacted = marked[files[i].base]
	}
	l.sweep(files, beside)
	return files, nil
}

// parseName splits a file name into the offset and the rest.
func parseName(name string) (base int64, ext string, ok bool) {
	if len(name) < 21 || name[20] != '.' {
		return 0, "", false
	}
	base, err := strconv.ParseInt(name[:20], 10, 64)
	return base, name[20:], err == nil && base >= 0 && name[0] != '+'
}

// sweep removes files beside segments that are not there, unfinished
// replacements, and spare files. One that cannot be removed does no harm.
func (l *Log) sweep(files []file, beside []string) {
	here := make(map[int64]bool, len(files))
	for _, f := range files {
		here[f.base] = true
	}
	var errs error
	for _, name := range beside {
		if base, ext, ok := parseName(name); !ok || ext == newExt || !here[base] {
			errs = errors.Join(errs, disk.RemoveIfExists(l.fs, l.fs.PathJoin(l.dir, name)))
		}
	}
	if errs != nil {
		l.opt.Logger.Warn("left-over files not removed", "dir", l.dir, "error", errs)
	}
}
