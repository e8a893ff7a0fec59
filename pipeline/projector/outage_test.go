package projector_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/projection"
	"github.com/lattice-log/lattice/pipeline/projector"
	"github.com/lattice-log/lattice/pipeline/projector/projectortest"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/sqldb/sqldbtest"
	"github.com/lattice-log/lattice/pipeline/topic"
)

// TestBrokerGone ends the broker while events come, and starts it again on its address.
func TestBrokerGone(t *testing.T) {
	dir := t.TempDir()
	address, stop := startNodeAt(t, dir, "127.0.0.1:0")
	r := projectortest.New(t, address, sqldbtest.SQLite(t), nil)
	p, _ := r.Start(r.Options())
	for range 2 {
		r.Follow(60)
		stop()
		time.Sleep(300 * time.Millisecond) // so long that commits and fetches fail
		_, stop = startNodeAt(t, dir, address)
		r.Follow(60)
	}
	r.Await()
	r.Verify()
	r.Patches()
	noLetters(r)
	if n := sum(p, func(c projector.Counts) int64 { return c.Applied }); n != 3*240 {
		t.Errorf("%d were applied", n)
	}
}

func noLetters(r *projectortest.Rig) {
	r.T.Helper()
	if counts, err := r.Store.Count(r.T.Context(), projection.Filter{}); err != nil || len(counts) != 0 {
		r.T.Errorf("dead letters %v, %v", counts, err)
	}
}

// TestOutOfOrder delivers each event of an entity behind its successor. The ledger has them.
func TestOutOfOrder(t *testing.T) {
	l, err := ledger.Open(t.Context(), sqldbtest.Open(t, sqldbtest.SQLite(t)), ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := projectortest.New(t, startNode(t), sqldbtest.SQLite(t), l)
	p, _ := r.Start(r.Options())
	r.FollowByLedger(l, 60, func(int) bool { return false })
	for i := 0; i < 60; i += 6 { // three users take turns: 3, 4, 5 come before 0, 1, 2
		r.Produce(r.Sent[i+3 : i+6]...)
		r.Produce(r.Sent[i : i+3]...)
	}
	r.Await()
	r.Until("what came late is a duplicate", func() bool { return sum(p, func(c projector.Counts) int64 { return c.Duplicates }) == 3*30 })
	r.Verify()
	r.Patches()
	noLetters(r)
}

// rebalanceInBatch holds the database up while a batch is being applied, and has another
// instance join meanwhile, so that partitions are taken away in the middle of it.
func rebalanceInBatch(r *projectortest.Rig) {
	a, _ := r.Start(r.Options())
	r.Follow(50)
	r.Await()
	held, release, freed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		freed <- r.DB.Write(r.T.Context(), func(tx sqldb.Tx) error {
			_, err := tx.Exec(r.T.Context(), "UPDATE projection_head SET position = position WHERE id = 1")
			close(held)
			<-release
			return err
		})
	}()
	<-held
	r.Follow(100)
	r.Until("records wait", func() bool {
		n := 0
		for _, s := range a.Status() {
			n += len(s.Partitions)
		}
		return n == 3*projectortest.Partitions
	})
	b, _ := r.Start(r.Options())
	time.Sleep(time.Second) // the first is asked for partitions, and cannot let them go yet
	close(release)
	if err := <-freed; err != nil {
		r.T.Fatal(err)
	}
	r.Until("the second has some", func() bool {
		for _, s := range b.Status() {
			if len(s.Partitions) == 0 {
				return false
			}
		}
		return true
	})
	r.Follow(30)
	r.Await()
	r.Verify()
	r.Patches()
	noLetters(r)
}

