package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/proof"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/internal/cli"
)

// verifyKey checks the proof file of a key.
func (a *app) verifyKey(path string, b []byte, pin *lattice.StoreID) error {
	r, err := proof.VerifyKey(b)
	if err == nil && pin != nil && r.Store != *pin {
		err = otherStore(r.Store, *pin)
	}
	if err != nil {
		return a.judge(verdict{What: "proof " + path, Reason: err.Error()}, "")
	}
	return a.judge(verdict{Valid: true, What: r.What}, keyDetails(r, pin))
}

// shownItems is how many items of a key are shown.
const shownItems = 20

// keyDetails is what the valid proof of a key shows, for people.
func keyDetails(r proof.KeyResult, pin *lattice.StoreID) string {
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "  %-10s %s\n", what, fmt.Sprintf(format, args...))
	}
	line("store", "%s (%s)", r.Store, r.StoreName)
	line("map", "%s", shownText([]byte(r.Map)))
	line("key", "%s", shownBytes(r.Key))
	more := 0
	for i, x := range r.Items() {
		if i >= shownItems {
			more++
			continue
		}
		for _, v := range versions(x) {
			line(x.Kind.String(), "%s", v)
		}
	}
	if more > 0 {
		line("", "and %s more", cli.Count(more))
	}
	for _, x := range r.Rows {
		if x.Kind != r.Kind && x.Kind != state.Expiry && len(x.Live) > 0 {
			line("beside it", "%s %s", x.Kind, strings.Join(versions(x), "; "))
		}
	}
	if !r.Expires.IsZero() {
		line("expires", "%s", cli.Time(r.Expires))
	}
	line("state", "%s entries folded, frontier %s", cli.Count(r.State.Entries), r.State.Frontier)
	line("root", "%s", r.State.Root)
	line("signed by", "%s, who made the store, at %s", r.Author, cli.Time(time.UnixMilli(int64(r.State.Time>>16))))
	if pin == nil {
		b.WriteString("Compare the store's id with the one you expect, or give it as --store.\n")
	}
	return b.String()
}

// versions describes the live heads of a row, the one that a read returns first.
func versions(x proof.KeyRow) []string {
	var out []string
	item := ""
	if len(x.Sub) > 0 && x.Kind != state.Element {
		item = shownText(x.Sub) + ": "
	}
	origin := func(o state.Order) string {
		return fmt.Sprintf("by %s at %s", o.Dot.Writer.Author.Short(), cli.Time(time.UnixMilli(int64(o.Time>>16))))
	}
	switch x.Kind {
	case state.Register, state.Field:
		for _, c := range x.Live.Resolve() {
			out = append(out, item+shownBytes(c.Value)+" "+origin(c.Order))
		}
	case state.Member:
		out = append(out, shownText(x.Sub)+" "+origin(x.Live.Last().Order()))
	case state.Scored:
		text := ""
		if s, err := state.ParseScore(x.Live.Last().Payload); err == nil {
			text = strconv.FormatFloat(s.Float(), 'g', -1, 64)
		}
		out = append(out, item+text+" "+origin(x.Live.Last().Order()))
	default:
		out = append(out, shownBytes(x.Live.Last().Payload.Bytes)+" "+origin(x.Live.Last().Order()))
	}
	return out
}
