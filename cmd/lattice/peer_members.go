package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

// memberRow is a member as JSON.
type memberRow struct {
	Node      string `json:"node"`
	Role      string `json:"role"`
	Creator   bool   `json:"creator"`
	Self      bool   `json:"self"`
	By        string `json:"by,omitempty"`
	RemovedBy string `json:"removed_by,omitempty"`
	Unseen    int64  `json:"unseen"`
	Forked    bool   `json:"forked"`
	Entries   int64  `json:"entries"`
	Last      string `json:"last,omitempty"`
	Dormant   bool   `json:"dormant"`
}

func memberRowOf(m client.Member) memberRow {
	r := memberRow{m.Node, m.Role, m.Creator, m.Self, m.By, m.RemovedBy, m.Unseen, m.Forked, m.Entries, "", m.Dormant}
	if !m.Last.IsZero() {
		r.Last = cli.Time(m.Last)
	}
	return r
}

func newPeerMembers(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "members",
		Short: "Show who belongs to a store, and who did",
		Long: `Show the members of a store with their roles, as far as this node knows, and those that were
removed. A removed member's entries that arrive after its removal have no effect; how many there
are is shown.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(func(c *client.Client) error {
				members, err := c.Members(cmd.Context())
				if err != nil {
					return err
				}
				rows := make([]memberRow, len(members))
				for i, m := range members {
					rows[i] = memberRowOf(m)
				}
				return a.print(map[string]any{"members": rows}, func() error { return a.showMembers(rows) })
			})
		},
	}
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}

func (a *app) showMembers(rows []memberRow) error {
	t := cli.NewTable("NODE", "ROLE", ">ENTRIES", "LAST WROTE", "")
	for _, r := range rows {
		role, note := r.Role, ""
		switch {
		case r.Role == "none" && r.RemovedBy != "":
			role, note = "removed", "by "+cli.Short(r.RemovedBy)
			if r.Unseen > 0 {
				note += fmt.Sprintf("; %s entries came later and do not count: lattice peer adopt %s", cli.Count(r.Unseen), cli.Short(r.Node))
			}
		case r.Role == "none":
			note = "not admitted, as far as is known here"
		case r.Creator:
			note = "made the store"
		case r.By != "":
			note = "admitted by " + cli.Short(r.By)
		}
		if r.Self {
			note = joinNotes("this node", note)
		}
		if r.Dormant && r.Role != "none" {
			note = joinNotes(note, "dormant: nobody waits for it")
		}
		if r.Forked {
			note = joinNotes(note, "signed two entries for one place: nothing from there on counts")
		}
		last := r.Last
		if last == "" {
			last = "-"
		}
		t.Row(cli.Short(r.Node), role, cli.Count(r.Entries), last, note)
	}
	_, err := t.WriteTo(a.stdout)
	return err
}

func joinNotes(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ", " + b
}

// invitationRow is an invitation as JSON.
type invitationRow struct {
	ID        string `json:"id"`
	Inviter   string `json:"inviter"`
	Role      string `json:"role"`
	Expires   string `json:"expires"`
	State     string `json:"state"`
	ClaimedBy string `json:"claimed_by,omitempty"`
}

func invitationRowOf(i client.Invitation) invitationRow {
	return invitationRow{i.ID, i.Inviter, i.Role, cli.Time(i.Expires), i.State, i.ClaimedBy}
}

func newPeerInvitations(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "invitations",
		Short: "Show invitations to a store, and what became of them",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(func(c *client.Client) error {
				all, err := c.Invitations(cmd.Context())
				if err != nil {
					return err
				}
				rows := make([]invitationRow, len(all))
				for i, x := range all {
					rows[i] = invitationRowOf(x)
				}
				return a.print(map[string]any{"invitations": rows}, func() error {
					if len(rows) == 0 {
						a.warnf("Nobody was invited yet: lattice peer invite")
						return nil
					}
					t := cli.NewTable("INVITATION", "ROLE", "STATE", "EXPIRES", "INVITER", "USED BY")
					for _, r := range rows {
						t.Row(cli.Short(r.ID), r.Role, r.State, r.Expires, cli.Short(r.Inviter), cli.Short(r.ClaimedBy))
					}
					_, err := t.WriteTo(a.stdout)
					return err
				})
			})
		},
	}
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}

func newPeerRevoke(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke INVITATION",
		Short: "Take an invitation back that nobody has used",
		Long: `Take an invitation back, named by its id or how that begins (lattice peer invitations). A node
that has used it already stays a member: lattice peer remove takes its rights away.`,
		Example: `  lattice peer revoke 3f9a`,
		Args:    exactly("INVITATION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *client.Client) error {
				i, err := c.Revoke(cmd.Context(), args[0])
				if err != nil {
					return memberHint(err)
				}
				return a.print(invitationRowOf(i), func() error {
					_, err := fmt.Fprintf(a.stdout, "revoked invitation %s\n", cli.Short(i.ID))
					return err
				})
			})
		},
	}
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}

func newPeerRemove(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "remove NODE",
		Short: "Take a member's rights in a store away",
		Long: `Remove a member, named by its key or how that begins (lattice peer members). What it wrote and
is on this node counts on, everywhere. What this node has not seen of it, written before or after,
has no effect anywhere. An owner removes anyone but who made the store, an admin removes readers,
writers and admins; of two that remove each other both are.`,
		Example: `  lattice peer remove 8c2f`,
		Args:    exactly("NODE"),
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.confirm(yes, "Remove node %s from the store, for good?", args[0]); err != nil {
			return err
		}
		return a.withClient(func(c *client.Client) error {
			r, err := c.RemoveMember(cmd.Context(), args[0])
			if err != nil {
				return memberHint(err)
			}
			return a.print(map[string]any{"removed": r.Node, "role": r.Role, "entries": r.Entries}, func() error {
				_, err := fmt.Fprintf(a.stdout, "removed %s %s; %s of its entries count on, what else it wrote does not\n"+
					"What of that arrives is counted in lattice peer members, and lattice peer adopt %[2]s lets it count.\n",
					r.Role, cli.Short(r.Node), cli.Count(r.Entries))
				return err
			})
		})
	}
	return cmd
}
