package p2p

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/invite"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

const (
	protocolReconcile = "/lattice/reconcile/1"
	protocolJoin      = "/lattice/join/1"
	protocolSnapshot  = "/lattice/snapshot/1"
	protocolHearsay   = "/lattice/where/1"
	protocolFarewell  = "/lattice/removed/1"

	wireVersion     = 1
	joinRequestSize = 4 + 32 + 32 + 32 + 32 + identity.SignatureSize
	maxGenesis      = 64 << 10
	redeemTime      = 30 * time.Second
)

// Answers to a claim. The numbers are in messages.
const (
	joinWelcome byte = iota
	joinRefused
	joinUsed
	joinRevoked
	joinExpired
	joinLater
)

var (
	// ErrRefused means that the inviter does not take the token, and does not say why.
	// Kind Denied.
	ErrRefused = lattice.E(lattice.Denied, errors.New("the inviting node does not take this token: it does not know it, or cannot look it up now; try again, then ask for another invitation"))
	// ErrBusy means that too many ask to join. Kind Unavailable.
	ErrBusy = lattice.E(lattice.Unavailable, errors.New("too many ask that node to join; try again in a minute"))
	// errAnswer means bytes that are no answer. Kind Corrupt.
	errAnswer = lattice.E(lattice.Corrupt, errors.New("not an answer of a version known here"))
)

// joinRequest is a claim on its way to who made the invitation.
type joinRequest struct {
	store   lattice.StoreID
	inviter lattice.NodeID
	claim   roster.Claim
}

func (r joinRequest) encode() []byte {
	b := append(make([]byte, 0, joinRequestSize), 'L', 'J', wireVersion, 0)
	b = append(append(b, r.store[:]...), r.inviter[:]...)
	b = append(append(b, r.claim.ID[:]...), r.claim.Author[:]...)
	return append(b, r.claim.Proof[:]...)
}

// parseJoinRequest reads a request. Wraps errAnswer.
func parseJoinRequest(b []byte) (joinRequest, error) {
	if len(b) != joinRequestSize || !bytes.Equal(b[:4], []byte{'L', 'J', wireVersion, 0}) {
		return joinRequest{}, fmt.Errorf("claim: %w", errAnswer)
	}
	return joinRequest{
		store: lattice.StoreID(b[4:36]), inviter: lattice.NodeID(b[36:68]),
		claim: roster.Claim{ID: lattice.Hash(b[68:100]), Author: lattice.AuthorID(b[100:132]), Proof: identity.Signature(b[132:])},
	}, nil
}

// joinAnswer is what the inviter says.
type joinAnswer struct {
	status    byte
	genesis   []byte
	addresses []string
}

func (a joinAnswer) encode() []byte {
	b := []byte{'L', 'J', wireVersion, a.status}
	if a.status != joinWelcome {
		return b
	}
	b = append(binary.BigEndian.AppendUint32(b, uint32(len(a.genesis))), a.genesis...)
	return appendAddresses(b, a.addresses)
}

// readJoinAnswer reads an answer, and all of it. Wraps errAnswer, or is the reader's.
func readJoinAnswer(from io.Reader) (joinAnswer, error) {
	var head [4]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return joinAnswer{}, err
	}
	if head[0] != 'L' || head[1] != 'J' || head[2] != wireVersion || head[3] > joinLater {
		return joinAnswer{}, errAnswer
	}
	a := joinAnswer{status: head[3]}
	if a.status != joinWelcome {
		return a, nil
	}
	rest, err := io.ReadAll(io.LimitReader(from, 4+maxGenesis+1+maxAddresses*(1+maxAddress)+1))
	if err != nil {
		return joinAnswer{}, err
	}
	if len(rest) < 4 {
		return joinAnswer{}, errAnswer
	}
	n := binary.BigEndian.Uint32(rest)
	if rest = rest[4:]; n > maxGenesis || uint64(n) > uint64(len(rest)) {
		return joinAnswer{}, errAnswer
	}
	var ok bool
	a.genesis = rest[:n:n]
	if a.addresses, rest, ok = takeAddresses(rest[n:], maxAddresses); !ok || len(rest) != 0 {
		return joinAnswer{}, errAnswer
	}
	return a, nil
}

// appendAddresses encodes addresses as answers have them: u8 n, n x: length u8, bytes.
func appendAddresses(b []byte, all []string) []byte {
	b = append(b, byte(len(all)))
	for _, s := range all {
		b = append(append(b, byte(len(s))), s...)
	}
	return b
}

