package p2p

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	lattice "github.com/lattice-log/lattice"
)

// book is where nodes were reached. The package comment says what is saved of it.
type book struct {
	to Book // nil: nowhere

	mu    sync.Mutex
	peers map[lattice.NodeID]*listing
	dirty bool

	saving sync.Mutex // to is used by one goroutine at a time
}

// listing is what the book has of a node.
type listing struct {
	addresses []string // the newest first
	seen      int64    // ms since 1970, when it was connected last
	invited   []lattice.StoreID
}

const (
	bookVersion   = 1
	maxListed     = 1024 // nodes
	maxBook       = 8 << 20
	maxInvited    = 64     // stores that one node invited into
	seenPrecision = 60_000 // ms: the book is not saved because of a newer time alone
)

type bookFile struct {
	Version int        `json:"version"`
	Peers   []bookPeer `json:"peers"`
}

type bookPeer struct {
	Node      string   `json:"node"`
	Addresses []string `json:"addresses"`
	Seen      int64    `json:"seen"`
	Invited   []string `json:"invited,omitempty"`
}

var (
	errBook        = lattice.E(lattice.Corrupt, errors.New("not an address book"))
	errBookVersion = lattice.E(lattice.Unsupported, errors.New("an address book of a later version: a newer program reads it"))
)

// openBook reads what was saved. What cannot be read is told of and begun anew, as
// it is a hint only; but a later version is not written over. Kind Unsupported.
func openBook(to Book, log *slog.Logger) (*book, error) {
	b := &book{to: to, peers: map[lattice.NodeID]*listing{}}
	if to == nil {
		return b, nil
	}
	data, err := to.Load()
	if err == nil && len(data) > 0 {
		b.peers, err = parseBook(data)
	}
	switch {
	case err == nil:
		return b, nil
	case errors.Is(err, errBookVersion):
		return nil, fmt.Errorf("mesh: %w", err)
	}
	log.Error("the address book cannot be read, and is begun anew: peers are found again when they call", "err", err)
	b.peers = map[lattice.NodeID]*listing{}
	return b, nil
}

// parseBook reads a saved book. Wraps errBook or errBookVersion.
func parseBook(data []byte) (map[lattice.NodeID]*listing, error) {
	var version struct{ Version int }
	switch err := json.Unmarshal(data, &version); {
	case len(data) > maxBook:
		return nil, fmt.Errorf("%w: %d bytes", errBook, len(data))
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errBook, err)
	case version.Version > bookVersion:
		return nil, fmt.Errorf("%w: %d", errBookVersion, version.Version)
	case version.Version < 1:
		return nil, fmt.Errorf("%w: no version", errBook)
	}
	var f bookFile
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("%w: %w", errBook, err)
	}
	if len(f.Peers) > maxListed {
		return nil, fmt.Errorf("%w: %d nodes, at most %d", errBook, len(f.Peers), maxListed)
	}
	out := map[lattice.NodeID]*listing{}
	for _, p := range f.Peers {
		n, err := lattice.ParseAuthorID(p.Node)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errBook, err)
		}
		if _, err := parseAddresses(p.Addresses); err != nil || len(p.Addresses) > maxAddresses || len(p.Invited) > maxInvited {
			return nil, fmt.Errorf("%w: addresses of %s: %w", errBook, n.Short(), err)
		}
		l := &listing{addresses: p.Addresses, seen: p.Seen}
		for _, s := range p.Invited {
			id, err := lattice.ParseStoreID(s)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errBook, err)
			}
			l.invited = append(l.invited, id)
		}
		out[n] = l
	}
	return out, nil
}

// bytes encodes a book.
func encodeBook(peers map[lattice.NodeID]*listing) ([]byte, error) {
	f := bookFile{Version: bookVersion, Peers: []bookPeer{}}
	for n, l := range peers {
		p := bookPeer{Node: n.String(), Addresses: append([]string{}, l.addresses...), Seen: l.seen}
		for _, s := range l.invited {
			p.Invited = append(p.Invited, s.String())
		}
		f.Peers = append(f.Peers, p)
	}
	slices.SortFunc(f.Peers, func(a, b bookPeer) int { return cmp.Compare(a.Node, b.Node) })
	out, err := json.MarshalIndent(f, "", " ")
	return append(out, '\n'), err
}

