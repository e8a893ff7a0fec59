package client

import (
	"context"
	"fmt"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// KeyType is the data type of a key, as Redis names it.
type KeyType string

const (
	StringKey    KeyType = "string"
	HashKey      KeyType = "hash"
	SetKey       KeyType = "set"
	SortedSetKey KeyType = "zset"
	ListKey      KeyType = "list"
)

var keyTypes = map[pb.KeyType]KeyType{
	pb.KeyType_KEY_TYPE_STRING: StringKey, pb.KeyType_KEY_TYPE_HASH: HashKey, pb.KeyType_KEY_TYPE_SET: SetKey,
	pb.KeyType_KEY_TYPE_SORTED_SET: SortedSetKey, pb.KeyType_KEY_TYPE_LIST: ListKey,
}

func (t KeyType) message() pb.KeyType {
	for m, k := range keyTypes {
		if k == t {
			return m
		}
	}
	return pb.KeyType_KEY_TYPE_UNSPECIFIED
}

// Content is what a key holds. Type says which of the others counts.
type Content struct {
	Type   KeyType
	Value  []byte       // of a string
	Fields []KeyField   // of a hash, ascending
	Items  [][]byte     // of a set, ascending; of a list, in order
	Scored []ScoredItem // of a sorted set, ascending by score
}

// KeyField is a field of a hash.
type KeyField struct{ Field, Value []byte }

// ScoredItem is a member of a sorted set.
type ScoredItem struct {
	Member []byte
	Score  float64
}

// Origin says who wrote something, and when.
type Origin struct {
	Author      string    // public key in hex
	Time        time.Time // by the writer's hybrid clock
	Hash        string    // id of the entry in hex
	Incarnation uint64
	Sequence    uint64
	Index       uint32
	// Pruned: the node pruned the entry, so its Hash is not known, and empty; the
	// store's Floor says up to where.
	Pruned bool
}

// Key is a key with what a plain read of it returns.
type Key struct {
	Key []byte
	Content
	Conflicted bool      // other versions stand beside it: see Heads
	Origin     Origin    // of the version that won
	Expires    time.Time // zero: never
}

// KeyHead is one current version of a key, or of one item of it.
type KeyHead struct {
	Type   KeyType
	Item   []byte // field, member or position; empty for a string
	Value  []byte
	Origin Origin
	Winner bool   // a plain read returns it
	Why    string // for people
}

// KeyEvent is something that was done to a key, or, with Floor set and nothing else, the
// last that a node knows: what was done before was pruned there.
type KeyEvent struct {
	What   string // for people
	Item   []byte
	Value  []byte
	Origin Origin
	Floor  *Floor
}

// KeyChange is a change of a key, as Watch tells it. One of Lagged, CaughtUp and
// Key is set.
type KeyChange struct {
	// Lagged: this watcher fell behind further than the node's memory goes. Nothing
	// is missing: what it was not told yet follows.
	Lagged bool
	// CaughtUp: everything up to now was told; from here on changes come as they
	// happen. It comes again now and then, with a newer Resume.
	CaughtUp   bool
	Key        []byte
	Deleted    bool
	Type       KeyType
	Value      []byte // of a string
	Conflicted bool
	Origin     Origin
	Resume     []byte // where another watch goes on after this; nil while Current tells the keys
}

// Keys are the keys of one named map of the client's store. Safe for concurrent use.
type Keys struct {
	c *Client
	m string
}

// Keys returns the keys of a map; "" means "0", the database that Redis clients
// see first.
func (c *Client) Keys(m string) Keys { return Keys{c, m} }

// Get reads a key. Kind NotFound.
func (k Keys) Get(ctx context.Context, key []byte) (Key, error) {
	res, err := k.c.keys.Get(ctx, &pb.KeyServiceGetRequest{Store: k.c.store, Map: k.m, Key: key})
	if err != nil {
		return Key{}, err
	}
	return keyOf(res), nil
}

// Put makes a key a string.
func (k Keys) Put(ctx context.Context, key, value []byte) error {
	return k.Write(ctx, new(KeyBatch).Put(key, Content{Type: StringKey, Value: value}, time.Time{}))
}

// Delete removes a key and reports whether it was there.
func (k Keys) Delete(ctx context.Context, key []byte) (bool, error) {
	b := new(KeyBatch).Delete(key)
	if err := k.Write(ctx, b); err != nil {
		return false, err
	}
	return b.Existed[0], nil
}

// KeyBatch is writes that are applied together: seen whole or not at all, on
// every node. Write fills in the results.
type KeyBatch struct {
	writes []*pb.KeyWrite
	// Existed says for each write whether the key was there before, Sums what an
	// increment came to.
	Existed []bool
	Sums    []int64
}

// Put makes a key this, whatever it was. A zero time: it does not expire.
func (b *KeyBatch) Put(key []byte, c Content, expires time.Time) *KeyBatch {
	w := &pb.KeyWrite{Key: key, Write: &pb.KeyWrite_Put{Put: contentMessage(c)}}
	if !expires.IsZero() {
		w.Expires = timestamppb.New(expires)
	}
	b.writes = append(b.writes, w)
	return b
}

// Delete ends all that the node knows of a key.
func (b *KeyBatch) Delete(key []byte) *KeyBatch {
	b.writes = append(b.writes, &pb.KeyWrite{Key: key, Write: &pb.KeyWrite_Delete{Delete: true}})
	return b
}

// Increment adds to an integer.
func (b *KeyBatch) Increment(key []byte, by int64) *KeyBatch {
	b.writes = append(b.writes, &pb.KeyWrite{Key: key, Write: &pb.KeyWrite_Increment{Increment: by}})
	return b
}

// Len returns the number of writes.
func (b *KeyBatch) Len() int { return len(b.writes) }

// Write applies a batch, and returns when it is durable.
func (k Keys) Write(ctx context.Context, b *KeyBatch) error {
	res, err := k.c.keys.Write(ctx, &pb.KeyServiceWriteRequest{Store: k.c.store, Map: k.m, Writes: b.writes})
	if err != nil {
		return err
	}
	b.Existed, b.Sums = res.Existed, res.Sums
	return nil
}

// List yields the keys that begin with prefix, ascending; with contents, what they
// hold as well. It ends after the first error.
func (k Keys) List(ctx context.Context, prefix []byte, contents bool) iter.Seq2[Key, error] {
	return func(yield func(Key, error) bool) {
		req := &pb.KeyServiceListRequest{Store: k.c.store, Map: k.m, Prefix: prefix, Contents: contents}
		for {
			res, err := k.c.keys.List(ctx, req)
			if err != nil {
				yield(Key{}, err)
				return
			}
			for _, m := range res.Keys {
				if !yield(keyOf(m), nil) {
					return
				}
				req.After = m.Key
			}
			if !res.More || len(res.Keys) == 0 {
				return
			}
		}
	}
}

// Heads returns every current version of a key, the winner first; more is true
// when there are more than one answer holds. Kind NotFound.
func (k Keys) Heads(ctx context.Context, key []byte) (heads []KeyHead, more bool, err error) {
	res, err := k.c.keys.Heads(ctx, &pb.KeyServiceHeadsRequest{Store: k.c.store, Map: k.m, Key: key})
	if err != nil {
		return nil, false, err
	}
	for _, h := range res.Heads {
		heads = append(heads, KeyHead{keyTypes[h.Type], h.Item, h.Value, originOf(h.Origin), h.Winner, h.Why})
	}
	return heads, res.Truncated, nil
}

// History yields what was done to a key, the newest first, as far back as the node's logs
// go: where it pruned them, the last event says so, with Floor set. limit 0: all.
func (k Keys) History(ctx context.Context, key []byte, limit int) iter.Seq2[KeyEvent, error] {
	return func(yield func(KeyEvent, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := k.c.keys.History(ctx, &pb.KeyServiceHistoryRequest{Store: k.c.store, Map: k.m, Key: key, Limit: int32(limit)})
		if err != nil {
			yield(KeyEvent{}, k.c.failure(err))
			return
		}
		defer stream.Close()
		for stream.Receive() {
			m := stream.Msg()
			if !yield(KeyEvent{m.What, m.Item, m.Value, originOf(m.Origin), floorOf(m.Floor)}, nil) {
				return
			}
		}
		if err := stream.Err(); err != nil {
			yield(KeyEvent{}, k.c.failure(err))
		}
	}
}

// WatchOptions say where a watch begins. Without any: now.
type WatchOptions struct {
	From    []byte // a Resume of an earlier watch
	Current bool   // begin with the keys as they are
}

// Watch yields the changes of the keys that begin with prefix, until ctx ends or
// the first error. A change says what the key is when it is told: a key that is
// gone is never shown as live. Kinds OutOfRange (changes since From were pruned)
// and Diverged (what had counted does not any more): begin anew with Current.
// Unavailable: the node stops; go on from the last Resume.
func (k Keys) Watch(ctx context.Context, prefix []byte, o WatchOptions) iter.Seq2[KeyChange, error] {
	return func(yield func(KeyChange, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := k.c.keys.Watch(ctx, &pb.KeyServiceWatchRequest{Store: k.c.store, Map: k.m, Prefix: prefix, From: o.From, Current: o.Current})
		if err != nil {
			yield(KeyChange{}, k.c.failure(err))
			return
		}
		defer stream.Close()
		for stream.Receive() {
			if !yield(changeOf(stream.Msg()), nil) {
				return
			}
		}
		if err := stream.Err(); err != nil {
			yield(KeyChange{}, k.c.failure(err))
		}
	}
}

// ProveKey returns a proof file for what a key holds, or that there is no such
// key: text, to be checked with package core/proof or "lattice verify", without
// the node. Kind TooLarge.
func (k Keys) ProveKey(ctx context.Context, key []byte) ([]byte, error) {
	res, err := k.c.proofs.Key(ctx, &pb.ProofServiceKeyRequest{Store: k.c.store, Map: k.m, Key: key})
	if err != nil {
		return nil, err
	}
	return res.Proof, nil
}

func keyOf(m *pb.KeyServiceGetResponse) Key {
	k := Key{Key: m.Key, Content: contentOf(m.Content), Conflicted: m.Conflicted, Origin: originOf(m.Origin)}
	if m.Expires != nil {
		k.Expires = m.Expires.AsTime()
	}
	return k
}

func changeOf(m *pb.KeyServiceWatchResponse) KeyChange {
	c := KeyChange{Resume: m.Resume, Lagged: m.GetLagged(), CaughtUp: m.GetCaughtUp()}
	if ch := m.GetChange(); ch != nil {
		c.Key, c.Deleted, c.Type, c.Value = ch.Key, ch.Deleted, keyTypes[ch.Type], ch.Value
		c.Conflicted, c.Origin = ch.Conflicted, originOf(ch.Origin)
		if c.Key == nil {
			c.Key = []byte{}
		}
	}
	return c
}

func originOf(m *pb.Origin) Origin {
	o := Origin{Author: m.GetAuthor(), Hash: m.GetHash(), Incarnation: m.GetIncarnation(), Sequence: m.GetSequence(), Index: m.GetIndex(), Pruned: m.GetPruned()}
	if t := m.GetTime(); t != nil {
		o.Time = t.AsTime()
	}
	return o
}

func contentOf(m *pb.Content) Content {
	c := Content{Type: keyTypes[m.GetType()], Value: m.GetValue(), Items: m.GetItems()}
	for _, f := range m.GetFields() {
		c.Fields = append(c.Fields, KeyField{f.Field, f.Value})
	}
	for _, s := range m.GetScored() {
		c.Scored = append(c.Scored, ScoredItem{s.Member, s.Score})
	}
	return c
}

func contentMessage(c Content) *pb.Content {
	m := &pb.Content{Type: c.Type.message(), Value: c.Value, Items: c.Items}
	for _, f := range c.Fields {
		m.Fields = append(m.Fields, &pb.KeyField{Field: f.Field, Value: f.Value})
	}
	for _, s := range c.Scored {
		m.Scored = append(m.Scored, &pb.ScoredItem{Member: s.Member, Score: s.Score})
	}
	return m
}

// String is for people: author, time and entry, shortened.
func (o Origin) String() string {
	short := func(s string) string { return s[:min(len(s), 12)] }
	return fmt.Sprintf("%s at %s (entry %s)", short(o.Author), o.Time.UTC().Format(time.RFC3339Nano), short(o.Hash))
}
