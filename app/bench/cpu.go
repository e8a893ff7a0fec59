package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// ticksPerSecond is USER_HZ, which Linux fixes at 100 for everything in /proc.
const ticksPerSecond = 100

// serverCPU returns the user and system time that a process has used, or 0 when
// that cannot be known: no pid, no /proc, or a process of another machine.
func serverCPU(pid int) time.Duration {
	if pid <= 0 {
		return 0
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	d, _ := parseStat(stat)
	return d
}

// parseStat reads fields 14 and 15 (utime, stime) of /proc/PID/stat. The second
// field is the program's name in parentheses and may contain anything.
func parseStat(stat []byte) (time.Duration, bool) {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, false
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) < 13 {
		return 0, false
	}
	user, err1 := strconv.ParseInt(string(fields[11]), 10, 64)
	system, err2 := strconv.ParseInt(string(fields[12]), 10, 64)
	return time.Duration(user+system) * time.Second / ticksPerSecond, err1 == nil && err2 == nil
}
