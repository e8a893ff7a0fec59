package ledger

import "time"

// AwaitWaiting waits until n proposals wait for the ledger.
func AwaitWaiting(l *Ledger, n int) {
	for {
		l.mu.Lock()
		have := len(l.waiting)
		l.mu.Unlock()
		if have >= n {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
