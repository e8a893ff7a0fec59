package group

import (
	"testing"
	"time"
)

// TestTimes: what a group is set to holds for its members from their next
// heartbeats on, for that group alone, until it is set to nothing.
func TestTimes(t *testing.T) {
	w := newWorld(t, nil)
	w.topics.create("t", 1)
	epoch := map[string]int32{}
	beat := func(group string) time.Duration {
		t.Helper()
		r := w.ConsumerHeartbeat(ConsumerHeartbeatRequest{Group: group, MemberID: "m", MemberEpoch: epoch[group], Rebalance: time.Second, Topics: []string{"t"}})
		if r.Err != nil {
			t.Fatalf("%s: %v", group, r.Err)
		}
		epoch[group] = r.MemberEpoch
		return r.Interval
	}
	members := func(group string) int {
		t.Helper()
		d, err := w.Describe(group)
		if err != nil {
			t.Fatal(err)
		}
		return len(d.Members)
	}
	if got := beat("set"); got != w.cfg.ConsumerHeartbeat {
		t.Errorf("interval %v before it is set, want %v", got, w.cfg.ConsumerHeartbeat)
	}
	w.SetTimes("set", Times{Session: w.cfg.ConsumerSession + 10*time.Second, Heartbeat: 7 * time.Second})
	if got := beat("set"); got != 7*time.Second {
		t.Errorf("interval %v, want what the group is set to", got)
	}
	if got := beat("other"); got != w.cfg.ConsumerHeartbeat {
		t.Errorf("interval %v of another group, want %v", got, w.cfg.ConsumerHeartbeat)
	}
	w.clock.Advance(w.cfg.ConsumerSession + 5*time.Second)
	if got, want := members("set"), 1; got != want {
		t.Errorf("%d members within the session that the group is set to, want %d", got, want)
	}
	if got, want := members("other"), 0; got != want {
		t.Errorf("%d members after the session, want %d", got, want)
	}
	w.clock.Advance(5 * time.Second)
	if got, want := members("set"), 0; got != want {
		t.Errorf("%d members after the session that the group is set to, want %d", got, want)
	}
	epoch["set"] = EpochJoin
	w.SetTimes("set", Times{})
	if got := beat("set"); got != w.cfg.ConsumerHeartbeat {
		t.Errorf("interval %v after it is set to nothing, want %v", got, w.cfg.ConsumerHeartbeat)
	}
}
