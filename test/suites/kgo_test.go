package suites

import (
	"os"
	"testing"
	"time"
)

// franzGo is the part of franz-go's suite that talks to a broker.
func franzGo() suite {
	return &goSuite{
		info: about{
			name: "kgo", title: "franz-go, pkg/kgo", version: "v1.22.3", limit: 10 * time.Minute,
			how: "Its tests that talk to a broker, with 50,000 records each (`KGO_TEST_RECORDS`) and one replica. The others of the package need no server.",
		},
		module: "github.com/twmb/franz-go",
		sum:    "h1:RHe35s34pKefMLyL+ZYJ6mQVtfFZz4zHDHVkTyACur0=",
		pkg:    "./pkg/kgo",
		parts:  true,
		// Its part for KIP-848 asks whether the server has that before it has asked the server.
		first: map[string]string{"TestGroupSimple": "TestPauseIssueOct2023"},
		only: []string{
			// client_test.go
			"TestUnknownGroupOffsetFetchPinned", "TestPing", "TestIssue1034", "TestShareGroup",
			// consumer_test.go
			"TestIssue325", "TestConsumeTopicRetrieval", "TestConsumeTopicRetrieval_Many", "TestConsumeRegex",
			"TestConsumeRegexShareSkipsInternal", "Test848RegexBrokerResolves", "TestIssue337", "TestDirectPartitionPurge",
			"TestIssue434", "TestAddRemovePartitions", "TestPauseIssue489", "TestPauseIssueOct2023", "TestIssue523",
			"TestIssue648", "TestIssue810", "TestIssue865", "TestIssueFetchLargerThanBrokerMaxReadBytes", "TestPooling",
			"TestGroupSimple", "TestHookPollStart", "TestConsumeMaxDecompressBatchBytes",
			// group_test.go, produce_request_test.go, share_test.go, txn_test.go
			"TestGroupETL",
			"TestClient_Produce", "TestIssue769", "TestIssueProduceBrokerTooOldFailsRecords",
			"TestIssueProduceSyncManualPartitionNegativeDoesNotPanic", "TestIssue831", "TestClient_ProduceLargeMessages",
			"TestShareGroupETL", "TestShareGroupAckOnClose", "TestShareGroupOffsetsAdmin",
			"TestTxnEtl",
		},
		besides: func(_ *testing.T, at place) []string {
			env := []string{"KGO_SEEDS=" + at.node.Kafka, "KGO_TEST_RF=1", "KGO_LOG_LEVEL=none"}
			if os.Getenv("KGO_TEST_RECORDS") == "" {
				env = append(env, "KGO_TEST_RECORDS=50000")
			}
			return env
		},
	}
}
