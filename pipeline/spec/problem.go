package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Pos is a place in a file. Line and Column count from 1; a Line of 0 is the whole file.
type Pos struct {
	File         string
	Line, Column int
}

func (p Pos) String() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// The names of warnings. Each says that something was read and has no effect, or not
// the one that its writer may have in mind. docs/app.md lists them.
const (
	WarnNotExecuted = "not-executed"     // accepted, and nothing executes it
	WarnColumns     = "columns-are-text" // a projection without fields
	WarnNoEffect    = "no-effect"        // an event that changes nothing, a file nobody includes
	WarnLookup      = "lookup-is-now"    // a lookup reads what is there now, also in a rebuild
	WarnReserved    = "reserved-name"    // a payload field that the envelope hides
	WarnPlaceholder = "placeholder"      // a template that was not filled in
	WarnNoSuchFiles = "no-such-files"    // a pattern that matches nothing
	WarnUndeclared  = "undeclared-field" // a payload field that the event does not declare
	WarnOtherEntity = "other-entity"     // a reaction to events of entities that an intent does not write
)

// Problem is a mistake, or a warning when Warning has its name.
type Problem struct {
	Pos
	Warning string
	Text    string
}

// String is one line, as compilers write them: file:line:column: text.
func (p Problem) String() string {
	if p.Warning != "" {
		return fmt.Sprintf("%s: warning: %s [%s]", p.Pos, p.Text, p.Warning)
	}
	return fmt.Sprintf("%s: %s", p.Pos, p.Text)
}

// Problems is what Check found, in order of file and place.
type Problems []Problem

// Mistakes returns those that are no warnings.
func (ps Problems) Mistakes() Problems {
	return slices.DeleteFunc(slices.Clone(ps), func(p Problem) bool { return p.Warning != "" })
}

// Warnings returns the others.
func (ps Problems) Warnings() Problems {
	return slices.DeleteFunc(slices.Clone(ps), func(p Problem) bool { return p.Warning == "" })
}

// Error makes Problems an error: one line each.
func (ps Problems) Error() string {
	var lines []string
	for _, p := range ps {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

func (ps Problems) sort() {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}
