package fold

import (
	"bytes"
	"errors"
	"testing"

	"github.com/lattice-log/lattice/core/invite"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
)

// TestInvitation: in whatever order entries come, and after a restart, an invitation
// stands as its inviter's chain says; a claim without the token's signature, or
// without the admission, is void, and so is what somebody without the right says.
func TestInvitation(t *testing.T) {
	sc := newScene(t)
	token := func(by string, b byte) invite.Token {
		k, err := invite.New(bytes.NewReader(bytes.Repeat([]byte{b}, 32)), sc.genesis.Home(), id(by))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	op := func(x interface {
		Op() (sigchain.Op, error)
	}) sigchain.Op {
		o, err := x.Op()
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	const expires = startMs + 5000
	k1, k2, k3 := token("olga", 1), token("olga", 2), token("ann", 3)
	invites := after(t, "olga", sc.grants, nil, op(k1.Invite(roster.Writer, expires)), op(k2.Invite(roster.Reader, expires)))
	claimed := after(t, "olga", invites, nil, k1.Claim(id("dora")).Op(), grant(t, "dora", roster.Writer))
	joined := first(t, "dora", sc.genesis.Home(), 1, sigchain.Link{}, []sigchain.Signed{claimed}, set(t, "dora", 1, "k", "dora"))
	forged := after(t, "olga", claimed, nil, roster.Claim{ID: k2.ID(), Author: id("zoe")}.Op(), grant(t, "zoe", roster.Reader))
	alone := after(t, "olga", forged, nil, k2.Claim(id("zoe")).Op())
	revoked := after(t, "olga", alone, nil, roster.Revoke{Inviter: id("olga"), ID: k2.ID()}.Op())
	noRight := after(t, "ann", sc.ann, nil, op(k3.Invite(roster.Reader, expires)))
	all := []sigchain.Signed{invites, claimed, joined, forged, alone, revoked, noRight}
	check := func(r *replica) {
		t.Helper()
		r.wantEffect(invites, claimed, joined, revoked)
		r.wantVoid(forged, roster.ErrClaim)
		r.wantVoid(alone, roster.ErrOp)
		r.wantVoid(noRight, ErrRights)
		i, err := r.m.Roster().Invitation(id("olga"), k1.ID())
		if err != nil || i.Claimed != id("dora") || i.ClaimedAt != claimed.Ref() || i.At != invites.Ref() || i.Role != roster.Writer {
			t.Fatalf("%+v, %v", i, err)
		}
		if err := i.Check(id("olga"), startMs); !errors.Is(err, roster.ErrInviteUsed) {
			t.Fatal(err)
		}
		if i, err := r.m.Roster().Invitation(id("olga"), k2.ID()); err != nil || !i.Revoked || i.Claimed != (roster.Claim{}).Author {
			t.Fatalf("%+v, %v", i, err)
		}
		if _, err := r.m.Roster().Invitation(id("ann"), k3.ID()); !errors.Is(err, roster.ErrInviteUnknown) {
			t.Fatal(err)
		}
		if got := len(r.m.Roster().Invitations()); got != 2 {
			t.Fatalf("%d invitations", got)
		}
		r.checkRecords()
	}
	for _, order := range [][]int{{0, 1, 2, 3, 4, 5, 6}, {6, 5, 4, 3, 2, 1, 0}, {2, 6, 4, 0, 5, 1, 3}} {
		r := sc.replica(t)
		for _, i := range order {
			r.offer(all[i])
		}
		check(r)
		r.restart()
		check(r)
	}
}
