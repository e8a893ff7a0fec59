package invite

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
)

func token(t testing.TB, addresses ...string) Token {
	t.Helper()
	k, err := New(bytes.NewReader(bytes.Repeat([]byte{0x5e}, 32)), lattice.StoreID(bytes.Repeat([]byte{0x50}, 32)), lattice.NodeID(bytes.Repeat([]byte{0xa0}, 32)), addresses...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

const (
	goldenText = "afifaucqkbifaucqkbifaucqkbifaucqkbifaucqkbifaucqkbifbifaucqkbifaucqkbifaucqkbifaucqkbifaucqkbifaucqkbifalzpf4xs6lzpf4xs6lzpf4xs6lzpf4xs6lzpf4xs6lzpf4xs6lzpaefzpnfydilzrhezc4mbogixdol3umnyc6nbqgayr6l3enzzs6yjomv4gc3lqnrss65leoaxtimbqgexxc5ljmmwxmmiiicpky"
	goldenKey  = "e058c3a29e397f482fb94825da44a01cb1406cee230f2882acfd75393583ecde"
)

// TestGolden pins a token as it was first printed, and its invitation's id.
func TestGolden(t *testing.T) {
	k := token(t, "/ip4/192.0.2.7/tcp/4001", "/dns/a.example/udp/4001/quic-v1")
	want := "lattice-invite-" + goldenText
	if k.Text() != want {
		t.Errorf("text %s, want %s", k.Text(), want)
	}
	if k.ID().String() != goldenKey {
		t.Errorf("id %s, want %s", k.ID(), goldenKey)
	}
	again, err := Parse(" " + strings.ToUpper(want) + "\n")
	if err != nil || again.Text() != want || len(again.Addresses) != 2 {
		t.Errorf("read again: %v, %v", again, err)
	}
}

// TestMistyped changes every letter of a token, leaves each out, and swaps it with
// the next: none is taken for a token.
func TestMistyped(t *testing.T) {
	text := token(t, "/ip4/192.0.2.7/tcp/4001").Text()
	try := func(bad string) {
		t.Helper()
		if bad == text {
			return
		}
		if k, err := Parse(bad); err == nil {
			t.Errorf("%s is taken for %v", bad, k)
		} else if lattice.KindOf(err) != lattice.Invalid || strings.Contains(err.Error(), text[40:60]) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for i := range text {
		for _, c := range "a7z1 " {
			try(text[:i] + string(c) + text[i+1:])
		}
		try(text[:i] + text[i+1:])
		try(text[:i] + text[i:i+1] + text[i:])
		if i > 0 {
			try(text[:i-1] + text[i:i+1] + text[i-1:i] + text[i+1:])
		}
	}
	try("")
	try("lattice-invite-")
	try(text + text)
	try(strings.Repeat("a", 1<<20))
}

// TestSecretIsNotShown checks that no verb prints what would let others join.
func TestSecretIsNotShown(t *testing.T) {
	k := token(t)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		if got := fmt.Sprintf(verb, k); strings.Contains(got, "5e5e") || strings.Contains(got, "0x5e") || strings.Contains(got, "94") && strings.Contains(got, "94 94") {
			t.Errorf("%s prints %s", verb, got)
		}
	}
}

// FuzzParse checks, for any text: no panic, and what parses prints back to itself.
func FuzzParse(f *testing.F) {
	f.Add(token(f).Text())
	f.Add(token(f, "a", "b").Text())
	f.Fuzz(func(t *testing.T, text string) {
		k, err := Parse(text)
		if err == nil && k.Text() != strings.ToLower(strings.TrimSpace(text)) {
			t.Fatalf("%q parses, and prints as %q", text, k.Text())
		}
	})
}

// all says that everything counts.
type all struct{}

func (all) Valid(sigchain.Place) bool                { return true }
func (all) Sound(sigchain.Place) bool                { return true }
func (all) Named(sigchain.Place) []sigchain.Ref      { return nil }
func (all) Final(sigchain.Place) (roster.Role, bool) { return roster.None, false }

// TestRedeem is the life of an invitation, and each reason for which it is refused.
func TestRedeem(t *testing.T) {
	inviter, joiner, other := identity.FromSeed([32]byte{1}).Author(), identity.FromSeed([32]byte{2}).Author(), identity.FromSeed([32]byte{3}).Author()
	store := lattice.StoreID{7}
	k, err := New(bytes.NewReader(make([]byte, 32)), store, inviter)
	if err != nil {
		t.Fatal(err)
	}
	at := func(seq uint64) sigchain.Ref {
		return sigchain.Ref{Author: inviter, Link: sigchain.Link{Incarnation: 1, Seq: seq, ID: lattice.Hash{byte(seq)}}}
	}
	r := roster.New(inviter, all{})
	refused := func(c roster.Claim, self lattice.NodeID, nowMs int64, want error) {
		t.Helper()
		if ops, err := Redeem(r, store, self, c, nowMs); !errors.Is(err, want) {
			t.Errorf("%d operations, %v, want %v", len(ops), err, want)
		}
	}
	claim := k.Claim(joiner)
	refused(claim, inviter, 50, roster.ErrInviteUnknown)
	r.Add(roster.Entry{At: at(2), Needs: roster.Admin, Invites: []roster.Invite{k.Invite(roster.Writer, 100)}})
	refused(claim, inviter, 101, roster.ErrInviteExpired)
	refused(claim, other, 50, roster.ErrClaim) // another node cannot redeem it
	stolen := claim
	stolen.Author = other
	refused(stolen, inviter, 50, roster.ErrClaim) // nor somebody who only saw the claim use it
	wrong, _ := New(bytes.NewReader(bytes.Repeat([]byte{1}, 32)), store, inviter)
	refused(wrong.Claim(joiner), inviter, 50, roster.ErrInviteUnknown)
	if _, ok := Admitted(r, store, inviter, claim); ok {
		t.Error("admitted before it was")
	}

	ops, err := Redeem(r, store, inviter, claim, 100)
	if err != nil || len(ops) != 2 {
		t.Fatal(ops, err)
	}
	m, err := roster.ParseMember(ops[1])
	if err != nil || m != (roster.Member{Author: joiner, Role: roster.Writer}) {
		t.Fatal(m, err)
	}
	r.Add(roster.Entry{At: at(3), Needs: roster.Admin, Members: []roster.Member{m}, Claims: []roster.Claim{claim}})
	refused(claim, inviter, 50, roster.ErrInviteUsed)
	refused(k.Claim(other), inviter, 50, roster.ErrInviteUsed)
	if got, ok := Admitted(r, store, inviter, claim); !ok || got != at(3) {
		t.Error("who was admitted is not told so again:", got, ok)
	}
	if _, ok := Admitted(r, store, inviter, k.Claim(other)); ok {
		t.Error("another is told that it was admitted")
	}

	k2, _ := New(bytes.NewReader(bytes.Repeat([]byte{2}, 32)), store, inviter)
	r.Add(roster.Entry{At: at(4), Needs: roster.Admin, Invites: []roster.Invite{k2.Invite(roster.Reader, 100)}})
	r.Add(roster.Entry{At: at(5), Needs: roster.Admin, Revokes: []roster.Revoke{{Inviter: inviter, ID: k2.ID()}}})
	refused(k2.Claim(joiner), inviter, 50, roster.ErrInviteRevoked)
	if got := r.Invitations(); len(got) != 2 {
		t.Errorf("%d invitations", len(got))
	}
}
