package roster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"pgregory.net/rapid"
)

// world is chains of one incarnation an author, told by short lines. It is the
// History of its roster.
type world struct {
	*Roster
	named map[lattice.AuthorID]map[uint64][]sigchain.Ref
	forks map[lattice.AuthorID]uint64
	seqs  map[lattice.AuthorID]uint64
}

const owner = "olga"

func newWorld() *world {
	w := &world{
		named: map[lattice.AuthorID]map[uint64][]sigchain.Ref{}, forks: map[lattice.AuthorID]uint64{}, seqs: map[lattice.AuthorID]uint64{},
	}
	w.Roster = New(who(owner), w)
	return w
}

func who(name string) lattice.AuthorID {
	var a lattice.AuthorID
	copy(a[:], name)
	return a
}

func (w *world) Valid(at sigchain.Place) bool {
	fork, forked := w.forks[at.Author]
	return !forked || at.Seq < fork
}

func (w *world) Sound(at sigchain.Place) bool { return w.Valid(at) }

func (w *world) Final(sigchain.Place) (Role, bool) { return None, false }

func (w *world) Named(at sigchain.Place) []sigchain.Ref {
	var all []sigchain.Ref
	for seq, refs := range w.named[at.Author] {
		if seq <= at.Seq {
			all = append(all, refs...)
		}
	}
	return all
}

// next is the next entry of an author, which names grants.
func (w *world) next(author string, names ...sigchain.Ref) sigchain.Ref {
	a := who(author)
	w.seqs[a]++
	ref := sigchain.Ref{Author: a, Link: sigchain.Link{Incarnation: 1, Seq: w.seqs[a], ID: lattice.Hash{byte(w.seqs[a]), 1}}}
	for _, n := range names {
		if w.Grants(n, a) {
			if w.named[a] == nil {
				w.named[a] = map[uint64][]sigchain.Ref{}
			}
			w.named[a][ref.Seq] = append(w.named[a][ref.Seq], n)
		}
	}
	return ref
}

func (w *world) grant(by, to string, r Role, names ...sigchain.Ref) sigchain.Ref {
	m := Member{who(to), r}
	at := w.next(by, names...)
	w.Add(Entry{At: at, Needs: m.Needs(), Members: []Member{m}})
	return at
}

// remove removes an author, whose entries up to cut still count (0: none).
func (w *world) remove(by, of string, cut uint64) sigchain.Ref {
	rm := Remove{Author: who(of)}
	if cut > 0 {
		rm.Cut = []sigchain.Link{{Incarnation: 1, Seq: cut, ID: lattice.Hash{1}}}
	}
	at := w.next(by)
	w.Add(Entry{At: at, Needs: rm.Needs(), Removes: []Remove{rm}})
	return at
}

// roles lists the roles of an author's entries 1, 2, …
func (w *world) roles(author string, n int) string {
	var out []string
	for i := range n {
		out = append(out, w.Role(sigchain.Place{Author: who(author), Incarnation: 1, Seq: uint64(i + 1)}).String())
	}
	return strings.Join(out, " ")
}

