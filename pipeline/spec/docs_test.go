package spec

import (
	"os"
	"strings"
	"testing"

	"github.com/lattice-log/lattice/pipeline/spec/expr"
)

// TestDocs checks that docs/app.md names everything that a file can say.
func TestDocs(t *testing.T) {
	b, err := os.ReadFile("../../docs/app.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	named := func(what, name string) {
		for _, form := range []string{"`" + name + "`", "`" + name + "(", "." + name + "(", name + "(p,s)`", name + "(n)`"} {
			if strings.Contains(page, form) {
				return
			}
		}
		t.Errorf("docs/app.md does not name the %s %q", what, name)
	}
	for name := range sections() {
		named("section", name)
	}
	for name, o := range opKeys() {
		if name != "foreach" && name != "compute_regen" { // other spellings
			named("operation", name)
		}
		if o.why == "" {
			for _, k := range o.keys {
				if !strings.Contains(page, k) {
					t.Errorf("docs/app.md does not name the key %q of %s", k, name)
				}
			}
		}
	}
	for _, name := range typeNames() {
		named("type", name)
	}
	for name := range columnTypes() {
		if name != "DOUBLE PRECISION" && name != "BOOL" && name != "TIMESTAMPTZ" { // other spellings
			named("column type", name)
		}
	}
	for name := range intervals() {
		named("interval", name)
	}
	for _, name := range expr.Functions() {
		named("function", name)
	}
	for _, name := range []string{
		WarnNotExecuted, WarnColumns, WarnNoEffect, WarnLookup, WarnReserved, WarnPlaceholder, WarnNoSuchFiles, WarnUndeclared, WarnOtherEntity,
	} {
		named("warning", name)
	}
}
