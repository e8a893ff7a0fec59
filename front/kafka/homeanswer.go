package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What the home of a group is asked by other nodes, for their clients. Each such request
// is a request here, of a connection that there is not: it is decoded, checked and
// answered as a client's own.
//
// The bytes of an ask, as another node's mesh carries them (integers are big-endian):
//
//	 0  "K"      HomeAsk
//	 1  key      i16
//	 3  version  i16
//	 5  client   u16, so many bytes: client.id
//	    host     u16, so many bytes: the client's address, for people
//	    the request's body, of that version
//
// and of an answer: the answer's body, of that version.

// HomeAsk is what an ask of this front end begins with.
const HomeAsk = 'K'

// homeAsk is a client's request on its way to the home of a group.
type homeAsk struct {
	key, version int16
	client, host string
	body         []byte
}

func (a homeAsk) appendTo(b []byte) []byte {
	b = appendInt16(appendInt16(append(b, HomeAsk), a.key), a.version)
	for _, s := range []string{a.client, a.host} {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
	}
	return append(b, a.body...)
}

// parseHomeAsk reads it; body aliases b.
func parseHomeAsk(b []byte) (homeAsk, error) {
	d := decoder{b: b}
	first := d.int8()
	a := homeAsk{key: d.int16(), version: d.int16()}
	a.client = string(d.span(int(uint16(d.int16()))))
	a.host = string(d.span(int(uint16(d.int16()))))
	a.body = d.b
	if first != HomeAsk {
		return a, errMalformed
	}
	return a, d.err()
}

// AnswerHome does what a client of another member asks of groups that are at home here,
// and calls done once, possibly before it returns, with the answer's body or why there is
// none. Nothing of it is believed: from may be hostile. cancel has whoever waits for others
// be answered now. Errors besides those of Store.AtHome: kind Invalid, Unsupported, TooLarge.
func (s *Server) AnswerHome(from lattice.NodeID, ask []byte, done func([]byte, error)) (cancel func()) {
	a, err := parseHomeAsk(ask)
	var api *api
	if err == nil {
		api = s.apis.find(a.key)
		if api == nil || api.home == homeNone || a.version < api.min || a.version > api.max {
			err = lattice.E(lattice.Unsupported, fmt.Errorf("api key %d version %d is not answered for other nodes", a.key, a.version))
		}
	}
	if err == nil {
		err = s.mayAsk(from, api, a)
	}
	if err != nil {
		done(nil, err)
		return func() {}
	}
	return s.here(a, func(body []byte, err error) { done(body, err) })
}

// mayAsk says whether the groups that an ask names are at home here, and its sender may
// ask.
func (s *Server) mayAsk(from lattice.NodeID, api *api, a homeAsk) error {
	r := request{api: api, version: a.version, body: a.body}
	req, unlock, err := decode[kmsg.Request](&conn{srv: s}, &r)
	if err != nil {
		return err
	}
	defer unlock()
	for _, name := range groupsOf(req) {
		err = errors.Join(err, s.store.AtHome(name, from, api.home.changes()))
	}
	return err
}

// here answers a request as if a client of this node had sent it.
func (s *Server) here(a homeAsk, done func([]byte, error)) (cancel func()) {
	addr, _ := netip.ParseAddr(a.host) // of people's interest only
	c := &conn{srv: s, addr: addr, ctx: context.Background()}
	c.moved.L = &c.mu
	r := &request{
		c: c, api: s.apis.find(a.key), version: a.version, client: []byte(a.client), body: a.body, start: time.Now(),
		told: func(body []byte) { done(body, nil) },
	}
	c.head = r
	if err := r.api.serve(c, r); err != nil {
		done(nil, err)
	}
	return c.hurry
}

// tell gives the answer to whoever asked, without the frame around it.
func (r *request) tell() {
	c := r.c
	c.mu.Lock()
	c.head, r.hurry = nil, nil
	c.mu.Unlock()
	if r.out == nil {
		return // it does not parse, as its caller is told
	}
	frame := 4 + 4 // length, correlation id
	if r.flexible() {
		frame++
	}
	body := bytes.Clone(r.out.b[frame:])
	c.srv.bufs.put(r.out)
	r.out = nil
	r.told(body)
}

// groupsOf lists the groups that a request names.
func groupsOf(req kmsg.Request) []string {
	switch q := req.(type) {
	case *kmsg.JoinGroupRequest:
		return []string{q.Group}
	case *kmsg.SyncGroupRequest:
		return []string{q.Group}
	case *kmsg.HeartbeatRequest:
		return []string{q.Group}
	case *kmsg.LeaveGroupRequest:
		return []string{q.Group}
	case *kmsg.ConsumerGroupHeartbeatRequest:
		return []string{q.Group}
	case *kmsg.OffsetCommitRequest:
		return []string{q.Group}
	case *kmsg.OffsetDeleteRequest:
		return []string{q.Group}
	case *kmsg.OffsetFetchRequest:
		if q.Version < 8 {
			return []string{q.Group}
		}
		var names []string
		for i := range q.Groups {
			names = append(names, q.Groups[i].Group)
		}
		return names
	case *kmsg.DescribeGroupsRequest:
		return q.Groups
	case *kmsg.ConsumerGroupDescribeRequest:
		return q.Groups
	case *kmsg.DeleteGroupsRequest:
		return q.Groups
	}
	return nil // ListGroups
}

// only returns a request about some of the groups of another.
func only(req kmsg.Request, names []string) kmsg.Request {
	in := func(name string) bool { return slices.Contains(names, name) }
	pick := func(all []string) (some []string) {
		for _, name := range all {
			if in(name) {
				some = append(some, name)
			}
		}
		return some
	}
	switch q := req.(type) {
	case *kmsg.OffsetFetchRequest:
		part := *q
		part.Groups = nil
		for _, g := range q.Groups {
			if in(g.Group) {
				part.Groups = append(part.Groups, g)
			}
		}
		return &part
	case *kmsg.DescribeGroupsRequest:
		part := *q
		part.Groups = pick(q.Groups)
		return &part
	case *kmsg.ConsumerGroupDescribeRequest:
		part := *q
		part.Groups = pick(q.Groups)
		return &part
	case *kmsg.DeleteGroupsRequest:
		part := *q
		part.Groups = pick(q.Groups)
		return &part
	}
	return req // ListGroups: all of them
}
