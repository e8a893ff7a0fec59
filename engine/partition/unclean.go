package partition

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/merkle"
)

const (
	// uncleanStep is by how much terms of unclean grants differ at least, so that those
	// that their leaders, and the one that was passed over, go on with do not meet.
	uncleanStep = 64
	// uncleanSpread is in how many such steps they are spread.
	uncleanSpread = 1 << 10
)

// ErrLeadsAlready: who is to lead leads already, as far as is known here. Kind Invalid.
var ErrLeadsAlready = lattice.E(lattice.Invalid, errors.New("it leads the partition already"))

// Unclean returns a grant by which another member leads from what is here on, without the
// leader's word, and without promises: what only others have beyond that is stranded. It
// stores nothing: the grant counts where an admin's word for it does (Options.Admitted).
//
// Its term lies above those that are known by a number that depends on who signs it, for
// whom, and after what, since two admins may give a partition away at once, and the leader
// that is passed over may go on meanwhile: no (term, offset) is to name two records.
//
// Errors: ErrClosed, ErrReadOnly, ErrLeadsAlready; Kind Conflict (nothing was ever written
// that is known here: its creator leads), Unsupported (terms are used up), Storage.
func (p *Partition) Unclean(to lattice.NodeID) (grant.Signed, error) {
	g, err := p.unclean(to)
	if err != nil {
		return g, fmt.Errorf("give %s to %s uncleanly: %w", p.id, to.Short(), err)
	}
	return g, nil
}

func (p *Partition) unclean(to lattice.NodeID) (grant.Signed, error) {
	p.receiving.Lock() // nothing comes meanwhile
	defer p.receiving.Unlock()
	p.mu.Lock()
	last, closed, sealed := p.known.last, p.closed, p.sealed || p.stale
	p.mu.Unlock()
	switch {
	case p.o.ReadOnly:
		return grant.Signed{}, ErrReadOnly
	case closed || sealed:
		return grant.Signed{}, ErrClosed
	case p.Leads():
		return grant.Signed{}, lattice.E(lattice.Conflict, errors.New("this node leads it, and can give it away cleanly"))
	case last == nil:
		return grant.Signed{}, lattice.E(lattice.Conflict, errors.New("no term of it is known here"))
	case last.Leader == to:
		return grant.Signed{}, ErrLeadsAlready
	}
	if failed := p.log.Failed(); failed != "" {
		return grant.Signed{}, lattice.E(lattice.Storage, errors.New(failed))
	}
	here := p.log.Here()
	if here.Size == 0 {
		here.Root, here.End = merkle.EmptyRoot(), 0
	}
	me := p.o.Key.Author()
	sum := sha256.Sum256(bytes.Join([][]byte{me[:], to[:], last.ID[:]}, nil))
	term := max(int64(last.Term), p.o.Clock.Now().Unix()/int64(time.Minute/time.Second))
	term += uncleanStep * (1 + int64(binary.BigEndian.Uint32(sum[:])%uncleanSpread))
	if term > math.MaxInt32 {
		return grant.Signed{}, lattice.E(lattice.Unsupported, fmt.Errorf("term %d does not fit a Kafka leader epoch", term))
	}
	return grant.Sign(p.o.Key, grant.Grant{
		Store: p.o.Store, Partition: p.id, Term: int32(term), Leader: to,
		BaseSize: here.Size, BaseRoot: here.Root, BaseOffset: here.End, Previous: last.ID,
		AckSet: []lattice.AuthorID{to}, Min: 1, Kind: grant.Unclean,
	})
}
