package client

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// Position names a place in each of several partitions. The zero Position is
// the start.
type Position struct {
	kind   positionKind
	offset int64
	time   time.Time
}

type positionKind uint8

const (
	atStart positionKind = iota
	atEnd
	atOffset
	atTime
	atLast
)

// Start is the first record that is still there.
func Start() Position { return Position{} }

// End is behind the last committed record.
func End() Position { return Position{kind: atEnd} }

// Offset is the record with this offset.
func Offset(n int64) Position { return Position{kind: atOffset, offset: n} }

// Time is the first record that is not older than t, and the end when there is none.
func Time(t time.Time) Position { return Position{kind: atTime, time: t} }

// Last is n offsets before the end, but not before the start.
func Last(n int64) Position { return Position{kind: atLast, offset: n} }

// String returns the position in words.
func (p Position) String() string {
	switch p.kind {
	case atEnd:
		return "end"
	case atOffset:
		return fmt.Sprintf("offset %d", p.offset)
	case atTime:
		return p.time.UTC().Format(time.RFC3339Nano)
	case atLast:
		return fmt.Sprintf("last %d", p.offset)
	default:
		return "start"
	}
}

func (p Position) message() *pb.Position {
	switch p.kind {
	case atEnd:
		return &pb.Position{At: &pb.Position_End{End: true}}
	case atOffset:
		return &pb.Position{At: &pb.Position_Offset{Offset: p.offset}}
	case atTime:
		return &pb.Position{At: &pb.Position_Time{Time: timestamppb.New(p.time)}}
	case atLast:
		return &pb.Position{At: &pb.Position_Last{Last: p.offset}}
	default:
		return &pb.Position{At: &pb.Position_Start{Start: true}}
	}
}
