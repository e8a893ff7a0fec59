//go:build !linux

package bench

import "time"

// ServerCPU returns 0: what a process has used is not known here.
func ServerCPU(int) time.Duration { return 0 }

// Memory returns nothing: what a process holds is not known here.
func Memory(int) (now, peak int64) { return 0, 0 }
