package node

import (
	"context"
	"log/slog"

	"golang.org/x/sys/unix"
)

// spareFiles is what the process needs beside connections and segments: the
// ordered store, logs, sockets, active segments of some hundred partitions.
const spareFiles = 1024

// warnOfFewFiles tells the operator when the system allows less than half of the
// open files that the configured limits could need. (The Go runtime raises the soft limit to the hard
// one at start, so the hard one is what counts.)
func warnOfFewFiles(ctx context.Context, cfg Config, log *slog.Logger) {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return
	}
	need := uint64(cfg.Limits.Connections + cfg.Limits.OpenSegments + spareFiles)
	if lim.Cur < need/2 {
		log.WarnContext(ctx, "the system allows few open files: raise its limit (ulimit -Hn, LimitNOFILE), or lower limits.connections",
			slog.Uint64("allowed", lim.Cur), slog.Uint64("needed_at_most", need))
	}
}
