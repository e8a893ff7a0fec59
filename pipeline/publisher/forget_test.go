package publisher_test

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/publisher"
	"github.com/lattice-log/lattice/pipeline/topic"
)

// Chosen events are published once more by hand.
func TestRepublish(t *testing.T) {
	c := fake(t)
	r := newRig(t, c.ListenAddrs(), nil)
	r.commit(5)
	r.await()
	two, err := r.ledger.Events(t.Context(), 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.pub.Republish(t.Context(), two...); err != nil {
		t.Fatal(err)
	}
	if extra := r.verify(c.ListenAddrs()); extra != 4 { // two events, two topics
		t.Errorf("%d records more, want 4", extra)
	}
}

func TestFireAndForget(t *testing.T) {
	c := fake(t)
	r := newRig(t, c.ListenAddrs(), func(o *publisher.Options) { o.Mode = publisher.FireAndForget; o.Ledger.Name = "" })
	r.commit(50)
	r.until("all is published", func(s publisher.Stats) bool { return s.Published == 100 })
	refused := false
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		refused = true
		return refuse(req.(*kmsg.ProduceRequest), kerr.TopicAuthorizationFailed.Code), nil, true
	})
	r.commit(1)
	r.until("what was refused is counted", func(s publisher.Stats) bool { return s.Lost > 0 })
	r.commit(20)
	s := publisher.Stats{}
	r.until("the rest is published", func(now publisher.Stats) bool { s = now; return s.Published+s.Lost >= 142 })
	if n := int64(len(consume(t, c.ListenAddrs(), topic.ProjectionEvents))); !refused || n != s.Published || s.Published < 140 {
		t.Errorf("%d records, %+v", n, s)
	}
	// What is lost on the topic is in the ledger, and nothing heals it by itself.
	if head, _ := r.ledger.Head(t.Context()); head != 142 {
		t.Errorf("head %d", head)
	}
}

func TestOptionsRefused(t *testing.T) {
	for says, o := range map[string]publisher.Options{
		"no topic":     {},
		"publish mode": {Mode: "heal", Projection: topic.Spec{Name: "x"}},
		"name":         {Name: "a\nb", Projection: topic.Spec{Name: "x"}},
	} {
		if _, err := publisher.New(nil, o); lattice.KindOf(err) != lattice.Invalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want one that says %q", o, err, says)
		}
	}
}
