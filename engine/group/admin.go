package group

import (
	"cmp"
	"slices"
	"strings"
	"time"

	lattice "github.com/lattice-log/lattice"
)

// DeleteGroup removes an Empty group and its offsets, durably before it
// replies: nil, ErrGroupNotFound, ErrNonEmpty, ErrNotStored or ErrClosed.
func (m *Manager) DeleteGroup(group string, reply func(error)) {
	var refused error
	err := m.with(group, false, func(e *entry, _ time.Time, _ *effects) {
		if e.state() != Empty {
			refused = ErrNonEmpty
			return
		}
		plan := func(b *batch) error {
			if e.state() != Empty { // somebody joined while this waited
				return ErrNonEmpty
			}
			for _, tp := range b.all(e) {
				b.set(e, tp, nil)
			}
			for _, po := range b.allPending(e) {
				b.setPending(e, po, nil)
			}
			return nil
		}
		if !m.enqueueFor(e, plan, true, reply) {
			refused = ErrClosed
		}
	})
	if err := cmp.Or(err, refused); err != nil {
		reply(err)
	}
}

// Describe tells everything about one group but its offsets. ErrGroupNotFound.
func (m *Manager) Describe(group string) (Description, error) {
	var d Description
	err := m.with(group, false, func(e *entry, _ time.Time, _ *effects) {
		if e.classic != nil {
			d = e.classic.describe()
		} else {
			d = e.consumer.describe(func(id lattice.TopicID) string {
				t, _ := m.topics.TopicByID(id)
				return t.Name
			})
		}
	})
	if err != nil {
		return Description{}, err
	}
	d.Group = group
	if d.Type == Classic {
		for _, md := range d.Members {
			for i, a := range md.Assigned {
				t, _ := m.topics.TopicByName(a.Name)
				md.Assigned[i].ID = t.ID
			}
		}
	}
	return d, nil
}

// List returns all groups, sorted by name.
func (m *Manager) List() []Listing {
	list := []Listing{}
	for _, e := range m.entries() {
		e.mu.Lock()
		l := Listing{Group: e.name, State: e.state()}
		if e.classic != nil {
			l.Type, l.ProtocolType, l.Members = Classic, e.classic.protocolType, len(e.classic.members)
		} else {
			l.Type, l.ProtocolType, l.Members = Consumer, consumerProtocol, len(e.consumer.members)
		}
		gone := e.gone
		e.mu.Unlock()
		if !gone {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b Listing) int { return strings.Compare(a.Group, b.Group) })
	return list
}
