package record

import (
	"bytes"
	stdgzip "compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

// foreign are the ways in which other implementations write each codec.
var foreign = []struct {
	name  string
	codec Codec
	write func(t fataler, b []byte) []byte
}{
	{"gzip of the standard library", Gzip, func(t fataler, b []byte) []byte {
		return through(t, b, func(w io.Writer) io.WriteCloser { return stdgzip.NewWriter(w) })
	}},
	{"gzip in two members", Gzip, func(t fataler, b []byte) []byte {
		one := func(b []byte) []byte {
			return through(t, b, func(w io.Writer) io.WriteCloser { return stdgzip.NewWriter(w) })
		}
		return append(one(b[:len(b)/2]), one(b[len(b)/2:])...)
	}},
	{"snappy, bare", Snappy, func(_ fataler, b []byte) []byte { return s2.EncodeSnappy(nil, b) }},
	{"snappy, xerial", Snappy, func(_ fataler, b []byte) []byte {
		out := append([]byte(xerialMagic), 0, 0, 0, 1, 0, 0, 0, 1)
		for len(b) > 0 {
			n := min(len(b), 32<<10)
			block := s2.EncodeSnappyBest(nil, b[:n])
			out = append(binary.BigEndian.AppendUint32(out, uint32(len(block))), block...)
			b = b[n:]
		}
		return out
	}},
	{"lz4, 64 KiB blocks", LZ4, lz4With(lz4.BlockSizeOption(lz4.Block64Kb))},
	{"lz4, 4 MiB blocks, all checksums, size", LZ4, func(t fataler, b []byte) []byte {
		return lz4With(lz4.BlockSizeOption(lz4.Block4Mb), lz4.BlockChecksumOption(true), lz4.SizeOption(uint64(len(b))))(t, b)
	}},
	{"lz4, no checksum, level 9", LZ4, lz4With(lz4.ChecksumOption(false), lz4.CompressionLevelOption(lz4.Level9))},
	{"lz4, dependent blocks", LZ4, func(_ fataler, b []byte) []byte { return lz4Linked(b) }},
	{"zstd stream", Zstd, func(t fataler, b []byte) []byte {
		return through(t, b, func(w io.Writer) io.WriteCloser {
			z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
			if err != nil {
				t.Fatalf("%v", err)
			}
			return struct {
				io.Writer
				io.Closer
			}{w2(func(p []byte) (int, error) { // flushed, so that the frame does not tell its size
				n, err := z.Write(p)
				return n, errors.Join(err, z.Flush())
			}), z}
		})
	}},
	{"zstd in two frames", Zstd, func(t fataler, b []byte) []byte {
		z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(true))
		if err != nil {
			t.Fatalf("%v", err)
		}
		return z.EncodeAll(b[len(b)/2:], z.EncodeAll(b[:len(b)/2], nil))
	}},
}

type fataler interface{ Fatalf(string, ...any) }

type w2 func(p []byte) (int, error)

func (w w2) Write(p []byte) (int, error) { return w(p) }

func through(t fataler, b []byte, open func(io.Writer) io.WriteCloser) []byte {
	var out bytes.Buffer
	w := open(&out)
	_, err := w.Write(b)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatalf("compress: %v", err)
	}
	return out.Bytes()
}

func lz4With(opts ...lz4.Option) func(fataler, []byte) []byte {
	return func(t fataler, b []byte) []byte {
		return through(t, b, func(w io.Writer) io.WriteCloser {
			z := lz4.NewWriter(w)
			if err := z.Apply(opts...); err != nil {
				t.Fatalf("%v", err)
			}
			return z
		})
	}
}

// lz4Linked writes b as a frame of dependent blocks of 64 KiB, of which every
// one after the first is a copy of 64 KiB back as far as it can be: a match at
// the window's far end, then literals.
func lz4Linked(b []byte) []byte {
	out := binary.LittleEndian.AppendUint32(nil, lz4Magic)
	out = append(out, lz4Version, lz4Block64K)
	out = append(out, byte(xxh32(out[4:])>>8))
	for at := 0; at < len(b); at += 64 << 10 {
		piece := b[at:min(len(b), at+64<<10)]
		var block []byte
		match := 0
		if at > 0 { // distance 65535: the byte after the one 64 KiB back
			for match < len(piece)-12 && match < 18 && piece[match] == b[at+match-65535] {
				match++
			}
		}
		if match >= 4 {
			block = append(block, byte(match-4), 0xff, 0xff)
		} else {
			match = 0
		}
		lits := piece[match:]
		if n := len(lits); n < 15 {
			block = append(block, byte(n<<4))
		} else {
			block = append(block, 0xf0)
			for n -= 15; n >= 255; n -= 255 {
				block = append(block, 255)
			}
			block = append(block, byte(n))
		}
		block = append(block, lits...)
		if len(block) > 64<<10 { // beyond what a block may be: stored
			out = binary.LittleEndian.AppendUint32(out, uint32(len(piece))|lz4Stored)
			out = append(out, piece...)
			continue
		}
		out = append(binary.LittleEndian.AppendUint32(out, uint32(len(block))), block...)
	}
	return binary.LittleEndian.AppendUint32(out, 0)
}

