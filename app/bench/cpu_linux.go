package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// ServerCPU returns the user and system time that a process of this machine has
// used, or 0 when there is none of that pid. It is what /proc/PID/stat gives in
// hundredths of a second, in nanoseconds: the process's CPU clock, which Linux
// names by the inverted pid and the clock's kind (clock_getcpuclockid(3)).
func ServerCPU(pid int) time.Duration {
	if pid <= 0 {
		return 0
	}
	const scheduled = 2 // all threads, user and system: CPUCLOCK_SCHED
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
