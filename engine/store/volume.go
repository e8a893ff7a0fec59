package store

import "math"

// Volume is where a store's files are, and how much room there is.
type Volume struct {
	Dir         string // of the store, as it was configured
	Total, Free int64  // bytes of the file system, -1 where it does not say; Free is what this process may still use
}

// Volume looks at the file system that holds the store.
func (s *Store) Volume() Volume {
	v := Volume{Dir: s.cfg.Dir, Total: -1, Free: -1}
	if u, err := s.cfg.FS.GetDiskUsage(v.Dir); err == nil {
		v.Total, v.Free = int64(min(u.TotalBytes, math.MaxInt64)), int64(min(u.AvailBytes, math.MaxInt64))
	}
	return v
}
