package group

// A store's groups of all kinds have one set of names. Those of share groups, which
// engine/share coordinates, are claimed here, so that two kinds never get the same.

// Claim takes a name for a share group: from then on nobody else gets it. False when
// a group of this package has it and would lose something.
func (m *Manager) Claim(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.groups[name]; e != nil {
		e.mu.Lock()
		vacant := e.gone || e.vacant()
		if vacant {
			e.gone = true
			if e.stop != nil {
				e.stop()
			}
		}
		e.mu.Unlock()
		if !vacant {
			return false
		}
		delete(m.groups, name)
	}
	m.shares[name] = struct{}{}
	return true
}

// Unclaim gives a name back.
func (m *Manager) Unclaim(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.shares, name)
}