func TestJudgement(t *testing.T) {
	for _, c := range []struct {
		name string
		tell func(w *world)
		want string // roles of bob's first three entries
		next Role   // what bob has if he names all grants
	}{
		{"a stranger", func(w *world) {}, "none none none", None},
		{"a grant that was not named", func(w *world) { w.grant(owner, "bob", Writer) }, "none none none", Writer},
		{"a grant counts from where it is named", func(w *world) {
			g := w.grant(owner, "bob", Writer)
			w.next("bob")
			w.next("bob", g)
		}, "none writer writer", Writer},
		{"of two grants the greater", func(w *world) {
			g, h := w.grant(owner, "bob", Writer), w.grant(owner, "bob", Reader)
			w.next("bob", g)
			w.next("bob", h)
		}, "writer writer writer", Writer},
		{"promoted", func(w *world) {
			g, h := w.grant(owner, "bob", Reader), w.grant(owner, "bob", Owner)
			w.next("bob", g)
			w.next("bob", h)
		}, "reader owner owner", Owner},
		{"a grant by a stranger", func(w *world) { w.next("bob", w.grant("eve", "bob", Writer)) }, "none none none", None},
		{"a grant to oneself", func(w *world) { w.next("bob", w.grant("bob", "bob", Owner)) }, "none none none", None},
		{"a grant by an admin", func(w *world) {
			a := w.grant(owner, "ann", Admin)
			w.next("bob", w.grant("ann", "bob", Writer, a))
		}, "writer writer writer", Writer},
		{"a grant by an admin who does not say so", func(w *world) {
			w.grant(owner, "ann", Admin)
			w.next("bob", w.grant("ann", "bob", Writer))
		}, "none none none", None},
		{"an admin makes no admins", func(w *world) {
			a := w.grant(owner, "ann", Admin)
			w.next("bob", w.grant("ann", "bob", Admin, a))
		}, "none none none", None},
		{"an owner made by an owner makes owners", func(w *world) {
			a := w.grant(owner, "ann", Owner)
			w.next("bob", w.grant("ann", "bob", Owner, a))
		}, "owner owner owner", Owner},
		{"a writer grants nothing", func(w *world) {
			a := w.grant(owner, "ann", Writer)
			w.next("bob", w.grant("ann", "bob", Reader, a))
		}, "none none none", None},
		{"a grant beyond a fork", func(w *world) {
			a := w.grant(owner, "ann", Admin)
			w.next("ann", a)
			w.next("bob", w.grant("ann", "bob", Writer))
			w.forks[who("ann")] = 2
		}, "none none none", None},
		{"removed", func(w *world) {
			w.next("bob", w.grant(owner, "bob", Writer))
			w.remove(owner, "bob", 2)
		}, "writer writer none", None},
		{"removed wholly", func(w *world) {
			w.next("bob", w.grant(owner, "bob", Writer))
			w.remove(owner, "bob", 0)
		}, "none none none", None},
		{"of two cuts the lower", func(w *world) {
			a := w.grant(owner, "ann", Admin)
			w.next("ann", a)
			w.next("bob", w.grant(owner, "bob", Writer))
			w.remove("ann", "bob", 1)
			w.remove(owner, "bob", 2)
		}, "writer none none", None},
		{"removed by a writer", func(w *world) {
			w.next("ann", w.grant(owner, "ann", Writer))
			w.next("bob", w.grant(owner, "bob", Writer))
			w.remove("ann", "bob", 1)
		}, "writer writer writer", Writer},
		{"an admin removed by an admin", func(w *world) {
			w.next("ann", w.grant(owner, "ann", Admin))
			w.next("bob", w.grant(owner, "bob", Admin))
			w.remove("ann", "bob", 1)
		}, "admin none none", None},
		{"a writer becomes an owner while an admin removes him", func(w *world) {
			w.next("ann", w.grant(owner, "ann", Admin))
			w.next("bob", w.grant(owner, "bob", Writer))
			w.next("bob", w.grant(owner, "bob", Owner))
			w.remove("ann", "bob", 1)
		}, "writer owner owner", Owner},
		{"an owner removed by an owner", func(w *world) {
			w.next("bob", w.grant(owner, "bob", Owner))
			w.remove(owner, "bob", 1)
		}, "owner none none", None},
		{"removed by an admin who was removed before that", func(w *world) {
			w.next("ann", w.grant(owner, "ann", Admin))
			w.next("bob", w.grant(owner, "bob", Writer))
			w.remove("ann", "bob", 1)
			w.remove(owner, "ann", 1)
		}, "writer writer writer", Writer},
		{"removed by an admin who was removed after that", func(w *world) {
			w.next("ann", w.grant(owner, "ann", Admin))
			w.next("bob", w.grant(owner, "bob", Writer))
			w.remove("ann", "bob", 1)
			w.remove(owner, "ann", 2)
		}, "writer none none", None},
		{"a grant by an admin who was removed before that", func(w *world) {
			w.next("ann", w.grant(owner, "ann", Admin))
			w.next("bob", w.grant("ann", "bob", Writer))
			w.remove(owner, "ann", 1)
		}, "none none none", None},
		{"granted again after a removal", func(w *world) {
			w.next("bob", w.grant(owner, "bob", Writer))
			w.remove(owner, "bob", 1)
			w.next("bob", w.grant(owner, "bob", Writer))
		}, "writer none none", None},
	} {
		w := newWorld()
		c.tell(w)
		if got := w.roles("bob", 3); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if got := w.Member(who("bob")); got != c.next {
			t.Errorf("%s: the next is %s, want %s", c.name, got, c.next)
		}
		if got := w.roles(owner, 2); got != "owner owner" {
			t.Errorf("%s: the creator is %s", c.name, got)
		}
	}
}

