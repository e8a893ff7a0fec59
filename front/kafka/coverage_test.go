package kafka

import (
	"flag"
	"os"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var rewrite = flag.Bool("rewrite", false, "write docs/protocol/kafka.md from the table")

func TestCoverageIsCurrent(t *testing.T) {
	const page = "../../docs/protocol/kafka.md"
	want := Coverage()
	if *rewrite {
		if err := os.MkdirAll("../../docs/protocol", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Errorf("%s is stale: go generate ./front/kafka", page)
	}
}

// TestTable holds the table to what clients need: this is the list of what is
// served, written down a second time.
func TestTable(t *testing.T) {
	want := map[int16][2]int16{
		0: {0, 13}, 1: {4, 18}, 2: {1, 11}, 3: {0, 13}, 8: {2, 10}, 9: {1, 10}, 10: {0, 6}, 11: {0, 9}, 12: {0, 4}, 13: {0, 5},
		14: {0, 5}, 15: {0, 6}, 16: {0, 5}, 18: {0, 4}, 19: {2, 7}, 20: {1, 6}, 21: {0, 2}, 22: {0, 5}, 23: {2, 4}, 24: {0, 5}, 25: {0, 4},
		26: {0, 4}, 27: {1, 2}, 28: {0, 4}, 32: {1, 4},
		33: {0, 2}, 34: {1, 2}, 35: {1, 4}, 37: {0, 3}, 42: {0, 2}, 43: {0, 2}, 44: {0, 1}, 45: {0, 1}, 46: {0, 0}, 47: {0, 0}, 50: {0, 0}, 51: {0, 0}, 57: {0, 2}, 60: {0, 2}, 61: {0, 0},
		65: {0, 0}, 66: {0, 2}, 68: {0, 1}, 69: {0, 1}, 74: {0, 1}, 75: {0, 0},
		76: {1, 1}, 77: {1, 1}, 78: {1, 2}, 79: {1, 2}, 90: {0, 1}, 91: {0, 0}, 92: {0, 0},
	}
	f := newFixture(t, Config{})
	for v := int16(0); v <= 4; v++ {
		resp := ask[*kmsg.ApiVersionsResponse](f.dial(), softwareReq(v, "a-client.1", "1.0"))
		if resp.ErrorCode != 0 || len(resp.ApiKeys) != len(want) {
			t.Errorf("version %d: error %d, %d keys, want %d", v, resp.ErrorCode, len(resp.ApiKeys), len(want))
		}
		for _, k := range resp.ApiKeys {
			if w, ok := want[k.ApiKey]; !ok || w != [2]int16{k.MinVersion, k.MaxVersion} {
				t.Errorf("version %d: key %d is %d to %d, want %v", v, k.ApiKey, k.MinVersion, k.MaxVersion, w)
			}
			if name := kmsg.NameForKey(k.ApiKey); name != f.srv.apis[k.ApiKey].name && name != "InitProducerID" && name != "AlterPartitionAssignments" {
				t.Errorf("key %d is %s, not %s", k.ApiKey, name, f.srv.apis[k.ApiKey].name)
			}
		}
		if v < 3 {
			continue
		}
		levels := map[string]int16{}
		for _, f := range resp.FinalizedFeatures {
			levels[f.Name] = f.MaxVersionLevel
		}
		if len(levels) != 2 || levels["group.version"] != 1 || levels["share.version"] != 1 {
			t.Errorf("version %d: features %+v", v, resp.FinalizedFeatures)
		}
		for _, bad := range []string{"", "-x", "x-", "a b", "ü"} {
			if r := ask[*kmsg.ApiVersionsResponse](f.dial(), softwareReq(v, bad, "1.0")); r.ErrorCode != 42 {
				t.Errorf("client name %q: error %d, want INVALID_REQUEST", bad, r.ErrorCode)
			}
		}
	}
}
