package client

import "time"

// Record is one record, read or to be written.
type Record struct {
	// Topic, Partition and Offset say where it is. A Producer ignores them,
	// unless its partitioner looks at Partition.
	Topic     string
	Partition int32
	Offset    int64
	// Time has millisecond precision. Zero when writing: now; when read: the
	// record has none.
	Time time.Time
	// Key and Value may be nil, which is not the same as empty.
	Key, Value []byte
	Headers    []Header
}

// Header is one header of a record. Names may repeat.
type Header struct {
	Key   string
	Value []byte
}

// Clone returns a copy that shares no memory with r.
func (r Record) Clone() Record {
	r.Key, r.Value = clone(r.Key), clone(r.Value)
	headers := make([]Header, len(r.Headers))
	for i, h := range r.Headers {
		headers[i] = Header{h.Key, clone(h.Value)}
	}
	if r.Headers != nil {
		r.Headers = headers
	}
	return r
}

func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}

// Ack tells where a record went.
type Ack struct {
	Partition int32
	Offset    int64
	// Time is the node's stamp when the topic stamps records, else zero.
	Time time.Time
	// Duplicate is true when a repeated request found the record in its place.
	Duplicate bool
}

// PartitionBy chooses the partition of a record, in 0..partitions-1.
type PartitionBy func(r Record, partitions int32) int32

// ToPartition sends every record to one partition.
func ToPartition(n int32) PartitionBy { return func(Record, int32) int32 { return n } }

// SamePartition sends every record to its own Partition, to copy a topic.
func SamePartition() PartitionBy { return func(r Record, _ int32) int32 { return r.Partition } }
