package group

import (
	"testing"
	"time"
)

// TestRefresh: what other nodes commit is read anew, also what comes behind a commit
// of this node that waits, and what they remove goes.
func TestRefresh(t *testing.T) {
	w := newWorld(t, nil)
	w.topics.create("t", 3)
	all := func(what string, want ...int64) {
		t.Helper()
		w.settle()
		got := w.FetchOffsets(FetchRequest{Group: "g", All: true}).Offsets
		have := map[int32]int64{}
		for _, o := range got {
			have[o.Partition] = o.Offset
		}
		for p, offset := range want {
			if o, ok := have[int32(p)]; ok != (offset >= 0) || ok && o != offset {
				t.Errorf("%s: partition %d has %d (%t), want %d", what, p, o, ok, offset)
			}
		}
	}
	run := func(f func() error) {
		t.Helper()
		done := make(chan error, 1)
		go func() { done <- f() }()
		for {
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				return
			default:
				w.settle()
			}
		}
	}
	key := func(p int32) Key { return Key{"g", w.tp("t", p)} }
	theirs := func(p int32, offset int64) {
		w.offsets.foreign(key(p), &Value{Offset: offset, LeaderEpoch: -1, Time: time.UnixMilli(1_767_225_600_000)})
	}

	w.CommitOffsets(admin("g", OffsetCommit{TopicPartition: w.tp("t", 0), Offset: 5}), func(CommitResult) {})
	theirs(0, 9)
	theirs(1, 4)
	run(func() error { return w.Refresh([]Key{key(0), key(1), key(2)}) })
	all("others are further", 9, 4, -1)

	theirs(1, 2)
	run(func() error { return w.Refresh([]Key{key(1)}) })
	all("others are behind", 9, 4, -1)

	w.offsets.foreign(key(0), nil)
	theirs(2, 7)
	all("nobody said so yet", 9, 4, -1)
	run(w.Reload)
	all("nobody knows which", -1, 4, 7)

	for p := range int32(3) {
		w.offsets.foreign(key(p), nil)
	}
	run(w.Reload)
	if got := w.FetchOffsets(FetchRequest{Group: "g", All: true}).Offsets; len(got) != 0 {
		t.Errorf("all went, and %v are left", got)
	}
	if len(w.entries()) != 0 {
		t.Error("a group of which nothing is left is kept")
	}
}
