package group

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

var topicNames = rapid.StringMatching(`[a-z.]{1,8}`)

// TestProtocolBytes reads what a Kafka client's own encoder writes, of every version.
func TestProtocolBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sub := kmsg.NewConsumerMemberMetadata()
		sub.Version = rapid.Int16Range(0, 3).Draw(t, "version")
		sub.Topics = rapid.SliceOf(topicNames).Draw(t, "topics")
		sub.UserData = rapid.SliceOf(rapid.Byte()).Draw(t, "user data")
		sub.Generation = 7
		rack := "r"
		sub.Rack = &rack
		owned := kmsg.NewConsumerMemberMetadataOwnedPartition()
		owned.Topic, owned.Partitions = "o", []int32{1, 2}
		sub.OwnedPartitions = append(sub.OwnedPartitions, owned)
		got, err := parseSubscription(sub.AppendTo(nil))
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(sub.Topics)
		slices.Sort(want)
		if !slices.Equal(got, slices.Compact(want)) {
			t.Fatalf("%v is read as %v", sub.Topics, got)
		}

		as := kmsg.NewConsumerMemberAssignment()
		as.Version = rapid.Int16Range(0, 3).Draw(t, "version")
		for _, name := range rapid.SliceOfDistinct(topicNames, rapid.ID).Draw(t, "assigned") {
			topic := kmsg.NewConsumerMemberAssignmentTopic()
			topic.Topic, topic.Partitions = name, rapid.SliceOf(rapid.Int32()).Draw(t, "partitions")
			as.Topics = append(as.Topics, topic)
		}
		as.UserData = rapid.SliceOf(rapid.Byte()).Draw(t, "user data")
		assigned, err := parseAssignment(as.AppendTo(nil))
		if err != nil || len(assigned) != len(as.Topics) {
			t.Fatalf("%v is read as %v (%v)", as.Topics, assigned, err)
		}
		for i, topic := range as.Topics {
			slices.Sort(topic.Partitions)
			if assigned[i].Name != topic.Topic || !slices.Equal(assigned[i].Partitions, topic.Partitions) {
				t.Fatalf("%v is read as %v", topic, assigned[i])
			}
		}
	})
}

// FuzzProtocolBytes checks, for any input: no panic; what is read is not more
// than the bytes can hold; what kmsg can read, we can.
func FuzzProtocolBytes(f *testing.F) {
	f.Add(subscription("t", "u"))
	f.Add(assignment("t", 1, 2))
	f.Add([]byte{0, 0, 0x7f, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		topics, err := parseSubscription(b)
		if len(topics)*2 > len(b) || len(strings.Join(topics, "")) > len(b) {
			t.Fatalf("%d topics out of %d bytes", len(topics), len(b))
		}
		var sub kmsg.ConsumerMemberMetadata
		if sub.ReadFrom(b) == nil && err != nil && sub.Version >= 0 {
			t.Fatalf("kmsg reads %v, we refuse: %v", sub.Topics, err)
		}
		assigned, err := parseAssignment(b)
		n := 0
		for _, a := range assigned {
			n += 6 + len(a.Name) + 4*len(a.Partitions)
		}
		if n > len(b) {
			t.Fatalf("%d bytes of assignment out of %d bytes", n, len(b))
		}
		var as kmsg.ConsumerMemberAssignment
		if as.ReadFrom(b) == nil && err != nil && as.Version >= 0 {
			t.Fatalf("kmsg reads %v, we refuse: %v", as.Topics, err)
		}
	})
}
