package kafka

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestScramCredentials: set, described without secrets, replaced and removed; what
// is wrong is refused for its user alone.
func TestScramCredentials(t *testing.T) {
	f := newFixture(t, Config{})
	c := f.dial()
	upsert := func(name string, mechanism int8, iterations int32, size int) kmsg.AlterUserSCRAMCredentialsRequestUpsertion {
		u := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
		u.Name, u.Mechanism, u.Iterations, u.Salt, u.SaltedPassword = name, mechanism, iterations, []byte("salt"), bytes.Repeat([]byte{7}, size)
		return u
	}
	remove := func(name string, mechanism int8) kmsg.AlterUserSCRAMCredentialsRequestDeletion {
		d := kmsg.NewAlterUserSCRAMCredentialsRequestDeletion()
		d.Name, d.Mechanism = name, mechanism
		return d
	}
	alter := func(deletions []kmsg.AlterUserSCRAMCredentialsRequestDeletion, upsertions ...kmsg.AlterUserSCRAMCredentialsRequestUpsertion) string {
		req := newReq[*kmsg.AlterUserSCRAMCredentialsRequest](0)
		req.Deletions, req.Upsertions = deletions, upsertions
		var out string
		for _, r := range ask[*kmsg.AlterUserSCRAMCredentialsResponse](c, req).Results {
			out += fmt.Sprintf("%s %d;", r.User, r.ErrorCode)
		}
		return out
	}
	describe := func(users ...string) string {
		req := newReq[*kmsg.DescribeUserSCRAMCredentialsRequest](0)
		for _, u := range users {
			x := kmsg.NewDescribeUserSCRAMCredentialsRequestUser()
			x.Name = u
			req.Users = append(req.Users, x)
		}
		resp := ask[*kmsg.DescribeUserSCRAMCredentialsResponse](c, req)
		var out string
		for _, r := range resp.Results {
			out += fmt.Sprintf("%s %d", r.User, r.ErrorCode)
			for _, i := range r.CredentialInfos {
				out += fmt.Sprintf(" %d:%d", i.Mechanism, i.Iterations)
			}
			out += ";"
		}
		return out
	}
	equal := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	equal(describe(), "")
	equal(alter(nil, upsert("ann", 1, 8192, 32), upsert("ann", 2, 4096, 64), upsert("bob", 1, 4096, 18)), "ann 0;bob 0;")
	equal(describe(), "ann 0 1:8192 2:4096;bob 0 1:4096;")
	equal(alter(nil, upsert("ann", 1, 4096, 32)), "ann 0;")
	equal(describe("ann", "eve", "bob", "bob"), fmt.Sprintf("ann 0 1:4096 2:4096;eve %d;bob %d;", kerr.ResourceNotFound.Code, kerr.DuplicateResource.Code))
	equal(alter(nil, upsert("few", 1, 100, 32), upsert("odd", 9, 4096, 32), upsert("", 1, 4096, 32), upsert("two", 1, 4096, 32), upsert("two", 1, 4096, 32)),
		fmt.Sprintf("few %d;odd %d; %[1]d;two %[3]d;", kerr.UnacceptableCredential.Code, kerr.UnsupportedSaslMechanism.Code, kerr.DuplicateResource.Code))
	equal(alter([]kmsg.AlterUserSCRAMCredentialsRequestDeletion{remove("ann", 1), remove("bob", 2)}), fmt.Sprintf("ann 0;bob %d;", kerr.ResourceNotFound.Code))
	equal(describe(), "ann 0 2:4096;bob 0 1:4096;")
}
