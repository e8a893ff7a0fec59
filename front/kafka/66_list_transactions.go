package kafka

import (
	"regexp"
	"slices"

	"github.com/lattice-log/lattice/engine/txn"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListTransactions (key 66), versions 0 to 2 (KIP-664).
//
//	v1  those that are under way for longer than a time (KIP-994)
//	v2  those whose id a pattern matches, all of it (KIP-1152)

func (c *conn) listTransactions(r *request, req *kmsg.ListTransactionsRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.ListTransactionsResponse)
	pattern, err := idPattern(req, r.version)
	if err != nil {
		resp.ErrorCode = s.code(refuse(kerr.InvalidRegularExpression, "pattern %q: %v", *req.TransactionalIDPattern, err))
		return resp
	}
	for _, name := range req.StateFilters {
		if !validState(name) {
			resp.UnknownStateFilters = append(resp.UnknownStateFilters, name)
		}
	}
	now := s.cfg.Clock.Now().UnixMilli()
	for _, t := range s.txns.List() {
		long := r.version < 1 || req.DurationFilterMillis < 0 ||
			!t.Started.IsZero() && now-t.Started.UnixMilli() > req.DurationFilterMillis
		switch {
		case len(req.StateFilters) > 0 && !slices.Contains(req.StateFilters, t.State.String()):
		case len(req.ProducerIDFilters) > 0 && !slices.Contains(req.ProducerIDFilters, t.Producer):
		case pattern != nil && !pattern.MatchString(t.ID):
		case long:
			out := kmsg.NewListTransactionsResponseTransactionState()
			out.TransactionalID, out.ProducerID, out.TransactionState = t.ID, t.Producer, t.State.String()
			resp.TransactionStates = append(resp.TransactionStates, out)
		}
	}
	return resp
}

// idPattern returns nil when every id will do.
func idPattern(req *kmsg.ListTransactionsRequest, version int16) (*regexp.Regexp, error) {
	if version < 2 || deref(req.TransactionalIDPattern) == "" {
		return nil, nil
	}
	return regexp.Compile("^(?:" + *req.TransactionalIDPattern + ")$")
}

// validState reports whether Kafka has a state of that name, whether it occurs
// here or not.
func validState(name string) bool {
	for s := txn.Empty; s <= txn.CompleteAbort; s++ {
		if s.String() == name {
			return true
		}
	}
	return name == "Dead" || name == "PrepareEpochFence"
}
