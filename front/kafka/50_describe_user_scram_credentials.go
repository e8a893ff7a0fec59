package kafka

import (
	"slices"

	"github.com/lattice-log/lattice/engine/store"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeUserScramCredentials (key 50), version 0 (KIP-554).
//
// It says which mechanisms a user has a credential for, and the iterations of
// each; salts and keys never leave the node.

func (c *conn) describeUserScramCredentials(_ *request, req *kmsg.DescribeUserSCRAMCredentialsRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.DescribeUserSCRAMCredentialsResponse)
	all, err := s.store.ScramCredentials()
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = s.fail(err)
		return resp
	}
	var users []string
	for _, u := range req.Users {
		users = append(users, u.Name)
	}
	if req.Users == nil {
		for _, cred := range all {
			users = append(users, cred.User)
		}
		users = slices.Compact(users)
	}
	done := map[string]bool{}
	for _, name := range users {
		if done[name] {
			continue
		}
		done[name] = true
		resp.Results = append(resp.Results, s.scramOf(name, all, times(users, name) > 1))
	}
	return resp
}

func times(names []string, name string) (n int) {
	for _, x := range names {
		if x == name {
			n++
		}
	}
	return n
}

func (s *Server) scramOf(name string, all []store.ScramCredential, twice bool) kmsg.DescribeUserSCRAMCredentialsResponseResult {
	out := kmsg.NewDescribeUserSCRAMCredentialsResponseResult()
	out.User = name
	for _, cred := range all {
		if cred.User == name {
			info := kmsg.NewDescribeUserSCRAMCredentialsResponseResultCredentialInfo()
			info.Mechanism, info.Iterations = int8(cred.Mechanism), int32(cred.Iterations)
			out.CredentialInfos = append(out.CredentialInfos, info)
		}
	}
	switch {
	case twice:
		out.CredentialInfos = nil
		out.ErrorCode, out.ErrorMessage = s.fail(refuse(kerr.DuplicateResource, "user %q is asked for more than once", name))
	case len(out.CredentialInfos) == 0:
		out.ErrorCode, out.ErrorMessage = s.fail(refuse(kerr.ResourceNotFound, "user %q has no SCRAM credentials", name))
	}
	return out
}
