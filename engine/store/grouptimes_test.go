package store_test

import (
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/enginetest"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/storage/disk"
)

// TestGroupTimes: a config of a group of consumers reaches its members, also after
// a start.
func TestGroupTimes(t *testing.T) {
	n := enginetest.New(t, disk.NewMem())
	interval := func() time.Duration {
		t.Helper()
		r := n.Groups().ConsumerHeartbeat(group.ConsumerHeartbeatRequest{
			Group: "g", MemberID: "m", MemberEpoch: group.EpochJoin, Rebalance: time.Minute, Topics: []string{"t"}, Owned: []lattice.TopicPartition{},
		})
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return r.Interval
	}
	alter := func(name string, value *string, op string) {
		t.Helper()
		if err := n.AlterGroup("g", []store.ConfigChange{{Name: name, Op: op, Value: value}}, false, false); err != nil {
			t.Fatal(err)
		}
	}
	n.Topic("t", 1)
	before, seven := interval(), "7000"
	alter("consumer.heartbeat.interval.ms", &seven, "set")
	if got := interval(); got != 7*time.Second {
		t.Errorf("the interval is %v, want 7s", got)
	}
	n.Restart()
	if got := interval(); got != 7*time.Second {
		t.Errorf("after a start the interval is %v, want 7s", got)
	}
	alter("consumer.heartbeat.interval.ms", nil, "")
	if got := interval(); got != before {
		t.Errorf("set to nothing, the interval is %v, want %v", got, before)
	}
	n.Stop()
}
