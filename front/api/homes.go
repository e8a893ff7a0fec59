package api

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/store"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// Groups whose home is another node. A call about one goes there, and its answer is the
// caller's. The bytes of an ask, as another node's mesh carries them:
//
//	 0  "A"     HomeAsk
//	 1  version u8 = 1
//	 2  method  u8
//	 3  caller  u16, so many bytes: whose call it is, for people
//	    the request, as protobuf
//
// and of an answer: version u8 = 1, and the response, as protobuf.

// HomeAsk is what an ask of this front end begins with.
const HomeAsk = 'A'

const homeVersion = 1

// The methods. The numbers are in messages.
const (
	callList byte = iota + 1
	callDescribe
	callReset
	callDelete
	callHeartbeat
	callCommit
	callMove
)

// homeWait is how long a home's answer may take.
const homeWait = 30 * time.Second

// forwarded marks the context of a call that came from another node, with the name of
// who called there: it is forwarded no further.
type forwarded struct{}

// askHome has the home of a group answer a call, into res; false: it is at home here, or
// nowhere. use: the group gets a home if it has none.
func askHome(ctx context.Context, s *store.Store, name string, use bool, method byte, req, res proto.Message) (bool, error) {
	if ctx.Value(forwarded{}) != nil {
		return false, nil
	}
	home, err := s.Coordinator(name, use)
	switch {
	case errors.Is(err, store.ErrHomeAway):
		return true, hinted(err, "bring that node back, or give the group another home: lattice group move --force")
	case err != nil:
		return true, groupError(name, err)
	case home == s.Info().Node:
		return false, nil
	}
	if err := call(ctx, s, home, method, req, res); err != nil {
		return true, groupError(name, err)
	}
	return true, nil
}

// answered is the answer of a home, or why there is none.
func answered[R any](res *R, err error) (*R, error) {
	if err != nil {
		return nil, err
	}
	return res, nil
}

// call has another node answer a call.
func call(ctx context.Context, s *store.Store, home lattice.NodeID, method byte, req, res proto.Message) error {
	caller := peerOf(ctx)
	ask := binary.BigEndian.AppendUint16([]byte{HomeAsk, homeVersion, method}, uint16(len(caller)))
	ask, err := proto.MarshalOptions{}.MarshalAppend(append(ask, caller...), req)
	if err != nil {
		return err
	}
	type answer struct {
		b   []byte
		err error
	}
	got := make(chan answer, 1)
	cancel := s.Ask(home, ask, homeWait, func(b []byte, err error) { got <- answer{b, err} })
	select {
	case a := <-got:
		if a.err != nil {
			return a.err
		}
		if len(a.b) == 0 || a.b[0] != homeVersion {
			return lattice.E(lattice.Unsupported, fmt.Errorf("%s answers in a version that is not known here", home.Short()))
		}
		return proto.Unmarshal(a.b[1:], res)
	case <-ctx.Done():
		cancel()
		return ctx.Err()
	}
}

// AnswerHome answers a call that a client of another member made about a group that is at
// home here. Nothing of it is believed: from may be hostile. Errors besides the methods':
// those of Store.AtHome, Unsupported, Invalid.
func AnswerHome(ctx context.Context, st *store.Store, from lattice.NodeID, ask []byte) ([]byte, error) {
	bad := lattice.E(lattice.Invalid, errors.New("no call of the API"))
	if len(ask) < 5 || ask[0] != HomeAsk {
		return nil, bad
	}
	if ask[1] != homeVersion {
		return nil, lattice.E(lattice.Unsupported, fmt.Errorf("calls of version %d are not answered", ask[1]))
	}
	n := int(binary.BigEndian.Uint16(ask[3:]))
	if n > len(ask)-5 {
		return nil, bad
	}
	caller := string(ask[5 : 5+n])
	c := called{context.WithValue(ctx, forwarded{}, caller), st, from, groupService{&api{cfg: Config{Stores: Fixed{st}}}}, ask[5+n:]}
	res, err := c.answer(ask[2])
	if err != nil {
		return nil, err
	}
	return proto.MarshalOptions{}.MarshalAppend([]byte{homeVersion}, res)
}

// called is a call of another node.
type called struct {
	ctx  context.Context
	st   *store.Store
	from lattice.NodeID
	groupService
	body []byte
}

func (c called) answer(method byte) (proto.Message, error) {
	switch method {
	case callList:
		res := &pb.GroupServiceListResponse{}
		for _, g := range listed(c.st) {
			if g.Home == c.st.Info().Node.String() {
				res.Groups = append(res.Groups, g)
			}
		}
		return res, nil
	case callDescribe:
		r := &pb.GroupServiceDescribeRequest{}
		return answerCall(c, false, r, func() { r.Store = "" }, c.Describe)
	case callReset:
		r := &pb.GroupServiceResetRequest{}
		return answerCall(c, true, r, func() { r.Store = "" }, c.Reset)
	case callDelete:
		r := &pb.GroupServiceDeleteRequest{}
		return answerCall(c, true, r, func() { r.Store = "" }, c.Delete)
	case callHeartbeat:
		r := &pb.GroupServiceHeartbeatRequest{}
		return answerCall(c, true, r, func() { r.Store = "" }, c.Heartbeat)
	case callCommit:
		r := &pb.GroupServiceCommitRequest{}
		return answerCall(c, true, r, func() { r.Store = "" }, c.Commit)
	case callMove:
		r := &pb.GroupServiceMoveRequest{}
		return answerCall(c, true, r, func() { r.Store, r.Force = "", false }, c.Move)
	}
	return nil, lattice.E(lattice.Unsupported, fmt.Errorf("method %d is not answered for other nodes", method))
}