// recompress gives batch, which is not compressed, the codec's form of its records.
func recompress(batch []byte, c Codec, records []byte) []byte {
	out := append(bytes.Clone(batch[:HeaderSize]), records...)
	out[atAttributes+1] = out[atAttributes+1]&^attrCodec | byte(c)
	finish(out)
	return out
}

// TestForeignCompression: what others write is read, whatever their framing,
// with a limit of exactly the size, and refused with one byte less.
func TestForeignCompression(t *testing.T) {
	for _, f := range foreign {
		t.Run(f.name, func(t *testing.T) {
			var r Reader
			for _, n := range []int{1, 100, 70_000, 300_000} {
				rng := rand.New(rand.NewPCG(1, uint64(n)))
				value := make([]byte, n)
				for i := range value {
					value[i] = byte(rng.Uint32() >> 29) // compresses, but not to nothing
				}
				for i := 65535; i < n; i++ {
					value[i] = value[i-65535] // and repeats from as far as lz4 reaches
				}
				recs := []Record{{Value: value}, {Offset: 1, Key: []byte("k"), Timestamp: -5}}
				plain := build(None, 0, recs)
				batch := recompress(plain, f.codec, f.write(t, plain[HeaderSize:]))
				size := len(plain) - HeaderSize
				got, err := readAll(&r, batch, Limits{size})
				if err != nil {
					t.Fatalf("%d bytes: %v", n, err)
				}
				checkRecords(t, got, recs)
				if _, err := readAll(new(Reader), batch, Limits{size - 1}); !errors.Is(err, ErrTooLarge) {
					t.Fatalf("%d bytes, limit one less: %v", n, err)
				}
			}
		})
	}
}

// TestOthersReadOurs: the decoders of others read what we compress.
func TestOthersReadOurs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := append(genBytes().Draw(t, "a"), genBytes().Draw(t, "b")...)
		if rapid.Bool().Draw(t, "large") {
			src = bytes.Repeat(src, 70)
		}
		level := rapid.IntRange(0, 22).Draw(t, "level")
		c := compressor{level: level}
		for _, codec := range allCodecs[1:] {
			z := c.append([]byte("dst"), codec, src)[3:]
			var got []byte
			var err error
			switch codec {
			case Gzip:
				var r *stdgzip.Reader
				if r, err = stdgzip.NewReader(bytes.NewReader(z)); err == nil {
					got, err = io.ReadAll(r)
				}
			case Snappy:
				got, err = s2.Decode(nil, z)
			case LZ4:
				got, err = io.ReadAll(lz4.NewReader(bytes.NewReader(z)))
			case Zstd:
				var r *zstd.Decoder
				if r, err = zstd.NewReader(bytes.NewReader(z), zstd.WithDecoderConcurrency(1)); err == nil {
					got, err = io.ReadAll(r)
				}
			}
			if err != nil || !bytes.Equal(got, src) {
				t.Fatalf("%v of %d bytes: %d back, %v", codec, len(src), len(got), err)
			}
		}
	})
}

// TestBomb: records that decompress far beyond the limit are refused, at any
// moment holding no more than the limit and the decoder's own fixed state, and
// a Reader that met one reads on.
func TestBomb(t *testing.T) {
	const limit, size = 8 << 20, 48 << 20
	zeros := make([]byte, size)
	plain := build(None, 0, goldenRecords)
	for _, codec := range allCodecs[1:] {
		c := compressor{}
		bomb := recompress(plain, codec, c.append(nil, codec, zeros))
		for _, l := range []int{1, 1000, 1 << 20, limit} {
			var r Reader
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := r.Open(bomb, Limits{l})
			runtime.ReadMemStats(&after)
			if !errors.Is(err, ErrTooLarge) {
				t.Fatalf("%v, limit %d: %v", codec, l, err)
			}
			if held := cap(r.dec.buf); held > l {
				t.Errorf("%v, limit %d: holds %d bytes", codec, l, held)
			}
			// Buffers that were too small are a third of the limit at most, all together.
			if total := after.TotalAlloc - before.TotalAlloc; total > uint64(l)*4/3+2<<20 {
				t.Errorf("%v, limit %d: allocated %d bytes in all", codec, l, total)
			}
			got, err := readAll(&r, build(codec, 0, goldenRecords), Limits{})
			if err != nil {
				t.Fatalf("%v: after the bomb: %v", codec, err)
			}
			checkRecords(t, got, goldenRecords)
		}
	}
}

