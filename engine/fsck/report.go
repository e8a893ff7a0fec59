package fsck

import (
	"fmt"
	"strconv"
	"strings"
)

// Severity says what a finding means for who owns the data.
type Severity uint8

const (
	// Note: nothing is wrong. A crash or an interrupted operation left something
	// behind that the next start clears away, or a file belongs to nothing.
	Note Severity = iota
	// Warning: something is wrong that can be made again from what is right, and
	// will be by the next start or when it is used.
	Warning
	// Damage: something is lost or contradicts what was signed.
	Damage

	severities // the number of severities; keep it last
)

var severityNames = [severities]string{"note", "warning", "damage"}

// String returns "note", "warning" or "damage".
func (s Severity) String() string {
	if s < severities {
		return severityNames[s]
	}
	return "severity " + strconv.Itoa(int(s))
}

// MarshalText is String.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is one thing that does not match.
type Finding struct {
	Store    string   `json:"store"`  // id, 64 hex characters; empty outside of stores
	Path     string   `json:"path"`   // file or directory, relative to what was checked
	What     string   `json:"what"`   // a few words, the same for all findings of its kind
	Detail   string   `json:"detail"` // where, and what was expected
	Severity Severity `json:"severity"`
}

// String returns the finding as one line.
func (f Finding) String() string {
	s := f.Severity.String() + ": " + f.Path + ": " + f.What
	if f.Detail != "" {
		s += ": " + f.Detail
	}
	return s
}

// Report says what was checked and what was found.
type Report struct {
	Findings []Finding `json:"findings"` // in the order of the check, at most Options.MaxFindings
	Omitted  int       `json:"omitted"`  // findings beyond that number

	Stores      int   `json:"stores"`
	Topics      int   `json:"topics"`
	Authors     int   `json:"authors"` // author logs
	Partitions  int   `json:"partitions"`
	Segments    int   `json:"segments"`
	Batches     int64 `json:"batches"`
	Records     int64 `json:"records"`     // as the batches' headers count them
	Bytes       int64 `json:"bytes"`       // of batches
	Entries     int64 `json:"entries"`     // of author logs
	Leaves      int64 `json:"leaves"`      // of trees, recomputed
	Checkpoints int   `json:"checkpoints"` // checkpoints, grants and statements whose root was recomputed
	Catalogue   int   `json:"catalogue"`   // records of catalogues

	counts [severities]int
}

// Count returns how many findings of a severity there are, omitted ones too.
func (r Report) Count(s Severity) int { return r.counts[s] }

// Valid reports whether nothing is damaged. Warnings and notes do not count.
func (r Report) Valid() bool { return r.counts[Damage] == 0 }

// Clean reports whether there is neither damage nor a warning.
func (r Report) Clean() bool { return r.counts[Damage]+r.counts[Warning] == 0 }

// String says in a sentence what was checked and with what result.
func (r Report) String() string {
	return fmt.Sprintf("Checked %s, %s, %s: %s with %s (%s) and %s in %s, %s and %s; %s.",
		count(r.Stores, "store"), count(r.Topics, "topic"), count(r.Partitions, "partition"),
		count(r.Batches, "batch"), count(r.Records, "record"), size(r.Bytes), count(r.Entries, "entry"), count(r.Segments, "segment"),
		count(r.Leaves, "tree leaf"), count(r.Checkpoints, "signed root"), r.result())
}

func (r Report) result() string {
	var parts []string
	if n := r.counts[Damage]; n > 0 {
		parts = append(parts, fmt.Sprintf("%s damaged or lost", things(n)))
	}
	if n := r.counts[Warning]; n > 0 {
		parts = append(parts, fmt.Sprintf("%s wrong, but can be made again", things(n)))
	}
	switch {
	case len(parts) == 0 && r.counts[Note] == 0:
		return "everything matches"
	case len(parts) == 0:
		return fmt.Sprintf("everything matches, %s worth a note", things(r.counts[Note]))
	}
	return strings.Join(parts, ", ")
}

// things says "1 thing is" or "3 things are".
func things(n int) string {
	if n == 1 {
		return "1 thing is"
	}
	return group(int64(n)) + " things are"
}

func count[N int | int64](n N, what string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(what, "ch"):
		what += "es"
	case strings.HasSuffix(what, "y"):
		what = strings.TrimSuffix(what, "y") + "ies"
	case strings.HasSuffix(what, "leaf"):
		what = strings.TrimSuffix(what, "f") + "ves"
	default:
		what += "s"
	}
	return group(int64(n)) + " " + what
}

// group writes a number with commas between thousands.
func group(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func size(n int64) string {
	f := float64(n)
	for _, unit := range []string{"bytes", "KiB", "MiB", "GiB"} {
		if f < 1024 || unit == "GiB" {
			if unit == "bytes" {
				return group(n) + " bytes"
			}
			return fmt.Sprintf("%.1f %s", f, unit)
		}
		f /= 1024
	}
	return ""
}
