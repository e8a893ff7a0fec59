package roster

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/sigchain"
)

func goldenOps(t testing.TB) map[string]sigchain.Op {
	member, err1 := Member{lattice.AuthorID{0xa1, 31: 0xaf}, Writer}.Op()
	remove, err2 := Remove{lattice.AuthorID{0xa1, 31: 0xaf}, []sigchain.Link{
		{Incarnation: 7, Seq: 41, ID: lattice.Hash{1, 31: 2}}, {Incarnation: 1 << 60, Seq: 1, ID: lattice.Hash{3, 31: 4}},
	}}.Op()
	nothing, err3 := Remove{Author: lattice.AuthorID{0xa1, 31: 0xaf}}.Op()
	invite, err4 := Invite{lattice.Hash{0x1d, 31: 0x1e}, Writer, 1_700_000_000_000}.Op()
	revoke := Revoke{lattice.AuthorID{0xa1, 31: 0xaf}, lattice.Hash{0x1d, 31: 0x1e}}.Op()
	claim := Claim{lattice.Hash{0x1d, 31: 0x1e}, lattice.AuthorID{0xa1, 31: 0xaf}, identity.Signature{0x51, 63: 0x52}}.Op()
	ref := sigchain.Ref{Author: lattice.AuthorID{0xb1, 31: 0xbf}, Link: sigchain.Link{Incarnation: 7, Seq: 41, ID: lattice.Hash{1, 31: 2}}}
	back, err5 := Return{Member{lattice.AuthorID{0xa1, 31: 0xaf}, Reader}, []sigchain.Ref{ref}}.Op()
	adopt, err6 := Adopt{lattice.AuthorID{0xa1, 31: 0xaf}, []sigchain.Ref{ref}, []sigchain.Link{{Incarnation: 9, Seq: 5, ID: lattice.Hash{3, 31: 4}}}}.Op()
	dormant := Presence{lattice.AuthorID{0xa1, 31: 0xaf}, 3, true}.Op()
	rotate, err7 := Rotate{lattice.AuthorID{0xa1, 31: 0xaf}, identity.Signature{0x51, 63: 0x52}, []sigchain.Link{{Incarnation: 9, Seq: 5, ID: lattice.Hash{3, 31: 4}}}}.Op()
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7); err != nil {
		t.Fatal(err)
	}
	return map[string]sigchain.Op{"return": back, "adopt": adopt, "presence": dormant, "rotate": rotate, "member": member, "remove": remove, "remove wholly": nothing, "invite": invite, "revoke": revoke, "claim": claim}
}

const golden = `
return 9
  version         01
  author          a1000000000000000000000000000000000000000000000000000000000000af
  role            01
  removals        00000001
  author          b1000000000000000000000000000000000000000000000000000000000000bf
  incarnation     0000000000000007
  sequence        0000000000000029
  id              0100000000000000000000000000000000000000000000000000000000000002
adopt 10
  version         01
  author          a1000000000000000000000000000000000000000000000000000000000000af
  removals        00000001
  author          b1000000000000000000000000000000000000000000000000000000000000bf
  incarnation     0000000000000007
  sequence        0000000000000029
  id              0100000000000000000000000000000000000000000000000000000000000002
  cuts            00000001
  incarnation     0000000000000009
  sequence        0000000000000005
  id              0300000000000000000000000000000000000000000000000000000000000004
presence 11
  version         01
  author          a1000000000000000000000000000000000000000000000000000000000000af
  turn            00000003
  dormant         01
rotate 12
  version         01
  to              a1000000000000000000000000000000000000000000000000000000000000af
  signature       51000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000052
  cuts            00000001
  incarnation     0000000000000009
  sequence        0000000000000005
  id              0300000000000000000000000000000000000000000000000000000000000004
member 3
  version         01
  author          a1000000000000000000000000000000000000000000000000000000000000af
  role            02
remove 4
  version         01
  author          a1000000000000000000000000000000000000000000000000000000000000af
  cuts            00000002
  incarnation     0000000000000007
  sequence        0000000000000029
  id              0100000000000000000000000000000000000000000000000000000000000002
  incarnation     1000000000000000
  sequence        0000000000000001
  id              0300000000000000000000000000000000000000000000000000000000000004
remove wholly 4
  version         01
  author          a1000000000000000000000000000000000000000000000000000000000000af
  cuts            00000000
invite 6
  version         01
  id              1d0000000000000000000000000000000000000000000000000000000000001e
  role            02
  expires         0000018bcfe56800
revoke 7
  version         01
  inviter         a1000000000000000000000000000000000000000000000000000000000000af
  id              1d0000000000000000000000000000000000000000000000000000000000001e
claim 8
  version         01
  id              1d0000000000000000000000000000000000000000000000000000000000001e
  author          a1000000000000000000000000000000000000000000000000000000000000af
  signature       5100000000000000000000000000000000000000000000000000000000000000
  signature       0000000000000000000000000000000000000000000000000000000000000052
`

