package field

import (
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// copier copies what is left of a partition in transactions, some of which it
// aborts and does again: who reads what is committed sees a copy.
func (k kit) copier() {
	makeTopic(k.T, k.at, "copied", 1)
	out, err := k.try(nil, "TransactionalMessageCopier", "--input-topic", "console", "--input-partition", "0", "--output-topic", "copied",
		"--consumer-group", "copiers", "--transactional-id", "copier", "--transaction-size", "20", "--enable-random-aborts")
	if err != nil || !strings.Contains(out, `"totalProcessed":70,"consumed":70,"remaining":0}`) {
		k.Fatalf("%v: %s", err, out)
	}
	out = k.run(nil, "ConsoleConsumer", "--topic", "copied", "--from-beginning", "--isolation-level", "read_committed", "--max-messages", "70")
	var want strings.Builder
	for i := 20; i < 90; i++ {
		fmt.Fprintf(&want, "value %d ", i)
	}
	if !strings.Contains(out, want.String()) {
		k.Errorf("the copy is %s", out)
	}
}

func (k kit) transactions() {
	const tool = "TransactionsCommand"
	cl := observer(k.T, k.at, kgo.TransactionalID("stuck"))
	if err := cl.BeginTransaction(); err != nil {
		k.Fatal(err)
	}
	r := &kgo.Record{Topic: "copied", Value: []byte("undecided")}
	if err := cl.ProduceSync(k.Context(), r).FirstErr(); err != nil {
		k.Fatal(err)
	}
	id, _ := k.node()
	k.shows(" CompleteCommit ", nil, tool, "describe", "--transactional-id", "copier")
	k.shows(" Ongoing ", nil, tool, "list")
	k.shows(" copied-0 ", nil, tool, "describe", "--transactional-id", "stuck")
	k.shows(fmt.Sprintf(" %d ", r.Offset), nil, tool, "describe-producers", "--topic", "copied", "--partition", "0")
	k.run(nil, tool, "find-hanging", "--broker-id", fmt.Sprint(id))
	// It is not for transactions that their coordinator knows.
	k.refuses("attempted a transactional operation in an invalid state", tool, "abort", "--topic", "copied", "--partition", "0", "--start-offset", fmt.Sprint(r.Offset))
	k.run(nil, tool, "forceTerminateTransaction", "--transactionalId", "stuck")
	k.shows(" Empty ", nil, tool, "describe", "--transactional-id", "stuck")
	a := kadm.NewClient(cl)
	stable, err := a.ListCommittedOffsets(k.Context(), "copied")
	ends, err2 := a.ListEndOffsets(k.Context(), "copied")
	if err := errors.Join(err, err2, stable.Error(), ends.Error()); err != nil {
		k.Fatal(err)
	}
	if s, e := stable["copied"][0].Offset, ends["copied"][0].Offset; s != e || e <= r.Offset {
		k.Errorf("the last stable offset is %d, the end %d, after the transaction at %d was aborted", s, e, r.Offset)
	}
}
