package crash

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// catalogue is what was acknowledged of topics that come and go. makeTopics
// owns it while it runs, checkTopics between.
type catalogue struct {
	next          int
	made, deleted int
	there         map[string]kadm.TopicID // acknowledged, and nobody tried to delete it
	gone          map[string]bool         // deletion acknowledged
}

// makeTopics makes one topic after the other and deletes every other one.
func (w *world) makeTopics() {
	c, err := kgo.NewClient(kgo.SeedBrokers(w.at), kgo.RequestRetries(0))
	if err != nil {
		w.t.Error(err)
		return
	}
	defer c.Close()
	a, l := kadm.NewClient(c), &w.catalogue
	if l.there == nil {
		l.there, l.gone = map[string]kadm.TopicID{}, map[string]bool{}
	}
	for ; w.going.Load(); time.Sleep(20 * time.Millisecond) {
		// Each name once: whether a failed attempt made it is not known.
		name := fmt.Sprintf("made-%d", l.next)
		l.next++
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		made, err := a.CreateTopic(ctx, 1, 1, nil, name)
		if err == nil {
			l.made++
			l.there[name] = made.ID
			if l.next%2 == 0 {
				delete(l.there, name)
				if _, err := a.DeleteTopic(ctx, name); err == nil {
					l.deleted++
					l.gone[name] = true
				}
			}
		}
		cancel()
	}
}

// checkTopics fails unless the topics that were made are there, as they were
// made, and those that were deleted are not.
func (w *world) checkTopics(ctx context.Context, t *testing.T, a *kadm.Client) {
	t.Helper()
	all, err := a.ListTopics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for name, id := range w.catalogue.there {
		if d, ok := all[name]; !ok || d.Err != nil || d.ID != id || len(d.Partitions) != 1 {
			t.Errorf("topic %s was made with id %v; now there: %t, %+v", name, id, ok, d)
		}
	}
	for name := range w.catalogue.gone {
		if all.Has(name) {
			t.Errorf("topic %s was deleted and is there", name)
		}
	}
}
