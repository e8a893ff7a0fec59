package keyval

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// BenchmarkFold makes the state again from the logs, after its directory was
// deleted, as a start does that finds none. Run it with -cpu 1.
func BenchmarkFold(b *testing.B) {
	for _, c := range []struct {
		name string
		next func(i int) (a state.Address, p state.Payload)
	}{
		{"new registers", func(i int) (state.Address, state.Payload) {
			return reg(fmt.Sprintf("key:%012d", i*7919%1_000_003+i/1_000_003*1_000_003)), state.Payload{Bytes: []byte("0123456789abcdef")}
		}},
		{"100000 registers", func(int) (state.Address, state.Payload) {
			return reg(fmt.Sprintf("key:%012d", rand.IntN(100_000))), state.Payload{Bytes: []byte("0123456789abcdef")}
		}},
		{"1000000 registers", func(int) (state.Address, state.Payload) {
			return reg(fmt.Sprintf("key:%012d", rand.IntN(1_000_000))), state.Payload{Bytes: []byte("0123456789abcdef")}
		}},
		{"1000 counters", func(i int) (state.Address, state.Payload) {
			return reg(fmt.Sprintf("counter:%012d", i%1000)), state.Payload{Sum: &state.Subtotal{Count: int64(i)}}
		}},
		{"hash of 100000", func(int) (state.Address, state.Payload) {
			return part(state.Field, fmt.Sprintf("element:%012d", rand.IntN(100_000))), state.Payload{Bytes: []byte("xxx")}
		}},
		{"sorted set of 100000", func(int) (state.Address, state.Payload) {
			s, _ := state.ScoreOf(float64(rand.IntN(1000)))
			return part(state.Scored, fmt.Sprintf("element:%012d", rand.IntN(100_000))), s.Payload()
		}},
		{"list", func(i int) (state.Address, state.Payload) {
			return part(state.Element, string(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(1<<40-i)), 7))), state.Payload{Bytes: []byte("xxx")}
		}},
	} {
		for _, perEntry := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("%s/%d an entry", c.name, perEntry), func(b *testing.B) {
				o := options(disk.OS(), 0, 2, tick.Real{})
				o.Dir, o.Durability, o.BlockCache, o.CacheBytes, o.DirtyBytes = b.TempDir(), signedlog.OS, 0, 0, 0
				writeLog(b, o, b.N, perEntry, c.next)
				o.Incarnation++
				b.ReportAllocs()
				stop := cpu(b)
				db, err := Open(o)
				if err != nil {
					b.Fatal(err)
				}
				stop()
				if err := db.Close(); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

func part(k state.Kind, name string) state.Address {
	return state.Address{Map: "0", Key: []byte("large"), Kind: k, Sub: []byte(name)}
}

// writeLog writes puts into the log of one incarnation, each of which names the
// head that it finds.
func writeLog(b *testing.B, o Options, ops, perEntry int, next func(int) (state.Address, state.Payload)) {
	db, err := Open(o)
	if err != nil {
		b.Fatal(err)
	}
	l, err := db.logs.open(db.own)
	if err != nil {
		b.Fatal(err)
	}
	type place struct {
		seq   uint32
		index uint16
	}
	last := map[string]place{}
	prev, at := db.before, 0
	for seq := uint64(1); at < ops; seq++ {
		e := sigchain.Entry{Store: db.store, Incarnation: db.own.Incarnation, Seq: seq, Time: db.lastTime + seq, Prev: prev}
		if seq == 1 {
			e.Parents = db.machine.Parents(db.own, db.before)
		}
		for range min(perEntry, ops-at) {
			p := &state.Put{}
			p.Address, p.Payload = next(at)
			row := string(p.Address.Key) + string(p.Address.Sub)
			if d, ok := last[row]; ok {
				p.Supersedes = []state.Dot{{Writer: db.own, Seq: uint64(d.seq), Index: uint32(d.index)}}
			}
			last[row] = place{uint32(seq), uint16(len(e.Ops))}
			op, err := p.Encode(db.own)
			if err != nil {
				b.Fatal(err)
			}
			e.Ops = append(e.Ops, op)
			at++
		}
		s, err := sigchain.Sign(o.Key, e)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Append(s); err != nil {
			b.Fatal(err)
		}
		prev = s.Link()
	}
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
}
