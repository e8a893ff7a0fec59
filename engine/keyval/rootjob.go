package keyval

import "context"

// rootJob is a root that Run makes.
type rootJob struct {
	done chan struct{}
	root Root // set before done closes
	err  error
}

// RootSoon is Root for who would rather go without than wait long: what it has begun
// goes on when ctx ends, so that asking again finds it further. Kind Unavailable:
// Run has ended.
func (db *DB) RootSoon(ctx context.Context) (Root, error) {
	db.mu.RLock()
	running := db.running
	db.mu.RUnlock()
	if !running {
		return db.Root(ctx)
	}
	for {
		j, mine := db.rootJob()
		select {
		case <-j.done:
		case <-ctx.Done():
			return Root{}, ctx.Err()
		}
		if mine || j.err != nil {
			return j.root, j.err
		}
		// It began before we asked: of a state that may be older. The next one is soon there.
	}
}

// rootJob returns the job under way, or begins one, which is mine.
func (db *DB) rootJob() (j *rootJob, mine bool) {
	db.jobMu.Lock()
	defer db.jobMu.Unlock()
	switch {
	case db.jobsEnded:
		j = &rootJob{done: make(chan struct{}), err: ErrClosed}
		close(j.done)
		return j, true
	case db.job == nil:
		db.job, mine = &rootJob{done: make(chan struct{})}, true
		db.jobs <- db.job // has room: there is one at a time
	}
	return db.job, mine
}

// makeRoots makes the roots that are asked for, until ctx ends.
func (db *DB) makeRoots(ctx context.Context) {
	for {
		select {
		case j := <-db.jobs:
			j.root, j.err = db.Root(ctx)
			db.endJob(j)
		case <-ctx.Done():
			db.jobMu.Lock()
			defer db.jobMu.Unlock()
			db.jobsEnded = true
			if j := db.job; j != nil {
				db.job, j.err = nil, ErrClosed
				close(j.done)
			}
			return
		}
	}
}

func (db *DB) endJob(j *rootJob) {
	db.jobMu.Lock()
	defer db.jobMu.Unlock()
	db.job = nil
	close(j.done)
}
