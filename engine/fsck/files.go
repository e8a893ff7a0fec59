package fsck

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/authorlog"
	"github.com/lattice-log/lattice/storage/aside"
	"github.com/lattice-log/lattice/storage/disk"
)

// files are the files of one partition.
type files struct {
	segs   []segFile
	leaves []int64         // first offsets of the leaves files
	beside map[string]bool // every name
}

// segFile is one segment file.
type segFile struct {
	base, size int64
	marked     bool // as compacted
}

// parseName splits a file name into the offset that it begins with and the rest.
func parseName(name string) (base int64, ext string, ok bool) {
	if len(name) < 21 || name[20] != '.' {
		return 0, "", false
	}
	n, err := strconv.ParseUint(name[:20], 10, 63)
	return int64(n), name[20:], err == nil && name[0] != '+'
}

func fileName(base int64, ext string) string { return fmt.Sprintf("%020d%s", base, ext) }

// path returns the path of a file of the partition.
func (p *partCheck) path(name string) string { return p.fs.PathJoin(p.dir, name) }

// listFiles sorts the directory's names by what they are, and notes those that
// are nothing.
func (p *partCheck) listFiles() {
	p.files.beside = map[string]bool{}
	names := p.list(p.dir)
	for _, name := range names {
		p.files.beside[name] = true
	}
	for _, name := range names {
		base, ext, ok := parseName(name)
		switch {
		case ok && ext == ".log":
			info, err := p.fs.Stat(p.path(name))
			if err != nil {
				p.damage(p.path(name), "unreadable", "%v", err)
				continue
			}
			p.files.segs = append(p.files.segs, segFile{base, info.Size(), p.files.beside[fileName(base, ".compacted")]})
		case ok && ext == ".leaves":
			p.files.leaves = append(p.files.leaves, base)
		case ok && (ext == ".index" || ext == ".timeindex" || ext == ".hint" || ext == ".compacted"):
			if !p.files.beside[fileName(base, ".log")] {
				p.note(p.path(name), "belongs to no segment", "the next start removes it")
			}
		case ok && ext == ".log.new" || strings.HasSuffix(name, ".tmp"):
			p.note(p.path(name), "unfinished file", "replacing a file was interrupted")
		case strings.HasPrefix(name, "cut-"):
			p.note(p.path(name), "cut bytes", "what an earlier start cut off the end of the log")
		case name == authorlog.NoteFile && p.author != nil && p.author.start.After == 0:
		case name == aside.Dir:
		case name == "forget":
			p.note(p.path(name), "beginning anew", "removing the log was interrupted; the next start finishes it")
		case name == "head" || name == "prefix" || name == "shared" || strings.HasPrefix(name, "tree.") || strings.HasPrefix(name, "recycle-"):
		default:
			p.note(p.path(name), "belongs to nothing", "")
		}
	}
	slices.SortFunc(p.files.segs, func(a, b segFile) int { return int(min(max(a.base-b.base, -1), 1)) })
	slices.Sort(p.files.leaves)
}

// window reads a file from front to back in large reads.
type window struct {
	f    io.ReaderAt
	size int64
	buf  []byte
	off  int64 // position of buf[0]
	n    int   // valid bytes of buf
}

const windowSize = 1 << 20

// at returns n bytes at a position, at most windowSize, all within the file. They
// are valid until the next call.
func (w *window) at(off int64, n int) ([]byte, error) {
	if off+int64(n) > w.size {
		return nil, lattice.E(lattice.Corrupt, fmt.Errorf("it ends at %d, before %d bytes at %d", w.size, n, off))
	}
	if off >= w.off && off+int64(n) <= w.off+int64(w.n) {
		return w.buf[off-w.off:][:n], nil
	}
	want := int(min(windowSize, w.size-off))
	got, err := w.f.ReadAt(w.buf[:want], off)
	w.off, w.n = off, got
	if got >= n {
		return w.buf[:n], nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return nil, lattice.E(lattice.Storage, fmt.Errorf("read at %d: %w", off, err))
}

// lastByte returns the position behind the last byte that is not zero in
// [from, w.size), from when there is none.
func (w *window) lastByte(from int64) (int64, error) {
	last := from
	for at := from; at < w.size; {
		n := int(min(windowSize, w.size-at))
		b, err := w.at(at, n)
		if err != nil {
			return last, err
		}
		for i, c := range b {
			if c != 0 {
				last = at + int64(i) + 1
			}
		}
		at += int64(n)
	}
	return last, nil
}

// open opens a file to read from front to back. The buffer is the checker's: one
// window at a time.
func (c *checker) open(path string, size int64) (*window, func(), error) {
	f, err := c.fs.Open(path)
	if err != nil {
		return nil, nil, err
	}
	if c.buf == nil {
		c.buf = make([]byte, windowSize)
	}
	return &window{f: f, size: size, buf: c.buf}, func() { _ = f.Close() }, nil
}

// stream opens a file for small reads in order; nil when there is none.
func (c *checker) stream(path string) (r *bufio.Reader, size int64, done func(), err error) {
	f, err := c.fs.Open(path)
	if disk.IsNotExist(err) {
		return nil, 0, func() {}, nil
	}
	if err != nil {
		return nil, 0, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, 0, nil, err
	}
	section := io.NewSectionReader(f, 0, info.Size())
	return bufio.NewReaderSize(section, 64<<10), info.Size(), func() { _ = f.Close() }, nil
}
