package sigchain

import (
	"bytes"
	"cmp"
	"fmt"

	lattice "github.com/lattice-log/lattice"
)

// Place is where an entry stands, whichever entry it is: an author that forks its
// log has two in one place.
type Place struct {
	Author           lattice.AuthorID
	Incarnation, Seq uint64
}

// Place returns where the entry that r names stands.
func (r Ref) Place() Place { return Place{r.Author, r.Incarnation, r.Seq} }

// Compare orders places by author, incarnation and sequence number.
func (p Place) Compare(o Place) int {
	return cmp.Or(bytes.Compare(p.Author[:], o.Author[:]), cmp.Compare(p.Incarnation, o.Incarnation), cmp.Compare(p.Seq, o.Seq))
}

// String is for people: a short author, incarnation and sequence number.
func (p Place) String() string {
	return fmt.Sprintf("%s/%d/%d", p.Author.Short(), p.Incarnation, p.Seq)
}