// TestGoldenBytes pins operations as they were first signed. If a case changes,
// the design is wrong, not the test.
func TestGoldenBytes(t *testing.T) {
	got := map[string][]byte{}
	kinds := map[string]string{}
	var name string
	for line := range strings.Lines(golden) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case !strings.HasPrefix(line, " "):
			name = strings.Join(fields[:len(fields)-1], " ")
			kinds[name] = fields[len(fields)-1]
		default:
			b, err := hex.DecodeString(fields[len(fields)-1])
			if err != nil {
				t.Fatal(err)
			}
			got[name] = append(got[name], b...)
		}
	}
	ops := goldenOps(t)
	if len(got) != len(ops) {
		t.Errorf("%d are frozen, %d known", len(got), len(ops))
	}
	for name, op := range ops {
		if !bytes.Equal(op.Body, got[name]) || kinds[name] != strconv.Itoa(int(op.Kind)) {
			t.Errorf("%s: now kind %d, %x; frozen kind %s, %x", name, op.Kind, op.Body, kinds[name], got[name])
		}
	}
}

// FuzzOps checks, for any body: no panic; what parses encodes back to the bytes
// it came from; an error is one of those promised.
func FuzzOps(f *testing.F) {
	for _, op := range goldenOps(f) {
		f.Add(op.Kind, op.Body)
	}
	f.Fuzz(func(t *testing.T, kind uint16, body []byte) {
		op := sigchain.Op{Kind: kind, Body: body}
		promised := func(err error) bool { return errors.Is(err, ErrOp) || errors.Is(err, sigchain.ErrVersion) }
		if m, err := ParseMember(op); err == nil {
			if again, err := m.Op(); err != nil || !bytes.Equal(again.Body, body) {
				t.Fatalf("member %x encodes back as %x, %v", body, again.Body, err)
			}
		} else if !promised(err) {
			t.Fatalf("member %x: %v", body, err)
		}
		if r, err := ParseRemove(op); err == nil {
			if again, err := r.Op(); err != nil || !bytes.Equal(again.Body, body) {
				t.Fatalf("remove %x encodes back as %x, %v", body, again.Body, err)
			}
		} else if !promised(err) {
			t.Fatalf("remove %x: %v", body, err)
		}
		if i, err := ParseInvite(op); err == nil {
			if again, err := i.Op(); err != nil || !bytes.Equal(again.Body, body) {
				t.Fatalf("invite %x encodes back as %x, %v", body, again.Body, err)
			}
		} else if !promised(err) {
			t.Fatalf("invite %x: %v", body, err)
		}
		if r, err := ParseRevoke(op); err == nil && !bytes.Equal(r.Op().Body, body) || err != nil && !promised(err) {
			t.Fatalf("revoke %x: %v", body, err)
		}
		if c, err := ParseClaim(op); err == nil && !bytes.Equal(c.Op().Body, body) || err != nil && !promised(err) {
			t.Fatalf("claim %x: %v", body, err)
		}
		for what, err := range map[string]error{
			"return": again(ParseReturn, op), "adopt": again(ParseAdopt, op), "rotate": again(ParseRotate, op),
			"presence": again(func(op sigchain.Op) (total, error) { p, err := ParsePresence(op); return total{p}, err }, op),
		} {
			if err != nil && !promised(err) {
				t.Fatalf("%s %x: %v", what, body, err)
			}
		}
	})
}

