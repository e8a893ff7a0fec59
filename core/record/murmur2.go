package record

import "encoding/binary"

// Murmur2 is the hash by which Kafka's Java client picks the partition of a
// keyed record: MurmurHash2, 32 bits, with Kafka's seed.
func Murmur2(key []byte) int32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
	)
	h := uint32(seed) ^ uint32(len(key))
	for ; len(key) >= 4; key = key[4:] {
		k := binary.LittleEndian.Uint32(key) * m
		h = h*m ^ (k^k>>24)*m
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(key[0])) * m
	}
	h = (h ^ h>>13) * m
	return int32(h ^ h>>15)
}

// PartitionForKey is the partition, of n, in which Kafka's Java client puts a
// record with that key. What to do with a null key is the caller's choice. It
// panics unless n is positive.
func PartitionForKey(key []byte, n int32) int32 { return Murmur2(key) & 0x7fffffff % n }
