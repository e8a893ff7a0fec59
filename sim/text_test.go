package sim

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/lattice-log/lattice/mesh/reconcile"
)

// short is an error in a line, or "done".
func short(err error) string {
	if err == nil {
		return "done"
	}
	s := strings.ReplaceAll(err.Error(), "\n", "; ")
	if len(s) > 160 {
		s = s[:160] + "..."
	}
	return s
}

// describe is a message in a line: what it is, and enough of its bytes to tell it from
// every other.
func describe(b []byte) string {
	sum := sha256.Sum256(b)
	m, err := reconcile.Parse(b)
	if err != nil {
		return fmt.Sprintf("%d bytes that are no message", len(b))
	}
	what := ""
	switch m := m.(type) {
	case reconcile.Blocks:
		what = fmt.Sprintf(" %s/%d: %d behind %d", m.Log.Author.Short(), m.Log.Incarnation&0xffff, len(m.Entries), m.After)
	case reconcile.Want:
		for _, s := range m.Spans {
			what += fmt.Sprintf(" %s behind %d", s.Log.Author.Short(), s.After)
		}
	case reconcile.Offer:
		what = fmt.Sprintf(" %d", len(m.Items))
	case reconcile.Bye:
		what = " " + m.Reason.String()
	case reconcile.Refuse:
		what = fmt.Sprintf(" %s behind %d: %s", m.Log.Author.Short(), m.After, m.Reason)
	}
	return fmt.Sprintf("%s%s (%d bytes, %x)", m.Kind(), what, len(b), sum[:3])
}
