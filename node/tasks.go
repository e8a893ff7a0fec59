package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// tasks are functions that run until their common context ends.
type tasks struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	errs []error
	fail chan struct{} // closed at the first error
}

func start(ctx context.Context) *tasks {
	t := &tasks{fail: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(ctx)
	return t
}

// run starts f. That f returns before the context ends is a failure, whatever
// it returns.
func (t *tasks) run(name string, f func(context.Context) error) {
	t.wg.Go(func() {
		err := f(t.ctx)
		if t.ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
			return
		}
		if err == nil {
			err = errors.New("ended by itself")
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if len(t.errs) == 0 {
			close(t.fail)
		}
		t.errs = append(t.errs, fmt.Errorf("%s: %w", name, err))
	})
}

// failed is closed at the first failure.
func (t *tasks) failed() <-chan struct{} { return t.fail }

// stop ends the context, waits for all, and returns what failed.
func (t *tasks) stop() error {
	t.cancel()
	t.wg.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.errs...)
}
