package kafka

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteGroups (key 42), versions 0 to 2 (KIP-229).
//
//	v2  flexible
//
// The answer comes when the groups' offsets are gone, durably, those of share groups
// too.

func (c *conn) deleteGroups(r *request) error {
	req, unlock, err := decode[*kmsg.DeleteGroupsRequest](c, r)
	if err != nil {
		return err
	}
	defer unlock()
	s := c.srv
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	resp.Groups = make([]kmsg.DeleteGroupsResponseGroup, len(req.Groups))
	var left atomic.Int32
	left.Store(int32(len(req.Groups)) + 1)
	done := func() {
		if left.Add(-1) == 0 {
			r.answer(resp)
		}
	}
	for i, name := range req.Groups {
		out := &resp.Groups[i]
		out.Group = name
		answer := func(err error) {
			out.ErrorCode, out.ErrorMessage = s.fail(err)
			done()
		}
		if _, err := s.shares.Describe(name); err == nil {
			s.shares.DeleteGroup(name, answer)
			continue
		}
		s.store.DeleteGroup(name, answer)
	}
	done()
	return nil
}
