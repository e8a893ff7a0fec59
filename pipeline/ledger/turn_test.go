package ledger

import "testing"

// Who leaves when its turn to lead has just come hands it on.
func TestLeaverHandsOn(t *testing.T) {
	l := &Ledger{leading: true}
	for range 3 {
		l.waiting = append(l.waiting, &waiter{lead: make(chan struct{}), done: make(chan struct{})})
	}
	first, second, third := l.waiting[0], l.waiting[1], l.waiting[2]
	close(first.lead)
	if !l.withdraw(third) || !l.withdraw(first) || l.withdraw(first) {
		t.Error("who waits is not found, or is found twice")
	}
	select {
	case <-second.lead:
	default:
		t.Error("nobody's turn came")
	}
	if !l.withdraw(second) || l.leading {
		t.Error("an empty queue has a leader")
	}
}
