package field

import (
	"fmt"
	"strings"
)

// setGroup lets a share group begin with the first record.
func (k kit) setGroup(group string) {
	k.Helper()
	k.shows("Completed updating config for group "+group+".", nil, "ConfigCommand", "--entity-type", "groups", "--entity-name", group, "--alter", "--add-config", "share.auto.offset.reset=earliest")
}

// shareConsume reads what is left of the topic: the first 20 records were deleted.
func (k kit) shareConsume() {
	k.setGroup("console-sharers")
	out := k.run(nil, "ConsoleShareConsumer", "--topic", "console", "--group", "console-sharers", "--max-messages", "70")
	for i := 20; i < 90; i++ {
		if want := fmt.Sprintf("value %d ", i); strings.Count(out, want) != 1 {
			k.Fatalf("printed\n%s\nwithout %q, or more than once", out, want)
		}
	}
}

func (k kit) verifiableShareConsumer() {
	k.setGroup("verifiable-sharers")
	out := k.run(nil, "VerifiableShareConsumer", "--topic", "verifiable", "--group-id", "verifiable-sharers", "--max-messages", "200", "--acknowledgement-mode", "sync")
	counts := map[string]int64{}
	for _, e := range k.events(out) {
		counts[e.Name] += e.Count
	}
	if counts["records_consumed"] != 200 || counts["offsets_acknowledged"] != 200 {
		k.Errorf("read %d and acknowledged %d, want 200: %s", counts["records_consumed"], counts["offsets_acknowledged"], out)
	}
}

func (k kit) shareConsumerPerformance() {
	k.setGroup("perf-sharers")
	k.shows(", 20000, ", nil, "ShareConsumerPerformance", "--topic", "perf", "--num-records", "20000", "--group", "perf-sharers")
}

func (k kit) shareGroup() {
	const tool = "ShareGroupCommand"
	of := []string{"--group", "console-sharers"}
	k.shows("console-sharers ", nil, tool, "--list")
	k.shows("console-sharers console 0 90 0 ", nil, tool, append(of, "--describe")...)
	k.shows(" Empty 0 ", nil, tool, append(of, "--describe", "--state")...)
	k.shows("console-sharers console 0 20 ", nil, tool, append(of, "--topic", "console", "--reset-offsets", "--to-earliest", "--execute")...)
	k.shows("console-sharers console 0 20 70 ", nil, tool, append(of, "--describe")...)
	k.shows("console Successful ", nil, tool, append(of, "--topic", "console", "--delete-offsets")...)
	k.shows("was successful", nil, tool, "--group", "verifiable-sharers", "--delete")
	k.refuses("GroupIdNotFoundException", tool, "--group", "verifiable-sharers", "--delete")
}
