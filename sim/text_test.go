package sim

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/lattice-log/lattice/mesh/batches"
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
func describe(about stream, b []byte) string {
	sum := sha256.Sum256(b)
	switch about {
	case aboutBatches:
		return describeBatches(b)
	case aboutAsks, aboutAnswers:
		return fmt.Sprintf("%s (%d bytes, %x)", streamNames[about], len(b), sum[:3])
	}
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

// describeBatches is a message about batches in a line.
func describeBatches(b []byte) string {
	sum := sha256.Sum256(b)
	m, err := batches.Parse(b)
	if err != nil {
		return fmt.Sprintf("%d bytes that are no message about batches", len(b))
	}
	what := ""
	switch m := m.(type) {
	case batches.Spans:
		what = fmt.Sprintf(" %s: %d behind %d", topicName(m.Span.Partition), len(m.Span.Batches), m.Span.From)
	case batches.Offer:
		for _, i := range m.Items {
			what += fmt.Sprintf(" %s: %d", topicName(i.Partition), i.Size)
		}
	case batches.Follows:
		for _, f := range m.All {
			what += fmt.Sprintf(" %s behind %d", topicName(f.Partition), f.From)
		}
	case batches.Ended:
		what = fmt.Sprintf(" %s, begins at %d: %s", topicName(m.Partition), m.First, m.Reason)
	case batches.Refuse:
		what = fmt.Sprintf(" %s: %s", topicName(m.Partition), m.Reason)
	case batches.Bye:
		what = " " + m.Reason.String()
	}
	return fmt.Sprintf("batches: %s%s (%d bytes, %x)", m.Kind(), what, len(b), sum[:3])
}
