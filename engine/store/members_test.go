package store

import (
	"errors"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/invite"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/internal/tick"
)

func (m *member) invite(role roster.Role, good time.Duration) invite.Token {
	m.t.Helper()
	token, _, err := m.Invite(m.t.Context(), role, good, "/ip4/127.0.0.1/tcp/1")
	m.must(err)
	return token
}

// TestInvitations: an invitation admits one node, as what it says, until it expires,
// is revoked or was used; each refusal has its reason.
func TestInvitations(t *testing.T) {
	clock := tick.NewManual(time.UnixMilli(1_767_225_600_000))
	a := founder(t, "ann", clock)
	bob, eve := keyOf("bob").Author(), keyOf("eve").Author()
	token := a.invite(roster.Reader, time.Hour)
	for range 2 { // the answer may have been lost
		a.must(a.Redeem(t.Context(), token.Claim(bob)))
		a.restart()
	}
	forged := token.Claim(bob)
	forged.Author = eve
	revoked, expired := a.invite(roster.Writer, time.Hour), a.invite(roster.Writer, time.Minute)
	a.must(a.Revoke(t.Context(), a.Info().Node, revoked.ID()))
	a.must(a.Revoke(t.Context(), a.Info().Node, revoked.ID()))
	clock.Advance(2 * time.Minute)
	foreign, err := invite.New(a.cfg.Rand, a.info.ID, a.info.Node)
	a.must(err)
	for what, c := range map[string]struct {
		claim roster.Claim
		want  error
	}{
		"used":    {token.Claim(eve), roster.ErrInviteUsed},
		"forged":  {forged, roster.ErrClaim},
		"revoked": {revoked.Claim(eve), roster.ErrInviteRevoked},
		"expired": {expired.Claim(eve), roster.ErrInviteExpired},
		"unknown": {foreign.Claim(eve), roster.ErrInviteUnknown},
	} {
		if err := a.Redeem(t.Context(), c.claim); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := a.Revoke(t.Context(), a.Info().Node, token.ID()); !errors.Is(err, roster.ErrInviteUsed) {
		t.Errorf("one that was used is revoked: %v", err)
	}
	states := map[string]int{}
	for _, i := range a.Invitations() {
		states[i.State(clock.Now())]++
	}
	if states["used"] != 1 || states["revoked"] != 1 || states["expired"] != 1 {
		t.Errorf("%v", states)
	}
	all := a.Members()
	if len(all) != 2 || !all[0].Self || all[0].Role != roster.Owner || all[1].Node != bob || all[1].Role != roster.Reader || all[1].By != a.Info().Node {
		t.Errorf("%+v", all)
	}
	for _, good := range []time.Duration{0, -1, 10 * MaxInvitation} {
		if _, _, err := a.Invite(t.Context(), roster.Writer, good); lattice.KindOf(err) != lattice.Invalid {
			t.Errorf("good for %s: %v", good, err)
		}
	}
}

// TestRemove: what of a removed member was here counts on, on every node; what comes
// later does not, and is counted. Its topics go on being known.
func TestRemove(t *testing.T) {
	clock := tick.NewManual(time.UnixMilli(1_767_225_600_000))
	a := founder(t, "ann", clock)
	b := a.joiner("bob", roster.Writer)
	c := a.joiner("carl", roster.Reader)
	b.receive(rng(1), a)
	kept := b.topic("kept", 1, nil)
	a.receive(rng(2), b)
	lost := b.topic("lost", 1, nil)
	if _, err := produce(b.part(lost, 0), batchOf(clock.Now().UnixMilli(), "x")); err != nil {
		t.Fatal(err)
	}

	if _, _, err := b.Invite(t.Context(), roster.Writer, time.Hour, "x"); !errors.Is(err, ErrRole) {
		t.Fatalf("a writer invites: %v", err)
	}
	if _, err := b.Remove(t.Context(), c.Info().Node); !errors.Is(err, ErrRole) {
		t.Fatalf("a writer removes: %v", err)
	}
	if _, err := a.Remove(t.Context(), keyOf("eve").Author()); !errors.Is(err, ErrNoMember) {
		t.Fatalf("a stranger is removed: %v", err)
	}
	if _, err := a.Remove(t.Context(), a.Info().Node); !errors.Is(err, ErrRole) {
		t.Fatalf("the founder is removed: %v", err)
	}
	got, err := a.Remove(t.Context(), b.Info().Node)
	if err != nil || got.Was != roster.Writer || got.Entries == 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := a.Remove(t.Context(), b.Info().Node); lattice.KindOf(err) != lattice.Conflict {
		t.Fatalf("removed twice: %v", err)
	}
	a.receive(rng(3), b)
	b.receive(rng(4), a)
	c.receive(rng(5), a, b)
	for _, m := range []*member{a, b, c} {
		if _, ok := m.Topic("lost"); ok {
			t.Errorf("%s has what does not count", m.Info().Node.Short())
		}
		m.find("kept")
		for _, x := range m.Members() {
			if x.Node == b.Info().Node && (x.Role != roster.None || x.RemovedBy != a.Info().Node || x.Unseen == 0) {
				t.Errorf("%+v", x)
			}
		}
	}
	b.part(kept, 0)
	if _, err := b.mem.Stat(b.partitionDir(lost.ID, 0)); err != nil {
		t.Errorf("the records of what does not count: %v", err)
	}
	_, err = b.CreateTopic(t.Context(), NewTopic{Name: "after"})
	if lattice.KindOf(err) != lattice.Denied {
		t.Errorf("bob writes after it was removed: %v", err)
	}
	if err := c.commit("g", kept.ID, 0, 1); lattice.KindOf(err) != lattice.Denied {
		t.Errorf("a reader commits: %v", err)
	}
}