// save writes what has changed. A crash before it forgets where peers were, no more.
func (b *book) save() error {
	b.saving.Lock()
	defer b.saving.Unlock()
	b.mu.Lock()
	if !b.dirty || b.to == nil {
		b.mu.Unlock()
		return nil
	}
	data, err := encodeBook(b.peers)
	b.dirty = false
	b.mu.Unlock()
	if err == nil {
		err = b.to.Save(data)
	}
	if err != nil {
		b.mu.Lock()
		b.dirty = true
		b.mu.Unlock()
		return fmt.Errorf("save the address book: %w", err)
	}
	return nil
}

// learn notes that a node is connected and says that it listens at these addresses.
func (b *book) learn(n lattice.NodeID, addresses []string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.list(n)
	if ms := now.UnixMilli(); ms-l.seen >= seenPrecision {
		l.seen, b.dirty = ms, true
	}
	b.put(l, addresses)
}

// remember notes where a node may be called, as somebody says.
func (b *book) remember(n lattice.NodeID, addresses []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put(b.list(n), addresses)
}

// hear notes where a node may be called, as another says: behind what is known better.
func (b *book) hear(n lattice.NodeID, addresses []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.list(n)
	for _, a := range addresses {
		if len(l.addresses) < maxAddresses && !slices.Contains(l.addresses, a) {
			l.addresses, b.dirty = append(l.addresses, a), true
		}
	}
}

// lastSeen is when a node was connected last; the zero time if that is not known.
func (b *book) lastSeen(n lattice.NodeID) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.peers[n]; l != nil && l.seen > 0 {
		return time.UnixMilli(l.seen)
	}
	return time.Time{}
}

// reached returns where a node listens, if it was connected since then.
func (b *book) reached(n lattice.NodeID, since time.Time) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.peers[n]; l != nil && l.seen >= since.UnixMilli() {
		return slices.Clone(l.addresses)
	}
	return nil
}

// invite notes that a node invited this one into a store.
func (b *book) invite(n lattice.NodeID, s lattice.StoreID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.list(n)
	if slices.Contains(l.invited, s) {
		return
	}
	if l.invited = append(l.invited, s); len(l.invited) > maxInvited {
		l.invited = l.invited[1:]
	}
	b.dirty = true
}

// put puts addresses in front.
func (b *book) put(l *listing, addresses []string) {
	all := slices.Clone(addresses)
	for _, a := range l.addresses {
		if !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	if all = all[:min(len(all), maxAddresses)]; !slices.Equal(all, l.addresses) {
		l.addresses, b.dirty = all, true
	}
}

// list returns a node's listing. For a new one, that which was seen longest ago goes,
// if there are too many.
func (b *book) list(n lattice.NodeID) *listing {
	if l := b.peers[n]; l != nil {
		return l
	}
	if len(b.peers) >= maxListed {
		var oldest lattice.NodeID
		least := int64(1<<63 - 1)
		for id, l := range b.peers {
			if len(l.invited) == 0 && l.seen < least {
				oldest, least = id, l.seen
			}
		}
		delete(b.peers, oldest)
	}
	l := &listing{}
	b.peers[n], b.dirty = l, true
	return l
}

// addresses returns where a node may be called, the newest first.
func (b *book) addresses(n lattice.NodeID) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.peers[n]; l != nil {
		return slices.Clone(l.addresses)
	}
	return nil
}

// invited reports whether a node invited this one into a store.
func (b *book) invited(n lattice.NodeID, s lattice.StoreID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.peers[n]
	return l != nil && slices.Contains(l.invited, s)
}

// inviters returns who invited this node into a store.
func (b *book) inviters(s lattice.StoreID) []lattice.NodeID {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []lattice.NodeID
	for n, l := range b.peers {
		if slices.Contains(l.invited, s) {
			out = append(out, n)
		}
	}
	return out
}
