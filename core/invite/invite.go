// Package invite is the token by which somebody is invited into a store, and how
// its holder proves the secret in it without telling it.
//
// # Token, version 1
//
// A token is text: "lattice-invite-" and, in lower-case base32 (RFC 4648, without
// padding), these bytes, big-endian:
//
//	 0  version    u8 = 1
//	 1  store      32
//	33  inviter    32, the node that redeems it
//	65  secret     32
//	97  addresses  u8 n <= 16, then n x: length u8, not 0; bytes: where the inviter
//	               may be reached, for the transport to understand
//	    sum        first 4 of SHA-256("lattice/invite-token/v1\x00" | all before)
//
// The sum tells a mistyped token from one that is not known. Whoever has the token
// can join, so it is kept like a password, and ends with its first use.
//
// # The secret
//
// Neither the store nor the wire sees it. A key pair is made of it,
//
//	seed = SHA-256("lattice/invite-key/v1\x00" | store | inviter | secret)
//
// and the store keeps the public key as the invitation's id (core/roster): no one
// finds the secret by it, and everyone can check a claim. A claim is the signature of
// store, inviter and the holder's own id, so nobody who sees one can use it for
// another node.
//
// # Rules for changing it
//
// A token that was printed stays readable. If a case in TestGolden changes, the
// design is wrong, not the test. A new field is a new version.
package invite

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
)

const (
	prefix       = "lattice-invite-"
	version      = 1
	fixedSize    = 1 + 32 + 32 + 32 + 1
	sumSize      = 4
	maxAddresses = 16
	maxAddress   = 255
	maxText      = len(prefix) + (fixedSize+maxAddresses*(1+maxAddress)+sumSize+4)*8/5

	sumDomain = "lattice/invite-token/v1\x00"
	keyDomain = "lattice/invite-key/v1\x00"
)

var (
	// ErrToken means that text is no token: mistyped, cut, or something else. Kind Invalid.
	ErrToken = lattice.E(lattice.Invalid, errors.New("not an invitation token; copy it whole, it begins with "+prefix))
	// ErrVersion means a token of a later version. Kind Unsupported.
	ErrVersion = lattice.E(lattice.Unsupported, errors.New("an invitation token of an unknown version: a newer program reads it"))
)

var encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Token is what an inviter hands to whom it invites.
type Token struct {
	Store     lattice.StoreID
	Inviter   lattice.NodeID
	Addresses []string // of the inviter
	secret    [32]byte
}

// New makes a token with a secret from random.
func New(random io.Reader, store lattice.StoreID, inviter lattice.NodeID, addresses ...string) (Token, error) {
	t := Token{Store: store, Inviter: inviter, Addresses: addresses}
	if len(addresses) > maxAddresses {
		return Token{}, lattice.E(lattice.TooLarge, fmt.Errorf("invitation with %d addresses: at most %d", len(addresses), maxAddresses))
	}
	for _, a := range addresses {
		if a == "" || len(a) > maxAddress {
			return Token{}, lattice.E(lattice.Invalid, fmt.Errorf("invitation with address %q: want 1 to %d bytes", a, maxAddress))
		}
	}
	if _, err := io.ReadFull(random, t.secret[:]); err != nil {
		return Token{}, fmt.Errorf("make the secret of an invitation: %w", err)
	}
	return t, nil
}

// String names the invitation without its secret, so that a log may show it.
func (t Token) String() string {
	return fmt.Sprintf("invitation %s of %s to store %s", t.ID().Short(), t.Inviter.Short(), t.Store.Short())
}

// Format keeps the secret out of every verb.
func (t Token) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.String()) }

// Text returns the token as it is handed over. It holds the secret.
func (t Token) Text() string {
	b := append([]byte{version}, t.Store[:]...)
	b = append(append(b, t.Inviter[:]...), t.secret[:]...)
	b = append(b, byte(len(t.Addresses)))
	for _, a := range t.Addresses {
		b = append(append(b, byte(len(a))), a...)
	}
	sum := sumOf(b)
	return prefix + encoding.EncodeToString(append(b, sum[:]...))
}

func sumOf(b []byte) [sumSize]byte {
	sum := sha256.Sum256(append([]byte(sumDomain), b...))
	return [sumSize]byte(sum[:])
}

