package kafka

import (
	"errors"
	"sync/atomic"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Groups whose home is another node. Clients see this node as the coordinator of every
// group; what they ask of one that is at home elsewhere goes there as they sent it, and the
// home's answer is theirs (homeanswer.go is its end). A request about several groups is cut
// into one for each home.
//
// Two errors are this node's own, both of which clients retry after a while:
// COORDINATOR_NOT_AVAILABLE, if the home is out of reach, or did not answer: what it was
// asked may have been done, as with any coordinator that is lost; and NOT_COORDINATOR, when
// the connection closes, or the node stops, while a member waits for others.

// homing says how an API has to do with the home of groups.
type homing uint8

const (
	homeNone       homing = iota
	homeRead              // of the group that the request begins with
	homeChange            // likewise, changes something
	homeUse               // likewise, and gives the group a home if it has none
	homeReadMany          // of any number of groups
	homeChangeMany        // likewise, changes something
	homeList              // of all groups
)

func (h homing) changes() bool { return h == homeChange || h == homeUse || h == homeChangeMany }

// errNotHere means that a request is this node's own to answer.
var errNotHere = errors.New("this node answers it")

const (
	// longestJoin bounds how long a member waits for others of a group at home elsewhere.
	longestJoin = 24 * time.Hour
	// longestSync likewise, for its assignment: the home ends it sooner.
	longestSync = time.Hour
)

// byHome has the homes of groups answer a request, or says errNotHere. Other errors close
// the connection.
func (c *conn) byHome(r *request) error {
	s := c.srv
	if r.told != nil {
		return errNotHere // what another node forwarded is forwarded no further
	}
	if r.api.home >= homeReadMany || r.api.key == kmsg.OffsetFetch.Int16() && r.version >= 8 {
		if !s.store.AnyHomeElsewhere() {
			return errNotHere
		}
		return c.bySeveral(r)
	}
	d := decoder{b: r.body, flexible: r.flexible()}
	name := d.string()
	if d.bad {
		return errNotHere // as will be found out
	}
	home, err := s.store.Coordinator(string(name), r.api.home == homeUse)
	switch {
	case err != nil:
		return c.refuseHome(r, err)
	case home == s.store.Info().Node:
		return errNotHere
	}
	var stop atomic.Pointer[func()]
	first := r.orElse(func() {
		if f := stop.Load(); f != nil {
			(*f)()
		}
		_ = c.refuseHome(r, kerr.NotCoordinator) // nobody reads it
	})
	ask := homeAsk{key: r.api.key, version: r.version, client: r.clientID(), host: c.addr.String(), body: r.body}
	cancel := s.store.Ask(home, ask.appendTo(nil), r.homeWait(d), func(body []byte, err error) {
		if !first() {
			return
		}
		if err == nil && r.api.key == kmsg.OffsetFetch.Int16() {
			err = s.hearOffsets(body, r.version)
		}
		if err != nil {
			_ = c.refuseHome(r, homeError(err)) // it was decoded by who answered, or is answered as it can be
			return
		}
		r.answerBody(body)
	})
	stop.Store(&cancel)
	return nil
}

// homeWait is how long a home may take for a request whose group was read from d.
func (r *request) homeWait(d decoder) time.Duration {
	switch r.api.key {
	case kmsg.JoinGroup.Int16():
		wait := d.int32()
		if r.version >= 1 {
			wait = max(wait, d.int32())
		}
		return min(millis(max(wait, 0))+time.Minute+usualWait, longestJoin)
	case kmsg.SyncGroup.Int16():
		return longestSync
	}
	return usualWait
}

// homeError is what a client is told of an error that a home, or the way there, made.
func homeError(err error) error {
	var a *store.Answered
	if errors.As(err, &a) {
		return refuse(answeredError(a), "%s", a.Text)
	}
	return refuse(kerr.CoordinatorNotAvailable, "%v", err)
}

// answerBody queues an answer that is encoded.
func (r *request) answerBody(body []byte) {
	out := r.begin(len(body))
	out.b = append(out.b, body...)
	r.reply(out)
}

// refuseHome answers a request about groups with an error. It fails if the request does
// not parse.
func (c *conn) refuseHome(r *request, err error) error {
	req, unlock, derr := c.decodeAny(r)
	if derr != nil {
		r.silence()
		c.close()
		return nil
	}
	defer unlock()
	r.answer(c.srv.refused(req, err))
	return nil
}

func (c *conn) decodeAny(r *request) (kmsg.Request, func(), error) {
	return decode[kmsg.Request](c, r)
}

// hearOffsets notes how far a home says that groups have read: who gets that goes on
// there, also where the records up to it are not here yet.
func (s *Server) hearOffsets(body []byte, version int16) error {
	resp := kmsg.NewPtrOffsetFetchResponse()
	resp.SetVersion(version)
	if err := resp.ReadFrom(body); err != nil {
		return err
	}
	hear := func(name string, id [16]byte, partition int32, offset int64) {
		topic := lattice.TopicID(id)
		if name != "" {
			topic, _ = s.store.TopicIDOf(name)
		}
		s.store.HearEnd(lattice.TopicPartition{Topic: topic, Partition: partition}, offset)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			hear(t.Topic, [16]byte{}, p.Partition, p.Offset)
		}
	}
	for _, g := range resp.Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				hear(t.Topic, t.TopicID, p.Partition, p.Offset)
			}
		}
	}
	return nil
}

