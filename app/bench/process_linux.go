package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
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

// Memory returns the resident memory of a process of this machine, now and at
// its highest, in bytes; 0 when there is none of that pid.
func Memory(pid int) (now, peak int64) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0
	}
	return kilobytes(status, "VmRSS:"), kilobytes(status, "VmHWM:")
}

// kilobytes reads a line "name: 123 kB" of /proc/PID/status.
func kilobytes(status []byte, name string) int64 {
	for line := range bytes.Lines(status) {
		f := bytes.Fields(line)
		if len(f) == 3 && string(f[0]) == name {
			n, _ := strconv.ParseInt(string(f[1]), 10, 64) // 0 says that it is not known
			return n << 10
		}
	}
	return 0
}