// Parse reads a token. White space around it, and capital letters, do not matter.
// Wraps ErrToken or ErrVersion; no error shows the token.
func Parse(text string) (Token, error) {
	text = strings.ToLower(strings.TrimSpace(text))
	rest, ok := strings.CutPrefix(text, prefix)
	if !ok || len(text) > maxText {
		return Token{}, ErrToken
	}
	b, err := encoding.DecodeString(rest)
	if err != nil || len(b) < 1+sumSize {
		return Token{}, ErrToken
	}
	body, sum := b[:len(b)-sumSize], b[len(b)-sumSize:]
	want := sumOf(body)
	switch {
	case !bytes.Equal(sum, want[:]):
		return Token{}, fmt.Errorf("%w: its sum does not match", ErrToken)
	case body[0] != version:
		return Token{}, fmt.Errorf("%w: %d", ErrVersion, body[0])
	case len(body) < fixedSize:
		return Token{}, ErrToken
	}
	t := Token{Store: lattice.StoreID(body[1:33]), Inviter: lattice.NodeID(body[33:65]), secret: [32]byte(body[65:97])}
	n, left := int(body[97]), body[fixedSize:]
	for range n {
		if len(left) == 0 || left[0] == 0 || int(left[0]) > len(left)-1 {
			return Token{}, ErrToken
		}
		t.Addresses, left = append(t.Addresses, string(left[1:1+left[0]])), left[1+left[0]:]
	}
	if n > maxAddresses || len(left) != 0 || t.Text() != text {
		return Token{}, ErrToken
	}
	return t, nil
}

// key is the key pair that belongs to the secret.
func (t Token) key() identity.Key {
	b := append([]byte(keyDomain), t.Store[:]...)
	b = append(append(b, t.Inviter[:]...), t.secret[:]...)
	return identity.FromSeed(sha256.Sum256(b))
}

// ID names the invitation in the store.
func (t Token) ID() lattice.Hash { return lattice.Hash(t.key().Author()) }

// Invite is the operation by which the inviter makes the token good, until expires:
// ms since 1970.
func (t Token) Invite(role roster.Role, expires int64) roster.Invite {
	return roster.Invite{ID: t.ID(), Role: role, Expires: expires}
}

// Claim is what the token's holder sends to the inviter, to become a member as self.
// It proves the secret and does not tell it.
func (t Token) Claim(self lattice.NodeID) roster.Claim {
	return roster.Claim{ID: t.ID(), Author: self, Proof: t.key().Sign(identity.DomainInvite, roster.ClaimMessage(t.Store, t.Inviter, self))}
}

// Redeem is what the inviter's node does with a claim that it received: it returns
// the operations of the one entry that notes the claim and admits the holder. The
// error says why not: roster.ErrClaim, ErrInviteUnknown, ErrInviteUsed, ErrInviteRevoked,
// ErrInviteExpired, ErrInviter. The caller must
//
//  1. call Redeem and write the entry under one lock, so that no second claim is
//     redeemed in between, and
//  2. answer the holder when the entry is durable. If that answer is lost, the holder
//     asks again; a claim by whom the invitation admitted already is Admitted.
func Redeem(r *roster.Roster, store lattice.StoreID, self lattice.NodeID, c roster.Claim, nowMs int64) ([]sigchain.Op, error) {
	if err := c.Verify(store, self); err != nil {
		return nil, err
	}
	i, err := r.Invitation(self, c.ID)
	if err != nil {
		return nil, err
	}
	if err := i.Check(self, nowMs); err != nil {
		return nil, err
	}
	admit, err := roster.Member{Author: c.Author, Role: i.Role}.Op()
	if err != nil {
		return nil, err
	}
	return []sigchain.Op{c.Op(), admit}, nil
}

// Admitted returns the entry that admitted the holder of a claim, if the invitation
// was redeemed by it before.
func Admitted(r *roster.Roster, store lattice.StoreID, self lattice.NodeID, c roster.Claim) (sigchain.Ref, bool) {
	i, err := r.Invitation(self, c.ID)
	if err != nil || c.Verify(store, self) != nil || i.Claimed != c.Author {
		return sigchain.Ref{}, false
	}
	return i.ClaimedAt, true
}