// answerCall parses a request into r, checks its sender, and has do answer it.
func answerCall[Q interface {
	proto.Message
	GetGroup() string
}, R proto.Message](c called, change bool, r Q, local func(), do func(context.Context, Q) (R, error)) (proto.Message, error) {
	if err := proto.Unmarshal(c.body, r); err != nil {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("a call of another node: %w", err))
	}
	local() // the store is the one that was asked of, whatever it is called there
	if err := c.st.AtHome(r.GetGroup(), c.from, change); err != nil {
		return nil, err
	}
	return do(c.ctx, r)
}

// unknownState is the state of a group whose home cannot be asked.
const unknownState = "Unknown"

// listed returns what this node knows of its groups, and the names of those that are at
// home elsewhere, sorted by name.
func listed(s *store.Store) []*pb.Group {
	homes, me := s.GroupHomes(), s.Info().Node
	var all []*pb.Group
	for _, g := range allGroups(s) {
		home, known := homes[g.Group]
		if known && home != me && g.Type != group.Share && !s.Stray(g.Group) {
			continue
		}
		delete(homes, g.Group)
		o := &pb.Group{Name: g.Group, State: string(g.State), Type: g.Type.String(), ProtocolType: g.ProtocolType, Members: int32(g.Members)}
		if known && g.Type != group.Share {
			o.Home = home.String()
		}
		all = append(all, o)
	}
	for name, home := range homes {
		if home != me {
			all = append(all, &pb.Group{Name: name, State: unknownState, Home: home.String()})
		}
	}
	slices.SortFunc(all, func(a, b *pb.Group) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// listHomes asks each home of groups that is not this node what those are.
func listHomes(ctx context.Context, s *store.Store, all []*pb.Group) {
	me := s.Info().Node.String()
	asked := map[string]map[string]*pb.Group{}
	for i, g := range all {
		if g.Home == "" || g.Home == me || g.State != unknownState {
			continue
		}
		theirs, ok := asked[g.Home]
		if !ok {
			theirs = map[string]*pb.Group{}
			asked[g.Home] = theirs
			res := &pb.GroupServiceListResponse{}
			id, err := lattice.ParseAuthorID(g.Home)
			if err == nil && s.Reaches(id) {
				err = call(ctx, s, id, callList, &pb.GroupServiceListRequest{}, res)
			}
			if err != nil {
				continue // its groups stay unknown
			}
			for _, t := range res.Groups {
				theirs[t.Name] = t
			}
		}
		if t := theirs[g.Name]; t != nil {
			all[i] = t
		}
	}
}

func (a groupService) Move(ctx context.Context, r *pb.GroupServiceMoveRequest) (*pb.GroupServiceMoveResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	to, err := memberNamed(s, r.To)
	if err != nil {
		return nil, err
	}
	me := s.Info().Node
	old, known := s.GroupHome(r.Group)
	res := &pb.GroupServiceMoveResponse{Home: to.String()}
	if known {
		res.OldHome = old.Node.String()
	}
	switch {
	case known && old.Node == to:
		return res, nil
	case !known || old.Node == me:
		return res, groupError(r.Group, s.MoveGroup(r.Group, to))
	case !s.Reaches(old.Node) && r.Force:
		return res, groupError(r.Group, s.TakeGroup(r.Group, to))
	case !s.Reaches(old.Node):
		return nil, groupError(r.Group, hinted(fmt.Errorf("its home is %s: %w", old.Node.Short(), store.ErrHomeAway),
			"bring that node back, or take the group from it with --force: members there and here then get the same records until it is back"))
	}
	ask := &pb.GroupServiceMoveRequest{Group: r.Group, To: to.String()}
	if err := call(ctx, s, old.Node, callMove, ask, &pb.GroupServiceMoveResponse{}); err != nil {
		return nil, groupError(r.Group, err)
	}
	return res, awaitHome(ctx, s, r.Group, to)
}

// awaitHome waits until this node knows of a move, for a while: what is asked here next
// goes to the new home.
func awaitHome(ctx context.Context, s *store.Store, name string, to lattice.NodeID) error {
	ctx, cancel := context.WithTimeout(ctx, leadWait)
	defer cancel()
	for {
		if h, ok := s.GroupHome(name); ok && h.Node == to {
			return nil
		}
		select {
		case <-ctx.Done():
			return groupError(name, lattice.E(lattice.Unavailable, errors.New("it was moved, and this node has not heard of it yet")))
		case <-time.After(leadPause):
		}
	}
}
