package p2p

import (
	"context"
	"testing"
	"time"
)

// TestPace: whatever is sent when, no stretch of time has more than the rate allows and
// one burst; what waits is not lost; and without a rate nothing waits.
func TestPace(t *testing.T) {
	const each = 100_000 // bytes a second
	p, start := newPace(each), time.Unix(1e9, 0)
	now, sent := start, 0
	var last time.Duration
	for i, n := range []int{1000, 500_000, 1, 64 << 10, 200_000, 30_000, 1 << 20, 7} {
		if i == 4 {
			now = now.Add(20 * time.Second) // a pause allows one burst, and no more
			last, sent = 0, 0
			start = now
		}
		d := p.delay(now, n)
		sent += n
		if want := time.Duration(float64(sent-paceBurst) / each * float64(time.Second)); d < want-time.Millisecond || d > want+time.Millisecond && want > 0 {
			t.Errorf("%d bytes, %d since the pause, wait for %v, want %v", n, sent, d, want)
		}
		if d < last {
			t.Errorf("%v after %v: it overtakes", d, last)
		}
		last = d
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.wait(ctx, 1<<20); err == nil {
		t.Error("a session that has ended goes on waiting")
	}
	if err := newPace(0).wait(ctx, 1<<30); err != nil {
		t.Errorf("without a rate: %v", err)
	}
}
