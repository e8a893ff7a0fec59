package p2p

import (
	"context"
	"time"

	pacing "golang.org/x/time/rate"
)

// pace holds what is replicated to all peers together to a rate: entries, batches and
// snapshots. What clients wait for, which is forwarded to leaders, it does not hold back.
// nil: there is no bound. Safe for concurrent use.
type pace struct{ limit *pacing.Limiter }

// paceBurst is what may go at once after a pause.
const paceBurst = 64 << 10

func newPace(bytesPerSecond int64) *pace {
	if bytesPerSecond <= 0 {
		return nil
	}
	return &pace{pacing.NewLimiter(pacing.Limit(bytesPerSecond), paceBurst)}
}

// delay takes n bytes that are to go, and returns how long from now they must wait.
func (p *pace) delay(now time.Time, n int) (d time.Duration) {
	for n > 0 {
		k := min(n, paceBurst)
		d = p.limit.ReserveN(now, k).DelayFrom(now)
		n -= k
	}
	return d
}

// wait returns when n bytes may go, or with ctx's error.
func (p *pace) wait(ctx context.Context, n int) error {
	if p == nil {
		return nil
	}
	d := p.delay(time.Now(), n)
	if d == 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