// takeAddresses takes encoded addresses off the front of b, none of them empty; false:
// there are none in the way that they are encoded, or more than most.
func takeAddresses(b []byte, most int) (all []string, rest []byte, ok bool) {
	if len(b) == 0 || int(b[0]) > most {
		return nil, b, false
	}
	n, b := int(b[0]), b[1:]
	for range n {
		if len(b) == 0 || b[0] == 0 || len(b) < 1+int(b[0]) {
			return nil, b, false
		}
		all, b = append(all, string(b[1:1+b[0]])), b[1+b[0]:]
	}
	return all, b, true
}

// joins bounds how many claims are looked at.
type joins struct {
	perMinute int

	mu     sync.Mutex
	filled time.Time
	left   float64
	under  int // way
}

const joinsAtOnce = 4

func newJoins(perMinute int) *joins {
	return &joins{perMinute: perMinute, left: float64(perMinute)}
}

// begin takes a place, until end; false: there is none.
func (j *joins) begin(now time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.filled.IsZero() {
		j.left = min(float64(j.perMinute), j.left+now.Sub(j.filled).Minutes()*float64(j.perMinute))
	}
	j.filled = now
	if j.left < 1 || j.under >= joinsAtOnce {
		return false
	}
	j.left--
	j.under++
	return true
}

func (j *joins) end() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.under--
}

// askedJoin answers a claim.
func (m *Mesh) askedJoin(ctx context.Context, node lattice.NodeID, s network.Stream) {
	_ = s.SetDeadline(time.Now().Add(m.c.Limits.HelloTime))
	var b [joinRequestSize]byte
	if _, err := io.ReadFull(s, b[:]); err != nil {
		return
	}
	a := joinAnswer{status: joinLater}
	if m.joins.begin(time.Now()) {
		a = m.redeem(ctx, node, b[:])
		m.joins.end()
	}
	_ = s.SetDeadline(time.Now().Add(m.c.Limits.HelloTime))
	if _, err := s.Write(a.encode()); err != nil {
		return
	}
	_ = s.CloseWrite()
	_, _ = s.Read(b[:1]) // until the other side has read it, and closes
}

// redeem looks at a claim. Who does not prove the secret of an invitation that is
// known learns nothing: not whether the store is here, nor the invitation.
func (m *Mesh) redeem(ctx context.Context, node lattice.NodeID, request []byte) joinAnswer {
	refused := joinAnswer{status: joinRefused}
	r, err := parseJoinRequest(request)
	if err != nil {
		return refused
	}
	c := m.store(r.store)
	if r.inviter != m.node || r.claim.Author != node || r.claim.Verify(r.store, m.node) != nil {
		c.turned(reconcile.Forged)
		return refused
	}
	if c == nil {
		return refused
	}
	ctx, cancel := context.WithTimeout(ctx, redeemTime)
	defer cancel()
	genesis, err := c.store.Redeem(ctx, r.claim)
	if err == nil && len(genesis) <= maxGenesis {
		c.log.Info("a node has joined", "node", node.Short())
		m.look()
		return joinAnswer{joinWelcome, genesis, m.Addresses()}
	}
	c.turned(reconcile.NotEntitled)
	switch {
	case errors.Is(err, roster.ErrInviteUsed):
		return joinAnswer{status: joinUsed}
	case errors.Is(err, roster.ErrInviteRevoked):
		return joinAnswer{status: joinRevoked}
	case errors.Is(err, roster.ErrInviteExpired):
		return joinAnswer{status: joinExpired}
	}
	c.log.Warn("a claim is refused", "node", node.Short(), "err", err)
	return refused
}

// turned counts a claim that was refused; c is nil if the store that it names is not here.
func (c *carrier) turned(why reconcile.Reason) {
	if c != nil {
		c.current.refuse(why)
	}
}

// Join redeems an invitation at the node that made it: it admits this node, and
// answers with the store's genesis entry, which is verified. The inviter is remembered.
// Whoever calls makes a store of the genesis, and hands it to Add. Joining again with
// the same token is answered in the same way.
//
// Kind Unavailable: the inviter cannot be reached, or is busy; otherwise the errors
// of core/roster, and ErrRefused. It waits for Run to begin.
func (m *Mesh) Join(ctx context.Context, t invite.Token) (genesis []byte, err error) {
	ctx, done, ok := m.within(ctx)
	if !ok {
		return nil, fmt.Errorf("join store %s: %w", t.Store.Short(), ErrClosed)
	}
	defer done()
	genesis, err = m.join(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("join store %s: %w", t.Store.Short(), err)
	}
	return genesis, nil
}

