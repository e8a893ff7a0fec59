package event

import (
	"bytes"
	"testing"
)

// FuzzParse checks, for any input and each of the messages: no panic; what reads
// encodes, and reads back to the same bytes; what the input says beside the known
// members changes nothing.
func FuzzParse(f *testing.F) {
	e := followed()
	p := e.Projection()
	for _, seed := range [][]byte{must(p.Encode()), must(e.Encode()), must(DeadLetter{Raw: []byte("x")}.Encode()),
		must(Patch{Projection: "p", TenantSchema: "t", ForkID: "f", Reset: true}.Encode()),
		[]byte(`{"projection":"p","tenantSchema":"t","forkId":"f","stream":"s","entityId":"e","eventType":"E","key":{"k":1},"operations":[{"op":"remove","path":"/a"}],"prevCursor":6,"cursor":7,"epoch":1,"ts":0}`)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := ParseProjection(b); err == nil {
			again(t, must(p.Encode()), func(b []byte) ([]byte, error) {
				p, err := ParseProjection(b)
				return must(p.Encode()), err
			})
		}
		if e, err := Parse(b); err == nil {
			again(t, must(e.Encode()), func(b []byte) ([]byte, error) {
				e, err := Parse(b)
				return must(e.Encode()), err
			})
		}
		if d, err := ParseDeadLetter(b); err == nil {
			again(t, must(d.Encode()), func(b []byte) ([]byte, error) {
				d, err := ParseDeadLetter(b)
				return must(d.Encode()), err
			})
		}
		if p, err := ParsePatch(b); err == nil {
			again(t, must(p.Encode()), func(b []byte) ([]byte, error) {
				p, err := ParsePatch(b)
				return must(p.Encode()), err
			})
		}
	})
}

// FuzzDiff checks that the difference of any two documents, done to the first,
// gives the second.
func FuzzDiff(f *testing.F) {
	f.Add([]byte(`{"a":{"b":1}}`), []byte(`{"a":{"b":2,"c/d":[]}}`))
	f.Fuzz(func(t *testing.T, x, y []byte) {
		if CheckPayload(x) != nil || CheckPayload(y) != nil {
			return
		}
		ops, err := Diff(x, y)
		if err != nil {
			return // nested too deep
		}
		got, err := Apply(x, ops)
		if err != nil {
			t.Fatalf("%s to %s: %v", x, y, err)
		}
		if left, err := Diff(got, y); err != nil || len(left) != 0 {
			t.Fatalf("%s to %s gives %s: %+v is left (%v)", x, y, got, left, err)
		}
	})
}

func again(t *testing.T, first []byte, read func([]byte) ([]byte, error)) {
	t.Helper()
	second, err := read(first)
	if err != nil || !bytes.Equal(first, second) {
		t.Fatalf("encodes to\n%s\nwhich reads back as\n%s (%v)", first, second, err)
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}
