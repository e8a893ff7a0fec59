package kafka

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteGroups (key 42), versions 0 to 2 (KIP-229).
//
//	v2  flexible
//
// The answer comes when the groups' offsets are gone, durably.

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
		s.groups.DeleteGroup(name, func(err error) {
			out.ErrorCode, out.ErrorMessage = s.fail(err)
			done()
		})
	}
	done()
	return nil
}
