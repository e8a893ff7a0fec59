package record

import (
	"bytes"
	"fmt"
	"testing"
)

// benchRecords are 1,000 records of 100 bytes that compress to about a third.
func benchRecords() []Record {
	recs := make([]Record, 1000)
	for i := range recs {
		value := fmt.Appendf(nil, `{"id":%d,"name":"sensor-%d","reading":%d,"unit":"celsius"}`, i*7919, i%50, i*31%977)
		value = append(value, bytes.Repeat([]byte{'.'}, max(0, 100-len(value)))...)
		recs[i] = Record{Timestamp: 1_700_000_000_000 + int64(i), Value: value[:100]}
	}
	return recs
}

func BenchmarkParseHeader(b *testing.B) {
	batch := build(None, 0, benchRecords())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseHeader(batch); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheckCRC(b *testing.B) {
	batch := build(None, 0, benchRecords())
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	for b.Loop() {
		if err := CheckCRC(batch); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPlace(b *testing.B) {
	batch := build(None, 0, benchRecords())
	b.ReportAllocs()
	for b.Loop() {
		Place(batch, 1<<40, 29_000_000)
	}
}

func BenchmarkRead(b *testing.B) {
	for _, codec := range allCodecs {
		b.Run(codec.String(), func(b *testing.B) {
			batch := build(codec, 0, benchRecords())
			var r Reader
			var rec Record
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Open(batch, Limits{}); err != nil {
					b.Fatal(err)
				}
				n := 0
				for {
					ok, err := r.Next(&rec)
					if err != nil {
						b.Fatal(err)
					}
					if !ok {
						break
					}
					n++
				}
				if n != 1000 {
					b.Fatal(n)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/record")
		})
	}
}

func BenchmarkValidate(b *testing.B) {
	batch := build(None, 0, benchRecords())
	var r Reader
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Validate(batch, Limits{}, Rules{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	recs := benchRecords()
	for _, codec := range allCodecs {
		b.Run(codec.String(), func(b *testing.B) {
			w := NewBuilder(codec, 0)
			var dst []byte
			b.ReportAllocs()
			for b.Loop() {
				for i := range recs {
					w.Add(recs[i].Timestamp, recs[i].Key, recs[i].Value, nil)
				}
				dst = w.Build(dst[:0])
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/record")
			b.ReportMetric(float64(len(dst)), "bytes")
		})
	}
}

func BenchmarkFilter(b *testing.B) {
	batch := build(None, 0, benchRecords())
	var f Filterer
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if dst, _, err = f.Filter(dst[:0], batch, Limits{}, func(r Record) Keep { return r.Offset&1 == 0 }); err != nil {
			b.Fatal(err)
		}
	}
}

// TestAllocations holds what the produce and fetch paths count on.
func TestAllocations(t *testing.T) {
	plain := build(None, 0, benchRecords())
	dst := make([]byte, 0, 2*len(plain))
	var r Reader
	var f Filterer
	var rec Record
	w := NewBuilder(None, 0)
	read := func(batch []byte) {
		if err := r.Open(batch, Limits{}); err != nil {
			t.Fatal(err)
		}
		for {
			if ok, err := r.Next(&rec); !ok || err != nil {
				return
			}
		}
	}
	for name, run := range map[string]func(){
		"ParseHeader": func() { _, _ = ParseHeader(plain) },
		"Next":        func() { _, _, _, _ = Next(plain) },
		"CheckCRC":    func() { _ = CheckCRC(plain) },
		"Place":       func() { Place(plain, 0, 1) },
		"Stamp":       func() { StampAppendTime(plain, 5) },
		"Read":        func() { read(plain) },
		"Validate":    func() { _ = r.Validate(plain, Limits{}, Rules{RequireKeys: false}) },
		"FindOffset":  func() { _, _, _ = r.FindOffset(plain, Limits{}, 500) },
		"FindTime":    func() { _, _, _, _ = r.RecordAtOrAfter(plain, Limits{}, 1_700_000_000_500) },
		"Filter":      func() { _, _, _ = f.Filter(dst, plain, Limits{}, func(r Record) Keep { return r.Offset&1 == 0 }) },
		"Build": func() {
			for i := range 1000 {
				w.Add(int64(i), nil, plain[:100], nil)
			}
			w.Build(dst)
		},
	} {
		if n := testing.AllocsPerRun(20, run); n > 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