// refused is the answer to a request about groups that fails as a whole.
func (s *Server) refused(req kmsg.Request, err error) kmsg.Response {
	code, text := s.fail(err)
	switch q := req.(type) {
	case *kmsg.JoinGroupRequest:
		resp := q.ResponseKind().(*kmsg.JoinGroupResponse)
		resp.ErrorCode, resp.Generation, resp.MemberID = code, -1, q.MemberID
		if q.Version < 7 {
			resp.Protocol = new(string) // null is legal from version 7
		}
		return resp
	case *kmsg.SyncGroupRequest:
		resp := q.ResponseKind().(*kmsg.SyncGroupResponse)
		resp.ErrorCode = code
		return resp
	case *kmsg.HeartbeatRequest:
		resp := q.ResponseKind().(*kmsg.HeartbeatResponse)
		resp.ErrorCode = code
		return resp
	case *kmsg.LeaveGroupRequest:
		resp := q.ResponseKind().(*kmsg.LeaveGroupResponse)
		resp.ErrorCode = code
		return resp
	case *kmsg.ConsumerGroupHeartbeatRequest:
		resp := q.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
		resp.ErrorCode, resp.ErrorMessage = code, text
		return resp
	case *kmsg.OffsetCommitRequest:
		return refusedCommit(q, code)
	case *kmsg.OffsetDeleteRequest:
		resp := q.ResponseKind().(*kmsg.OffsetDeleteResponse)
		resp.ErrorCode = code
		return resp
	case *kmsg.OffsetFetchRequest:
		return refusedFetch(q, code)
	case *kmsg.DescribeGroupsRequest:
		resp := q.ResponseKind().(*kmsg.DescribeGroupsResponse)
		for _, name := range q.Groups {
			g := kmsg.NewDescribeGroupsResponseGroup()
			g.Group, g.ErrorCode, g.ErrorMessage = name, code, text
			resp.Groups = append(resp.Groups, g)
		}
		return resp
	case *kmsg.ConsumerGroupDescribeRequest:
		resp := q.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
		for _, name := range q.Groups {
			g := kmsg.NewConsumerGroupDescribeResponseGroup()
			g.Group, g.ErrorCode, g.ErrorMessage = name, code, text
			resp.Groups = append(resp.Groups, g)
		}
		return resp
	case *kmsg.DeleteGroupsRequest:
		resp := q.ResponseKind().(*kmsg.DeleteGroupsResponse)
		for _, name := range q.Groups {
			g := kmsg.NewDeleteGroupsResponseGroup()
			g.Group, g.ErrorCode, g.ErrorMessage = name, code, text
			resp.Groups = append(resp.Groups, g)
		}
		return resp
	}
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	resp.ErrorCode = code
	return resp
}

func refusedCommit(q *kmsg.OffsetCommitRequest, code int16) kmsg.Response {
	resp := q.ResponseKind().(*kmsg.OffsetCommitResponse)
	for i := range q.Topics {
		t := kmsg.NewOffsetCommitResponseTopic()
		t.Topic, t.TopicID = q.Topics[i].Topic, q.Topics[i].TopicID
		for _, p := range q.Topics[i].Partitions {
			out := kmsg.NewOffsetCommitResponseTopicPartition()
			out.Partition, out.ErrorCode = p.Partition, code
			t.Partitions = append(t.Partitions, out)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// refusedFetch has the error where its version has a place for it.
func refusedFetch(q *kmsg.OffsetFetchRequest, code int16) kmsg.Response {
	resp := q.ResponseKind().(*kmsg.OffsetFetchResponse)
	resp.ErrorCode = code
	for i := range q.Groups {
		g := kmsg.NewOffsetFetchResponseGroup()
		g.Group, g.ErrorCode = q.Groups[i].Group, code
		resp.Groups = append(resp.Groups, g)
	}
	if q.Version >= 2 {
		return resp
	}
	for i := range q.Topics {
		t := kmsg.NewOffsetFetchResponseTopic()
		t.Topic = q.Topics[i].Topic
		for _, p := range q.Topics[i].Partitions {
			out := kmsg.NewOffsetFetchResponseTopicPartition()
			out.Partition, out.Offset, out.LeaderEpoch, out.Metadata, out.ErrorCode = p, -1, -1, new(string), code
			t.Partitions = append(t.Partitions, out)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}