// TestZstdFrameBomb: many frames, each within the limit.
func TestZstdFrameBomb(t *testing.T) {
	const limit = 4 << 20
	c := compressor{}
	one := c.append(nil, Zstd, make([]byte, 3<<20))
	bomb := recompress(build(None, 0, goldenRecords), Zstd, bytes.Repeat(one, 1000))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := new(Reader).Open(bomb, Limits{limit})
	runtime.ReadMemStats(&after)
	if total := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrTooLarge) || total > 3*limit {
		t.Errorf("%v, allocated %d", err, total)
	}
}

// TestLyingSizes: a size that the compressed bytes claim is not believed.
func TestLyingSizes(t *testing.T) {
	plain := build(None, 0, goldenRecords)
	lz4Frame := append([]byte{4, 0x22, 0x4d, 0x18, lz4Version | lz4Independent | lz4ContentSize, lz4Block64K}, 0, 0, 0, 0x40, 0, 0, 0, 0)
	lz4Frame = append(lz4Frame, byte(xxh32(lz4Frame[4:])>>8), 0, 0, 0, 0)
	for name, lie := range map[string]struct {
		codec Codec
		data  []byte
	}{
		"snappy, bare":   {Snappy, []byte{0x80, 0x80, 0x80, 0x80, 0x04, 0}},
		"snappy, xerial": {Snappy, append([]byte(xerialMagic+"\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x06"), 0x80, 0x80, 0x80, 0x80, 0x04, 0)},
		"xerial chunk":   {Snappy, []byte(xerialMagic + "\x00\x00\x00\x01\x00\x00\x00\x01\x7f\xff\xff\xff")},
		"zstd":           {Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 0x40, 1, 0, 0}},
		"lz4":            {LZ4, lz4Frame},
		"gzip":           {Gzip, append((&compressor{}).append(nil, Gzip, []byte("x"))[:24-5], 0, 0, 0, 0x40)},
	} {
		batch := recompress(plain, lie.codec, lie.data)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := new(Reader).Open(batch, Limits{1 << 30})
		runtime.ReadMemStats(&after)
		if total := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrMalformed) || total > 1<<20 {
			t.Errorf("%s: %v, allocated %d", name, err, total)
		}
	}
}

// TestLZ4Refused: frames that Kafka's clients do not read either.
func TestLZ4Refused(t *testing.T) {
	good := (&compressor{}).append(nil, LZ4, []byte("some text, some text, some text"))
	if _, err := unlz4(make([]byte, 0, 100), good); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"magic":       append([]byte{5}, good[1:]...),
		"checksum":    append(append(bytes.Clone(good[:6]), good[6]+1), good[7:]...),
		"no end mark": good[:len(good)-4],
		"cut":         good[:len(good)-6],
		"trailing":    append(bytes.Clone(good), 0),
		"header only": good[:7],
		"nothing":     nil,
	} {
		if out, err := unlz4(make([]byte, 0, 100), b); err == nil || errors.Is(err, errFull) {
			t.Errorf("%s: %q %v", name, out, err)
		}
	}
}

// TestNoGoroutines: neither decoders nor encoders leave a goroutine behind.
func TestNoGoroutines(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for _, codec := range allCodecs {
		if _, err := readAll(new(Reader), build(codec, 0, benchRecords()), Limits{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCodecNames(t *testing.T) {
	for _, c := range allCodecs {
		if got, err := ParseCodec(c.String()); got != c || err != nil {
			t.Errorf("%v: %v %v", c, got, err)
		}
	}
	for _, bad := range []string{"", "NONE", "codec 5", "zlib"} {
		if _, err := ParseCodec(bad); !errors.Is(err, ErrCodec) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if s := Codec(7).String(); !strings.Contains(s, "7") {
		t.Error(s)
	}
}
