package kafka

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	lattice "github.com/lattice-log/lattice"
	"github.com/twmb/franz-go/pkg/kerr"
)

func TestEveryKindHasACode(t *testing.T) {
	for _, k := range lattice.Kinds() {
		e, ok := codeOfKind(k)
		if !ok || e == nil || e.Code == 0 {
			t.Errorf("%v has no Kafka error", k)
		}
		if got := kafkaError(fmt.Errorf("doing: %w", lattice.E(k, errors.New("x")))); got != e {
			t.Errorf("%v wrapped is %v, want %v", k, got, e)
		}
	}
}

func TestNamedErrors(t *testing.T) {
	seen := map[error]bool{}
	for _, k := range named() {
		if seen[k.err] {
			t.Errorf("%v is listed twice", k.err)
		}
		seen[k.err] = true
		if got := kafkaError(fmt.Errorf("doing: %w", k.err)); got != k.kafka {
			t.Errorf("%v is %v, want %v", k.err, got, k.kafka)
		}
	}
	if got := kafkaError(refuse(kerr.InvalidConfig, "no %s", "x")); got != kerr.InvalidConfig {
		t.Errorf("refusal is %v", got)
	}
	if kafkaError(nil) != nil {
		t.Error("nil is an error")
	}
}

func TestReasonFitsAString(t *testing.T) {
	long := reason(errors.New(strings.Repeat("ü", 40_000)))
	if len(long) > 2000 || !utf8.ValidString(long) {
		t.Errorf("%d bytes, valid %v", len(long), utf8.ValidString(long))
	}
}