// TestEntryNeedsAll: an entry that does one thing beyond its author's right has
// no effect at all.
func TestEntryNeedsAll(t *testing.T) {
	w := newWorld()
	at := w.next("ann", w.grant(owner, "ann", Admin))
	w.Add(Entry{At: at, Needs: Owner, Members: []Member{{who("bob"), Writer}, {who("carl"), Admin}}, Removes: []Remove{{Author: who("dora")}}})
	w.next("bob", at)
	w.next("dora", w.grant(owner, "dora", Writer))
	if got := w.roles("bob", 1) + " " + w.roles("dora", 1); got != "none writer" {
		t.Error(got)
	}
}

// TestOrderOfAdding tells random histories to rosters in different orders, with
// questions in between: all judge the same.
func TestOrderOfAdding(t *testing.T) {
	names := []string{owner, "ann", "bob", "carl"}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		var entries []Entry
		for range rapid.IntRange(1, 25).Draw(t, "entries") {
			by, to := rapid.SampledFrom(names).Draw(t, "by"), rapid.SampledFrom(names[1:]).Draw(t, "to")
			if rapid.IntRange(0, 3).Draw(t, "what") == 0 {
				w.remove(by, to, rapid.Uint64Range(0, 4).Draw(t, "cut"))
			} else if rapid.IntRange(0, 3).Draw(t, "more") == 0 {
				w.more(t, by, to)
			} else {
				w.grant(by, to, rapid.SampledFrom([]Role{Writer, Admin, Admin, Owner}).Draw(t, "role"), w.GrantsTo(who(by))...)
			}
		}
		if rapid.Bool().Draw(t, "fork") {
			w.forks[who("ann")] = rapid.Uint64Range(1, 4).Draw(t, "at")
		}
		w.Forget()
		for e := range w.Entries {
			entries = append(entries, e)
		}
		slices.SortFunc(entries, func(a, b Entry) int { return a.At.Compare(b.At) })
		verdict := func(r *Roster) string {
			var b strings.Builder
			for _, n := range names {
				for seq := range uint64(12) {
					fmt.Fprint(&b, r.Role(sigchain.Place{Author: who(n), Incarnation: 1, Seq: seq}), " ")
				}
				fmt.Fprintln(&b, r.Member(who(n)), r.Dormant(who(n)), r.Introduced(who(n)), r.next(who(n)))
			}
			return b.String()
		}
		want := verdict(w.Roster)
		other := New(who(owner), w)
		for _, e := range rapid.Permutation(entries).Draw(t, "order") {
			if !other.Add(e) || other.Add(e) {
				t.Fatal("an entry is new once")
			}
			if rapid.Bool().Draw(t, "ask") {
				verdict(other)
			}
		}
		if got := verdict(other); got != want {
			t.Fatalf("judged as\n%s, want\n%s", got, want)
		}
	})
}
