//go:build !linux

package bench

import "time"

// ServerCPU returns 0: what a process has used is not known here.
func ServerCPU(int) time.Duration { return 0 }
