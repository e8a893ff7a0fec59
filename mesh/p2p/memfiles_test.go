package p2p

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/invite"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// invite makes an invitation, of an hour or of the past.
func (s *memStore) invite(m *Mesh, past bool) invite.Token {
	t, err := invite.New(bytes.NewReader(bytes.Repeat([]byte{byte(len(s.invites) + 1)}, 32)), s.id, s.key.Author(), m.Addresses()...)
	check(s.t, err)
	expires := int64(startMs + 1)
	if past {
		expires = startMs - 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.invites[t.ID()] = &memInvite{Invite: t.Invite(roster.Writer, expires)}
	return t
}

func (s *memStore) Redeem(_ context.Context, c roster.Claim) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.invites[c.ID]
	genesis := s.logs[state.Writer{Author: s.founder, Incarnation: 1}].entries[0].Bytes()
	switch {
	case i == nil:
		return nil, roster.ErrInviteUnknown
	case i.claimed == c.Author:
		return genesis, nil
	case i.claimed != lattice.NodeID{}:
		return nil, roster.ErrInviteUsed
	case i.revoked:
		return nil, roster.ErrInviteRevoked
	case i.Expires < startMs:
		return nil, roster.ErrInviteExpired
	}
	i.claimed = c.Author
	op, err := roster.Member{Author: c.Author, Role: i.Role}.Op()
	if err != nil {
		return nil, err
	}
	s.appendLocked([]sigchain.Op{c.Op(), op})
	return genesis, nil
}

func (s *memStore) OpenSnapshot(x reconcile.Snapshot, offset int64) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x != s.snapshotName() {
		return nil, lattice.E(lattice.NotFound, errors.New("no such snapshot"))
	}
	b := bytes.Clone(s.snapshot[offset:])
	if s.lie {
		b[len(b)/2] ^= 1
	}
	if s.cut > 0 && len(b) > s.cut {
		b = b[:s.cut]
		s.cut = 0
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (s *memStore) ReceiveSnapshot(x reconcile.Snapshot) (Incoming, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received++
	return &memIncoming{s, x}, nil
}

type memIncoming struct {
	s    *memStore
	name reconcile.Snapshot
}

func (f *memIncoming) Write(b []byte) (int, error) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	f.s.part = append(f.s.part, b...)
	return len(b), nil
}

func (f *memIncoming) Size() int64 {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	return int64(len(f.s.part))
}

// Import takes logs from the snapshot, which in this store is entries, one after the
// other, each behind its length in 4 bytes, in the order of their logs.
func (f *memIncoming) Import(context.Context) error {
	s := f.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if sha256.Sum256(s.part) != f.name.Sum {
		s.part = nil
		return lattice.E(lattice.Corrupt, errors.New("another snapshot"))
	}
	for b := s.part; len(b) > 0; {
		n := int(b[0])<<24 | int(b[1])<<16 | int(b[2])<<8 | int(b[3])
		e, err := sigchain.Parse(b[4 : 4+n])
		check(s.t, err)
		w := state.Writer{Author: e.Author, Incarnation: e.Incarnation}
		if l := s.logs[w]; l == nil || e.Seq == uint64(len(l.entries))+1 {
			s.add(w, e)
			s.logs[w].base = e.Seq
		}
		b = b[4+n:]
	}
	s.part, s.imported = nil, s.imported+1
	s.tell(func(e Events) { e.Replaced() })
	return nil
}

func (f *memIncoming) Close() error { return nil }

// prune drops this store's entries of a log up to seq, and keeps a snapshot of them.
func (s *memStore) prune(w state.Writer, seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshot = nil
	for _, e := range s.logs[w].entries[:seq] {
		n := len(e.Bytes())
		s.snapshot = append(append(s.snapshot, byte(n>>24), byte(n>>16), byte(n>>8), byte(n)), e.Bytes()...)
	}
	s.logs[w].base = seq
	s.tell(func(e Events) { e.Replaced() })
}
