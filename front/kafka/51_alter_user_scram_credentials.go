package kafka

import (
	"errors"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterUserScramCredentials (key 51), version 0 (KIP-554).
//
// Credentials are kept for listeners with SASL. There are none yet, as in a Kafka
// cluster whose listeners are all plain, so they decide nothing until then. Each user's changes are
// made in the order of the request; a credential that is named twice is refused.

func (c *conn) alterUserScramCredentials(_ *request, req *kmsg.AlterUserSCRAMCredentialsRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.AlterUserSCRAMCredentialsResponse)
	named := map[scramName]int{}
	for _, d := range req.Deletions {
		named[scramName{d.Name, d.Mechanism}]++
	}
	for _, u := range req.Upsertions {
		named[scramName{u.Name, u.Mechanism}]++
	}
	at := map[string]int{} // result of each user
	add := func(user string, mechanism int8, change func() error) {
		i, ok := at[user]
		if !ok {
			i = len(resp.Results)
			at[user] = i
			out := kmsg.NewAlterUserSCRAMCredentialsResponseResult()
			out.User = user
			resp.Results = append(resp.Results, out)
		}
		if resp.Results[i].ErrorCode != 0 {
			return
		}
		err := error(nil)
		if named[scramName{user, mechanism}] > 1 {
			err = refuse(kerr.DuplicateResource, "a credential of user %q is named more than once", user)
		} else {
			err = scramError(change())
		}
		resp.Results[i].ErrorCode, resp.Results[i].ErrorMessage = s.fail(err)
	}
	for _, d := range req.Deletions {
		add(d.Name, d.Mechanism, func() error {
			return s.store.DeleteScramCredential(d.Name, store.ScramMechanism(d.Mechanism))
		})
	}
	for _, u := range req.Upsertions {
		add(u.Name, u.Mechanism, func() error {
			cred, err := store.NewScramCredential(u.Name, store.ScramMechanism(u.Mechanism), u.Iterations, u.Salt, u.SaltedPassword)
			if err != nil {
				return err
			}
			return s.store.PutScramCredential(cred)
		})
	}
	return resp
}

type scramName struct {
	user      string
	mechanism int8
}

// scramError gives the errors of credentials the codes that Kafka has for them.
func scramError(err error) error {
	switch {
	case errors.Is(err, store.ErrNoCredential):
		return refuse(kerr.ResourceNotFound, "%v", err)
	case err != nil && lattice.KindOf(err) == lattice.Invalid:
		return refuse(kerr.UnacceptableCredential, "%v", err)
	case err != nil && lattice.KindOf(err) == lattice.Unsupported:
		return refuse(kerr.UnsupportedSaslMechanism, "%v", err)
	}
	return err
}