// badInput sends records of every kind that is no event, among good ones.
func badInput(r *projectortest.Rig) {
	r.Start(r.Options())
	r.Follow(10)
	model := r.Event("nobody", map[string]any{"user_id": "nobody", "artist_id": "x"})
	good, err := model.Encode()
	if err != nil {
		r.T.Fatal(err)
	}
	delete(r.N, "nobody")
	without := func(name string) string {
		var m map[string]any
		if err := json.Unmarshal(good, &m); err != nil {
			r.T.Fatal(err)
		}
		delete(m, name)
		b, _ := json.Marshal(m)
		return string(b)
	}
	bad := map[string]string{
		"empty": "", "no JSON": "\x00\xff{", "half": string(good[:len(good)/2]), "two": string(good) + string(good), "a list": "[1]",
		"deep":              strings.Replace(string(good), `"x"`, strings.Repeat("[", 5000)+strings.Repeat("]", 5000), 1),
		"a number for text": strings.Replace(string(good), `"nobody"`, "7", 1), "a text for a number": strings.Replace(string(good), `"sequenceNumber":1`, `"sequenceNumber":"1"`, 1),
		"negative": strings.Replace(string(good), `"sequenceNumber":1`, `"sequenceNumber":-1`, 1), "a huge number": strings.Replace(string(good), `"sequenceNumber":1`, `"sequenceNumber":1e400`, 1),
		"a list for the payload": strings.Replace(string(good), `"payload":{`, `"payload":[{`, 1) + "]",
	}
	bad["a giant"] = strings.Replace(string(good), `"x"`, `"`+strings.Repeat("x", 800<<10)+`"`, 1)
	for _, name := range []string{"eventType", "entityId", "forkId", "tenantSchema", "sequenceNumber", "ts", "payload"} {
		bad["no "+name] = without(name)
	}
	for _, value := range bad {
		r.Raw(&kgo.Record{Topic: topic.ProjectionEvents, Key: []byte("user-1"), Value: []byte(value)})
		r.Follow(7) // too many dead letters in a row would pause the partition
	}
	r.Await()
	r.Verify()
	kept := map[string]bool{}
	r.Until("each is a dead letter with its bytes", func() bool {
		all, err := r.Store.Letters(r.T.Context(), projection.Filter{State: projection.StateWaiting})
		if err != nil {
			r.T.Fatal(err)
		}
		for _, l := range all {
			kept[string(l.Record)] = true
		}
		return len(kept) == len(bad)
	})
	for name, value := range bad {
		if !kept[value] {
			r.T.Errorf("%s is not among the dead letters", name)
		}
	}
}

// manyLetters has so many events in a row that cannot be applied that the partition pauses.
// It goes on when it is told to, and the dead letters can be settled while it is paused.
func manyLetters(r *projectortest.Rig) {
	p, _ := r.Start(r.Options())
	r.Follow(7)
	r.Await()
	const n = 14
	for i := range n { // one key, so one partition: each is another entity's
		e := r.Event(fmt.Sprint("bad-", i), map[string]any{"user_id": "u", "artist_id": nil})
		b, err := e.Encode()
		if err != nil {
			r.T.Fatal(err)
		}
		delete(r.N, e.EntityID)
		r.Raw(&kgo.Record{Topic: topic.ProjectionEvents, Key: []byte("bad"), Value: b})
	}
	paused := func() (all int) {
		for _, s := range p.Status() {
			for _, part := range s.Partitions {
				if part.Paused != "" {
					all++
				}
			}
		}
		return all
	}
	waiting := func() []projection.Letter {
		all, err := r.Store.Letters(r.T.Context(), projection.Filter{State: projection.StateWaiting})
		if err != nil {
			r.T.Fatal(err)
		}
		return all
	}
	r.Until("each projection's partition is paused", func() bool { return paused() == 3 })
	if have := len(waiting()); have != 3*10 {
		r.T.Errorf("%d dead letters, want ten of each projection", have)
	}
	settle := func() {
		for _, l := range waiting() {
			if applied, err := r.Store.Retry(r.T.Context(), l.ID, "test"); applied != 0 || err == nil || l.Class != event.ClassData {
				r.T.Fatalf("%d, %v, %+v", applied, err, l)
			}
			if _, err := r.Store.Discard(r.T.Context(), l.ID, "test", "no artist"); err != nil {
				r.T.Fatal(err)
			}
		}
	}
	settle()
	for _, q := range r.App.Projections {
		if p.Resume(q.Name) != 1 {
			r.T.Errorf("%s was not paused", q.Name)
		}
	}
	r.Until("the others are dead letters, too", func() bool { return len(waiting()) == 3*(n-10) })
	settle()
	r.Follow(20)
	r.Await()
	r.Until("nothing is paused", func() bool { return paused() == 0 })
	r.Verify()
	r.Patches()
}
