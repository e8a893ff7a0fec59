package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/structs"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
	pbconnect "github.com/lattice-log/lattice/proto/lattice/v1/latticev1connect"
)

// What one answer holds at most, beyond what a caller asks for.
const (
	listKeys  = 1000
	listBytes = 4 << 20
	headLimit = 10_000
	// contentItems bounds how many items of a hash, set or list are read at once.
	contentItems = 1_000_000
)

type keyService struct {
	*api
	pbconnect.UnimplementedKeyServiceHandler
}

var keyTypes = map[structs.Type]pb.KeyType{
	structs.String: pb.KeyType_KEY_TYPE_STRING, structs.Hash: pb.KeyType_KEY_TYPE_HASH, structs.Set: pb.KeyType_KEY_TYPE_SET,
	structs.SortedSet: pb.KeyType_KEY_TYPE_SORTED_SET, structs.List: pb.KeyType_KEY_TYPE_LIST,
}

// mapName returns the map of a request. System maps, whose names begin with "$",
// are not to be written.
func mapName(name string, write bool) (string, error) {
	switch {
	case name == "":
		return "0", nil
	case len(name) > state.MaxMap:
		return "", lattice.E(lattice.TooLarge, fmt.Errorf("a map's name of %d bytes: at most %d", len(name), state.MaxMap))
	case write && name[0] == '$':
		return "", lattice.E(lattice.Denied, fmt.Errorf("map %q belongs to the store itself", name))
	}
	return name, nil
}

// view runs f on one map of a store, waits until what it saw may be shown, and
// fills in the entries of the origins that f asked for.
func (a *api) view(ctx context.Context, storeName, m string, f func(o *origins, m *structs.Map) error) error {
	s, err := a.store(storeName)
	if err != nil {
		return err
	}
	if m, err = mapName(m, false); err != nil {
		return err
	}
	var o origins
	t, err := s.State().View(func(tx *keyval.Tx) error { return f(&o, structs.In(tx, m)) })
	if err != nil {
		return err
	}
	if err := t.Wait(ctx); err != nil {
		return err
	}
	return o.fill(s.State())
}

// origins are origins of what a transaction has read. The ids of their entries
// are known when what it has read is decided.
type origins struct {
	all  []*pb.Origin
	dots []state.Dot
}

func (o *origins) of(order state.Order) *pb.Origin {
	m := originMessage(order)
	o.all, o.dots = append(o.all, m), append(o.dots, order.Dot)
	return m
}

// fill adds the ids of the entries, or that one was pruned.
func (o *origins) fill(db *keyval.DB) error {
	for i, m := range o.all {
		id, err := db.EntryID(o.dots[i].Writer, o.dots[i].Seq)
		switch {
		case err == nil:
			m.Hash = id.String()
		case lattice.KindOf(err) == lattice.NotFound:
			m.Pruned = true
		default:
			return err
		}
	}
	return nil
}

func originMessage(o state.Order) *pb.Origin {
	d := o.Dot
	return &pb.Origin{
		Author: d.Writer.Author.String(), Time: timestamppb.New(time.UnixMilli(int64(o.Time >> 16))),
		Incarnation: d.Writer.Incarnation, Sequence: d.Seq, Index: d.Index,
	}
}

func (a keyService) Get(ctx context.Context, r *pb.KeyServiceGetRequest) (*pb.KeyServiceGetResponse, error) {
	var res *pb.KeyServiceGetResponse
	err := a.view(ctx, r.Store, r.Map, func(o *origins, m *structs.Map) (err error) {
		res, err = readKey(o, m, r.Key, true)
		return err
	})
	if err == nil && res == nil {
		err = noKey(r.Key)
	}
	return res, err
}

func noKey(key []byte) error {
	return lattice.E(lattice.NotFound, fmt.Errorf("there is no key %.128q", key))
}

// readKey reads a key, nil when there is none.
func readKey(o *origins, m *structs.Map, key []byte, contents bool) (*pb.KeyServiceGetResponse, error) {
	t, err := m.Type(key)
	if err != nil || t == structs.None {
		return nil, err
	}
	res := &pb.KeyServiceGetResponse{Key: slices.Clone(key), Content: &pb.Content{Type: keyTypes[t]}}
	at, _, err := m.ExpiresAt(key)
	if err != nil {
		return nil, err
	}
	if at != 0 {
		res.Expires = timestamppb.New(time.UnixMilli(at))
	}
	if !contents {
		return res, nil
	}
	last, conflicted, _, err := m.Last(key)
	if err != nil {
		return nil, err
	}
	res.Conflicted = conflicted
	res.Origin = o.of(last)
	return res, readContent(m, key, t, res.Content)
}

func readContent(m *structs.Map, key []byte, t structs.Type, c *pb.Content) error {
	n := 0
	item := func() bool { n++; return n <= contentItems }
	var err error
	switch t {
	case structs.String:
		var v structs.Value
		v, _, err = m.Get(key)
		c.Value = slices.Clone(v.Bytes)
	case structs.Hash:
		err = m.HScan(key, nil, func(field, value []byte) bool {
			c.Fields = append(c.Fields, &pb.KeyField{Field: slices.Clone(field), Value: slices.Clone(value)})
			return item()
		})
	case structs.Set:
		err = m.SScan(key, nil, func(member []byte) bool {
			c.Items = append(c.Items, slices.Clone(member))
			return item()
		})
	case structs.List:
		err = m.LScan(key, true, func(value []byte) bool {
			c.Items = append(c.Items, slices.Clone(value))
			return item()
		})
	case structs.SortedSet:
		err = m.ZScan(key, math.Inf(-1), false, func(s structs.Scored) bool {
			c.Scored = append(c.Scored, &pb.ScoredItem{Member: slices.Clone(s.Member), Score: s.Score})
			return item()
		})
	}
	if err == nil && n > contentItems {
		err = lattice.E(lattice.TooLarge, hinted(fmt.Errorf("the key holds more than %d items", contentItems), "read it in parts, with a Redis client"))
	}
	return err
}