func (m *Mesh) join(ctx context.Context, t invite.Token) ([]byte, error) {
	if t.Inviter == m.node {
		return nil, lattice.E(lattice.Invalid, errors.New("this node made the invitation itself"))
	}
	id, err := peerOf(t.Inviter)
	if err != nil {
		return nil, err
	}
	addresses, err := parseAddresses(t.Addresses)
	if err != nil {
		return nil, err
	}
	if len(addresses) == 0 {
		return nil, lattice.E(lattice.Invalid, errors.New("the invitation says no address of the inviting node: that node listens nowhere (mesh.listen)"))
	}
	done := m.gate.allow(id)
	defer done()
	if err := m.dial(ctx, id, addresses); err != nil {
		return nil, lattice.E(lattice.Unavailable, fmt.Errorf("the inviting node %s cannot be reached: %w; is it running, and can this machine reach it?", t.Inviter.Short(), err))
	}
	a, err := m.claim(ctx, t)
	if err != nil {
		return nil, lattice.E(lattice.Unavailable, fmt.Errorf("ask %s: %w", t.Inviter.Short(), err))
	}
	if err := joinErrors(a.status); err != nil {
		return nil, err
	}
	if err := checkGenesis(a.genesis, t.Store); err != nil {
		return nil, err
	}
	m.book.remember(t.Inviter, append(valid(a.addresses), t.Addresses...))
	m.book.invite(t.Inviter, t.Store)
	// A crash before this is durable, or before the store is made, loses nothing: the
	// same token is answered again.
	if err := m.book.save(); err != nil {
		return nil, err
	}
	m.look()
	return a.genesis, nil
}

// valid drops what is no address.
func valid(told []string) []string {
	var out []string
	for _, s := range told {
		if _, err := parseAddresses([]string{s}); err == nil {
			out = append(out, s)
		}
	}
	return out
}

// claim sends a claim and reads the answer.
func (m *Mesh) claim(ctx context.Context, t invite.Token) (joinAnswer, error) {
	id, err := peerOf(t.Inviter)
	if err != nil {
		return joinAnswer{}, err
	}
	s, done, err := m.ask(ctx, id, protocolJoin)
	if err != nil {
		return joinAnswer{}, err
	}
	defer done()
	_ = s.SetDeadline(time.Now().Add(2*m.c.Limits.HelloTime + redeemTime))
	if _, err := s.Write(joinRequest{t.Store, t.Inviter, t.Claim(m.node)}.encode()); err != nil {
		return joinAnswer{}, err
	}
	a, err := readJoinAnswer(s)
	if err != nil {
		return joinAnswer{}, fmt.Errorf("its answer: %w", err)
	}
	return a, s.Close()
}

func joinErrors(status byte) error {
	switch status {
	case joinWelcome:
		return nil
	case joinUsed:
		return roster.ErrInviteUsed
	case joinRevoked:
		return roster.ErrInviteRevoked
	case joinExpired:
		return roster.ErrInviteExpired
	case joinLater:
		return ErrBusy
	}
	return ErrRefused
}

// checkGenesis checks that an entry is what the store's id commits to.
func checkGenesis(b []byte, want lattice.StoreID) error {
	s, err := sigchain.Parse(b)
	if err == nil {
		err = s.Verify()
	}
	if err == nil && (s.Store != lattice.StoreID{} || s.Home() != want) {
		err = lattice.E(lattice.Corrupt, fmt.Errorf("it is of store %s", s.Home().Short()))
	}
	if err != nil {
		return fmt.Errorf("the genesis entry that the inviter sent: %w", err)
	}
	return nil
}

// within returns a context that ends with both ctx and Run, which waits for done. It
// waits until Run has begun.
func (m *Mesh) within(ctx context.Context) (both context.Context, done func(), ok bool) {
	select {
	case <-m.begun:
	case <-ctx.Done():
		return ctx, nil, false
	}
	run, ok := m.enter()
	if !ok {
		return ctx, nil, false
	}
	both, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(run, cancel)
	return both, func() {
		stop()
		cancel()
		m.work.Done()
	}, true
}
