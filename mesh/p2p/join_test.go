package p2p

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/invite"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// TestJoining goes from a token to two stores that are equal, and again after the
// joiner was killed before it had made the store.
func TestJoining(t *testing.T) {
	sa := found(t, "ann")
	sa.write(100, 100)
	a := start(t, "ann", nil, sa)
	b := start(t, "bob", nil)
	token := sa.invite(a.Mesh, false)
	token, err := invite.Parse(token.Text())
	check(t, err)
	ctx := context.Background()
	first, err := b.Join(ctx, token)
	check(t, err)
	check(t, b.stop())
	b.run(nil)
	genesis, err := b.Join(ctx, token) // the answer was lost
	check(t, err)
	if !bytes.Equal(first, genesis) {
		t.Error("another genesis")
	}
	g, err := sigchain.Parse(genesis)
	check(t, err)
	sb := newMemStore(t, "bob", g)
	check(t, b.Add(sb))
	agree(t, sa, sb)
	sb.write(3, 10)
	agree(t, sa, sb)
	// Restarted, it knows the way.
	check(t, b.stop())
	sa.write(3, 10)
	b.run(nil, sb)
	agree(t, sa, sb)

	c := start(t, "cat", nil)
	if _, err := c.Join(ctx, token); !errors.Is(err, roster.ErrInviteUsed) {
		t.Errorf("used by another: %v", err)
	}
}

// TestByANonFounder has the inviter be somebody whom the genesis does not name: until
// the joiner has the entries that say so, the inviter is trusted because of the token.
func TestByANonFounder(t *testing.T) {
	sa := found(t, "ann", "bob")
	sb := sa.at("bob")
	b := start(t, "bob", nil, sb)
	c := start(t, "cat", nil)
	sc := newMemStore(t, "cat", sa.genesis())
	b.Mesh.book.invite(idOf("cat"), sb.id) // as if bob's fold knew
	c.Mesh.book.invite(idOf("bob"), sb.id)
	c.knows(b)
	check(t, c.Add(sc))
	agree(t, sb, sc)
}

func TestRefusedTokens(t *testing.T) {
	sa := found(t, "ann")
	a := start(t, "ann", nil, sa)
	b := start(t, "bob", nil)
	expired, revoked, unknown := sa.invite(a.Mesh, true), sa.invite(a.Mesh, false), sa.invite(a.Mesh, false)
	sa.mu.Lock()
	sa.invites[revoked.ID()].revoked = true
	delete(sa.invites, unknown.ID())
	sa.mu.Unlock()
	other := unknown
	other.Store = lattice.StoreID{7}
	nowhere := unknown
	nowhere.Addresses = nil
	gone := unknown
	gone.Inviter, gone.Addresses = idOf("nobody"), []string{"/ip4/127.0.0.1/tcp/1"}
	own := unknown
	own.Inviter = idOf("bob")
	odd := unknown
	odd.Addresses = []string{"/ip4/127.0.0.1/tcp/1/ws"}
	for _, c := range []struct {
		what string
		t    invite.Token
		want error
		kind lattice.Kind
	}{
		{"expired", expired, roster.ErrInviteExpired, lattice.Denied},
		{"revoked", revoked, roster.ErrInviteRevoked, lattice.Denied},
		{"unknown", unknown, ErrRefused, lattice.Denied},
		{"another store", other, ErrRefused, lattice.Denied},
		{"no address", nowhere, nil, lattice.Invalid},
		{"nobody there", gone, nil, lattice.Unavailable},
		{"its own", own, nil, lattice.Invalid},
		{"a strange address", odd, nil, lattice.Invalid},
	} {
		_, err := b.Join(context.Background(), c.t)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || lattice.KindOf(err) != c.kind {
			t.Errorf("%s: %v", c.what, err)
		}
		if strings.Contains(err.Error(), strings.TrimPrefix(c.t.Text(), "lattice-invite-")[:60]) {
			t.Errorf("%s: the error tells the secret", c.what)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := b.Join(ctx, unknown); err == nil {
		t.Error("joined although the caller has gone")
	}
}

// TestClaims sends claims that are not the sender's, or not whole.
func TestClaims(t *testing.T) {
	sa := found(t, "ann")
	a := start(t, "ann", nil, sa)
	token := sa.invite(a.Mesh, false)
	eve := raw(t, "eve", a)
	good := joinRequest{sa.id, idOf("ann"), token.Claim(idOf("bob"))} // stolen on its way
	forged := joinRequest{sa.id, idOf("ann"), token.Claim(idOf("eve"))}
	forged.claim.Proof[3] ^= 1
	elsewhere := joinRequest{sa.id, idOf("cat"), token.Claim(idOf("eve"))}
	refused := joinAnswer{status: joinRefused}.encode()
	version := forged.encode()
	version[2] = 9
	for what, b := range map[string][]byte{"of another": good.encode(), "forged": forged.encode(), "for another inviter": elsewhere.encode(), "of another version": version} {
		st := eve.open(protocolJoin)
		_, err := st.Write(b)
		check(t, err)
		if got := silenced(t, st); !bytes.Equal(got, refused) {
			t.Errorf("%s: %q", what, got)
		}
	}
	st := eve.open(protocolJoin)
	_, err := st.Write(good.encode()[:100])
	check(t, err)
	check(t, st.CloseWrite())
	if got := silenced(t, st); len(got) != 0 {
		t.Errorf("half a claim: %q", got)
	}
	if sa.tips() != sa.at("x").tips() || len(sa.members) != 1 {
		t.Error("somebody was admitted")
	}
	if got := a.refused(sa)[reconcile.Forged]; got != 3 { // that of another version says of nothing what it is about
		t.Errorf("%d are counted", got)
	}
}

func TestTooManyClaims(t *testing.T) {
	j := newJoins(3)
	now := time.Now()
	for i := range 3 {
		if !j.begin(now) {
			t.Fatalf("claim %d is not looked at", i)
		}
		j.end()
	}
	if j.begin(now) {
		t.Error("a fourth in no time")
	}
	if now = now.Add(21 * time.Second); !j.begin(now) {
		t.Error("a third of a minute later there is a place")
	}
	j = newJoins(100)
	for range joinsAtOnce {
		j.begin(now)
	}
	if j.begin(now) {
		t.Error("more at once than allowed")
	}
	if j.end(); !j.begin(now) {
		t.Error("one has ended")
	}

	sa := found(t, "ann")
	a := start(t, "ann", func(c *Config) { c.Limits.Joins = 1 }, sa)
	b, c := start(t, "bob", nil), start(t, "cat", nil)
	token := sa.invite(a.Mesh, false)
	_, err := b.Join(context.Background(), token)
	check(t, err)
	if _, err := c.Join(context.Background(), token); !errors.Is(err, ErrBusy) {
		t.Errorf("a second in a minute: %v", err)
	}
}
