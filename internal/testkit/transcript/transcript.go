// Package transcript runs scripts that read as transcripts: commands, each followed
// by ---- and what it must print, up to an empty line. Lines that begin with # are
// for the reader.
package transcript

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Run runs each testdata/*.txt as a subtest. begin starts one script, and returns
// what a command prints, each line ended. With rewrite the files are written as
// they come out; who asked for that reads the diff.
func Run(t *testing.T, rewrite bool, begin func(t *testing.T) func(command string) string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { play(t, file, rewrite, begin(t)) })
	}
}

func play(t *testing.T, file string, rewrite bool, run func(command string) string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	for i := 0; i < len(lines); {
		line := lines[i]
		i++
		if line == "" || strings.HasPrefix(line, "#") {
			fmt.Fprintln(&out, line)
			continue
		}
		want := ""
		if i < len(lines) && lines[i] == "----" {
			for i++; i < len(lines) && lines[i] != ""; i++ {
				want += lines[i] + "\n"
			}
		}
		got := run(line)
		fmt.Fprintf(&out, "%s\n----\n%s", line, got)
		if got != want && !rewrite {
			t.Errorf("%s: %s\ngot:\n%swant:\n%s", file, line, got, want)
		}
	}
	if rewrite {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