// total is a Presence, which always encodes.
type total struct{ Presence }

func (x total) Op() (sigchain.Op, error) { return x.Presence.Op(), nil }

// again says why an operation does not parse, or does not come to the same bytes.
func again[T interface{ Op() (sigchain.Op, error) }](parse func(sigchain.Op) (T, error), op sigchain.Op) error {
	x, err := parse(op)
	if err != nil {
		return err
	}
	back, err := x.Op()
	if err != nil || !bytes.Equal(back.Body, op.Body) {
		return fmt.Errorf("encodes back as %x, %v", back.Body, err)
	}
	return nil
}

func link(inc, seq uint64) sigchain.Link {
	return sigchain.Link{Incarnation: inc, Seq: seq, ID: lattice.Hash{1}}
}

func TestRefused(t *testing.T) {
	for what, err := range map[string]error{
		"an invite to nothing":  second(Invite{Role: Writer}.Op()),
		"an invite for no role": second(Invite{ID: lattice.Hash{1}}.Op()),
		"an invite of long ago": second(Invite{ID: lattice.Hash{1}, Role: Writer, Expires: -1}.Op()),
		"a revoke that ends":    second(ParseRevoke(sigchain.Op{Kind: KindRevoke, Body: []byte{1, 2}})),
		"a claim that ends":     second(ParseClaim(sigchain.Op{Kind: KindClaim, Body: []byte{1, 2}})),
		"no role":               second(Member{Role: None}.Op()),
		"an unknown role":       second(Member{Role: 5}.Op()),
		"a cut at sequence 0":   second(Remove{Cut: []sigchain.Link{link(1, 0)}}.Op()),
		"a cut without id":      second(Remove{Cut: []sigchain.Link{{Incarnation: 1, Seq: 1}}}.Op()),
		"cuts out of order":     second(Remove{Cut: []sigchain.Link{link(2, 1), link(1, 1)}}.Op()),
		"two cuts of one":       second(Remove{Cut: []sigchain.Link{link(2, 1), link(2, 2)}}.Op()),
		"another kind":          second(ParseMember(sigchain.Op{Kind: KindRemove, Body: []byte{1}})),
		"no body":               second(ParseRemove(sigchain.Op{Kind: KindRemove})),
		"a member that ends":    second(ParseMember(sigchain.Op{Kind: KindMember, Body: make([]byte, 1)[:1]})),
		"a remove that ends":    second(ParseRemove(sigchain.Op{Kind: KindRemove, Body: append([]byte{1}, make([]byte, 35)...)})),
		"more cuts than there":  second(ParseRemove(sigchain.Op{Kind: KindRemove, Body: append(append([]byte{1}, make([]byte, 32)...), 0xff, 0xff, 0xff, 0xff)})),
	} {
		if !errors.Is(err, ErrOp) && !errors.Is(err, sigchain.ErrVersion) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := ParseMember(sigchain.Op{Kind: KindMember, Body: make([]byte, 34)}); !errors.Is(err, sigchain.ErrVersion) {
		t.Errorf("version 0: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestRoleNames(t *testing.T) {
	for _, r := range []Role{Reader, Writer, Admin, Owner} {
		if back, err := ParseRole(r.String()); err != nil || back != r {
			t.Errorf("%s: %v, %v", r, back, err)
		}
	}
	for _, s := range []string{"", "none", "king", "role 7"} {
		if _, err := ParseRole(s); lattice.KindOf(err) != lattice.Invalid {
			t.Errorf("%q: %v", s, err)
		}
	}
}
