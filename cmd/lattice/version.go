package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

func newVersion(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version and the commit of this program",
		Args:  exactly(),
		RunE: func(*cobra.Command, []string) error {
			v := thisVersion()
			return a.print(v, func() error {
				_, err := fmt.Fprintf(a.stdout, "lattice %s (commit %s, %s, %s)\n", v.Version, v.Commit, v.Go, v.Platform)
				return err
			})
		},
	}
	a.outputFlag(cmd)
	return cmd
}

// thisVersion says which program this is: what "make build" put in, else what
// the toolchain recorded.
func thisVersion() client.Version {
	v := client.Version{Version: version, Commit: commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok && v.Version == "" {
		v.Version = info.Main.Version
	}
	if ok && v.Commit == "" {
		v.Commit = revision(info.Settings)
	}
	if v.Version == "" {
		v.Version = "(devel)"
	}
	if v.Commit == "" {
		v.Commit = "unknown"
	}
	return v
}

// revision returns the commit, shortened, with "-dirty" when files were changed.
func revision(settings []debug.BuildSetting) string {
	var rev, dirty string
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			rev = cli.Short(s.Value)
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if rev == "" {
		return ""
	}
	return rev + dirty
}
