package gateway

import (
	"errors"
	"fmt"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/gateway/flow"
)

// group is who follows one selector.
type group struct {
	selector flow.Selector
	members  []*member
}

// member is one subscription in its group. Gateway.mu guards it.
type member struct {
	sub   *flow.Sub
	peer  *peer
	group *group
	at    int
}

// errFull means that there are too many connections.
var errFull = lattice.E(lattice.Unavailable, errors.New("too many connections"))

// enter counts a connection in; its peer is the caller's to run.
func (g *Gateway) enter(host string) (id string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.stats.connections.Load() >= int64(g.o.Connections):
		return "", fmt.Errorf("%w: %d are the limit", errFull, g.o.Connections)
	case g.o.PerAddress > 0 && g.hosts[host] >= g.o.PerAddress:
		return "", fmt.Errorf("%w: %d from one address are the limit", errFull, g.o.PerAddress)
	}
	g.stats.connections.Add(1)
	g.hosts[host]++
	g.next++
	return fmt.Sprintf("c%d", g.next), nil
}

func (g *Gateway) leave(host string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats.connections.Add(-1)
	if g.hosts[host]--; g.hosts[host] <= 0 {
		delete(g.hosts, host)
	}
}

func (g *Gateway) add(p *peer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.peers[p] = struct{}{}
}

// offer gives items to those who follow them. g.mu is held.
func (g *Gateway) offer(items []*flow.Item) {
	for _, it := range items {
		selectors := it.Matches()
		if !it.Reset {
			g.offerTo(g.groups[selectors[0]], it)
			g.offerTo(g.groups[selectors[1]], it)
			continue
		}
		for s, gr := range g.groups {
			if s.Projection == it.Projection {
				g.offerTo(gr, it)
			}
		}
	}
}

func (g *Gateway) offerTo(gr *group, it *flow.Item) {
	if gr == nil {
		return
	}
	type change struct {
		p  *peer
		ch flow.Changes
	}
	var changed []change // the group must not change while it is walked
	for _, m := range gr.members {
		p := m.peer
		p.mu.Lock()
		ch := p.conn.Offer(m.sub, it)
		round, wants := m.sub.Round(), m.sub.NeedsSnapshot() && it.Reset
		p.kick()
		p.mu.Unlock()
		g.stats.offered.Add(1)
		if len(ch.Ended) > 0 {
			changed = append(changed, change{p, ch})
		}
		if wants {
			go g.snapshot(p, m.sub, round)
		}
	}
	for _, c := range changed {
		g.ended(c.p, c.ch)
	}
}

// begin asks the feed for each subscription that began and remembers who is to be offered
// what. Nothing is added to the feed meanwhile.
func (g *Gateway) begin(p *peer, began []*flow.Sub) {
	if len(began) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range began {
		a, err := g.feed.Resume(s.Selector, s.From)
		p.mu.Lock()
		if p.dead || p.conn.Closing() != nil {
			p.mu.Unlock()
			return
		}
		ch := p.conn.Resumed(s, a, err)
		round, wants := s.Round(), s.NeedsSnapshot()
		p.kick()
		p.mu.Unlock()
		g.stats.resumed(a, err)
		g.join(p, s)
		g.ended(p, ch)
		if wants {
			go g.snapshot(p, s, round)
		}
	}
}

func (g *Gateway) join(p *peer, s *flow.Sub) {
	gr := g.groups[s.Selector]
	if gr == nil {
		gr = &group{selector: s.Selector}
		g.groups[s.Selector] = gr
	}
	m := &member{sub: s, peer: p, group: gr, at: len(gr.members)}
	gr.members = append(gr.members, m)
	p.members = append(p.members, m)
	g.stats.subscriptions.Add(1)
}

// ended forgets subscriptions. g.mu is held.
func (g *Gateway) ended(p *peer, ch flow.Changes) {
	for _, s := range ch.Ended {
		for i, m := range p.members {
			if m.sub == s {
				p.members = append(p.members[:i], p.members[i+1:]...)
				g.part(m)
				break
			}
		}
	}
}

func (g *Gateway) part(m *member) {
	gr := m.group
	last := gr.members[len(gr.members)-1]
	gr.members[m.at], last.at = last, m.at
	gr.members[len(gr.members)-1] = nil
	gr.members = gr.members[:len(gr.members)-1]
	if len(gr.members) == 0 {
		delete(g.groups, gr.selector)
	}
	g.stats.subscriptions.Add(-1)
}

// remove forgets a connection. It does nothing the second time.
func (g *Gateway) remove(p *peer) {
	g.mu.Lock()
	_, there := g.peers[p]
	delete(g.peers, p)
	for _, m := range p.members {
		g.part(m)
	}
	p.members = nil
	g.mu.Unlock()
	if there {
		g.leave(p.host)
	}
}

// tick does what time asks of every connection.
func (g *Gateway) tick(now time.Time) {
	for _, p := range g.all() {
		var probe bool
		p.do(func(c *flow.Conn) (ch flow.Changes) {
			probe, ch = c.Tick(now)
			return ch
		})
		if probe {
			go p.link.probe()
		}
	}
}