func (a keyService) Write(ctx context.Context, r *pb.KeyServiceWriteRequest) (*pb.KeyServiceWriteResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	name, err := mapName(r.Map, true)
	if err != nil {
		return nil, err
	}
	res := &pb.KeyServiceWriteResponse{Existed: make([]bool, len(r.Writes)), Sums: make([]int64, len(r.Writes))}
	t, err := s.State().Update(func(tx *keyval.Tx) error {
		m := structs.In(tx, name)
		for i, w := range r.Writes {
			if err := applyWrite(m, w, &res.Existed[i], &res.Sums[i]); err != nil {
				return fmt.Errorf("key %.128q: %w", w.Key, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return res, t.Wait(ctx)
}

func applyWrite(m *structs.Map, w *pb.KeyWrite, existed *bool, sum *int64) error {
	t, err := m.Type(w.Key)
	if err != nil {
		return err
	}
	*existed = t != structs.None
	switch op := w.Write.(type) {
	case *pb.KeyWrite_Delete:
		_, err = m.Delete(w.Key)
		return err
	case *pb.KeyWrite_Increment:
		*sum, err = m.Incr(w.Key, op.Increment)
		return err
	case *pb.KeyWrite_Put:
		if err := putContent(m, w.Key, op.Put); err != nil || w.Expires == nil {
			return err
		}
		if err := w.Expires.CheckValid(); err != nil {
			return lattice.E(lattice.Invalid, fmt.Errorf("expires: %w", err))
		}
		_, err = m.ExpireAt(w.Key, w.Expires.AsTime().UnixMilli())
		return err
	}
	return lattice.E(lattice.Invalid, errors.New("the write says neither put, delete nor increment"))
}

func putContent(m *structs.Map, key []byte, c *pb.Content) error {
	if c.GetType() == pb.KeyType_KEY_TYPE_STRING || c.GetType() == pb.KeyType_KEY_TYPE_UNSPECIFIED {
		return m.Set(key, c.GetValue(), false)
	}
	if _, err := m.Delete(key); err != nil {
		return err
	}
	switch c.Type {
	case pb.KeyType_KEY_TYPE_HASH:
		for _, f := range c.Fields {
			if _, err := m.HSet(key, f.Field, f.Value); err != nil {
				return err
			}
		}
	case pb.KeyType_KEY_TYPE_SET:
		_, err := m.SAdd(key, c.Items...)
		return err
	case pb.KeyType_KEY_TYPE_LIST:
		_, err := m.Push(key, false, c.Items...)
		return err
	case pb.KeyType_KEY_TYPE_SORTED_SET:
		for _, s := range c.Scored {
			if err := m.ZSet(key, s.Member, s.Score); err != nil {
				return err
			}
		}
	default:
		return lattice.E(lattice.Unsupported, fmt.Errorf("key type %v is not known here", c.Type))
	}
	return nil
}

func (a keyService) List(ctx context.Context, r *pb.KeyServiceListRequest) (*pb.KeyServiceListResponse, error) {
	limit := int(r.Limit)
	if limit <= 0 || limit > listKeys {
		limit = listKeys
	}
	res := &pb.KeyServiceListResponse{}
	err := a.view(ctx, r.Store, r.Map, func(o *origins, m *structs.Map) error {
		from := r.Prefix
		if len(r.After) > 0 && bytes.Compare(r.After, from) >= 0 {
			from = append(slices.Clone(r.After), 0)
		}
		var keys [][]byte
		err := m.Keys(from, func(key []byte, _ structs.Type) bool {
			if !bytes.HasPrefix(key, r.Prefix) {
				return false
			}
			res.More = len(keys) == limit
			if !res.More {
				keys = append(keys, slices.Clone(key))
			}
			return !res.More
		})
		size := 0
		for i, key := range keys {
			if err != nil {
				return err
			}
			var k *pb.KeyServiceGetResponse
			if k, err = readKey(o, m, key, r.Contents); err != nil || k == nil {
				continue
			}
			res.Keys = append(res.Keys, k)
			if size += len(key) + contentSize(k.Content); size > listBytes && i < len(keys)-1 {
				res.More = true
				break
			}
		}
		return err
	})
	return res, err
}

func contentSize(c *pb.Content) int {
	n := len(c.Value)
	for _, f := range c.Fields {
		n += len(f.Field) + len(f.Value)
	}
	for _, i := range c.Items {
		n += len(i)
	}
	for _, s := range c.Scored {
		n += len(s.Member) + 8
	}
	return n
}

func (a keyService) Heads(ctx context.Context, r *pb.KeyServiceHeadsRequest) (*pb.KeyServiceHeadsResponse, error) {
	res := &pb.KeyServiceHeadsResponse{Key: r.Key}
	err := a.view(ctx, r.Store, r.Map, func(o *origins, m *structs.Map) error {
		heads, more, err := m.Heads(r.Key, headLimit)
		if err != nil {
			return err
		}
		res.Truncated = more
		for _, h := range heads {
			res.Heads = append(res.Heads, &pb.KeyHead{
				Type: keyTypes[h.Type], Item: h.Item, Value: h.Value, Origin: o.of(h.Order), Winner: h.Winner, Why: h.Why,
			})
		}
		return nil
	})
	if err == nil && len(res.Heads) == 0 {
		err = noKey(r.Key)
	}
	return res, err
}
