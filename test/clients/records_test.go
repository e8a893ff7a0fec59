package clients

import (
	"strings"
	"testing"
)

const (
	perCodec   = 200
	partitions = 3
)

// records: every client writes with every codec, and every client reads every
// byte of it.
func (b *bench) records(t *testing.T) {
	for _, writer := range b.clients {
		t.Run("from-"+writer.name, func(t *testing.T) {
			topic := name("records", writer.name)
			if !writer.create(t, b.at, topic, partitions) {
				makeTopic(t, b.at, topic, partitions)
			}
			var sent, acked []record
			for _, codec := range everyCodec {
				records := writer.sample(codec, perCodec)
				sent = append(sent, records...)
				acked = append(acked, writer.produce(t, b.at, topic, codec, records)...)
			}
			there := observe(t, b.at, topic)
			stored := make([]record, len(there))
			for i, s := range there {
				stored[i] = s.record
			}
			checkInOrder(t, "what is there", stored, sent)
			if acked != nil {
				checkSame(t, "what is there and what was acknowledged", stored, acked)
			}
			checkBatches(t, there)
			for _, reader := range b.clients {
				t.Run("to-"+reader.name, func(t *testing.T) {
					t.Parallel()
					want := make([]record, len(stored))
					for i, r := range stored {
						want[i] = reader.shows(r)
					}
					checkSame(t, reader.name, reader.consume(t, b.at, topic), want)
				})
			}
		})
	}
}

// checkBatches fails unless what was written with a codec is stored in it, by
// an idempotent producer. Values begin with the name of their codec.
func checkBatches(t *testing.T, there []seen) {
	t.Helper()
	count := map[string]int{}
	for _, s := range there {
		if s.producer < 0 {
			t.Errorf("not written idempotently: %s", s.record)
			return
		}
		want, _, _ := strings.Cut(string(s.Value), " ")
		if isCodec(want) && s.codec != want && s.codec != "none" {
			t.Errorf("stored with %s: %s", s.codec, s.record)
			return
		}
		count[s.codec]++
	}
	for _, codec := range everyCodec {
		// Clients leave a batch as it is that would not get smaller.
		if count[codec] < perCodec*9/10 {
			t.Errorf("%d records are stored with %s, of %d", count[codec], codec, perCodec)
		}
	}
}

func isCodec(s string) bool {
	for _, codec := range everyCodec {
		if s == codec {
			return true
		}
	}
	return false
}
