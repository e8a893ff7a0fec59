package spec

import (
	"os"
	"testing"
)

// TestExample checks that the example that ships loads without a warning.
func TestExample(t *testing.T) {
	app, problems := Check(os.DirFS("../../examples/concertapp"))
	if len(problems) > 0 {
		t.Fatalf("%v", problems)
	}
	if got := app.TenantSchema(""); got != "platform1_concertapp_prod" || app.Version != "v42" {
		t.Errorf("schema %q, version %q", got, app.Version)
	}
}
