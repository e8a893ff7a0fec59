package clients

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// onlyKcat: what people do with kcat, on a terminal.
func (b *bench) onlyKcat(t *testing.T) {
	t.Run("write to a topic that is not there", func(t *testing.T) {
		var lines strings.Builder
		for i := range 1000 {
			fmt.Fprintln(&lines, i)
		}
		_, errs := command(t, []byte(lines.String()), "kcat", "-b", b.at, "-P", "-t", "numbers")
		if len(errs) > 0 {
			t.Errorf("kcat says: %s", errs)
		}
		out, _ := command(t, nil, "kcat", "-b", b.at, "-C", "-t", "numbers", "-o", "beginning", "-e", "-q")
		if n := bytes.Count(out, []byte("\n")); n != 1000 {
			t.Errorf("read %d lines of 1000", n)
		}
	})
	t.Run("list", func(t *testing.T) {
		makeTopic(t, b.at, "listed", 7)
		out, _ := command(t, nil, "kcat", "-b", b.at, "-L", "-t", "listed")
		for _, want := range []string{"1 brokers:", `topic "listed" with 7 partitions`, b.at} {
			if !bytes.Contains(out, []byte(want)) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
	})
	t.Run("the last ones", func(t *testing.T) {
		makeTopic(t, b.at, "tailed", 1)
		command(t, []byte("a\nb\nc\nd\n"), "kcat", "-b", b.at, "-P", "-t", "tailed")
		out, _ := command(t, nil, "kcat", "-b", b.at, "-C", "-t", "tailed", "-o", "-2", "-e", "-q")
		if got, want := string(out), "c\nd\n"; got != want {
			t.Errorf("read %q, want %q", got, want)
		}
	})
}
