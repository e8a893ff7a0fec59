package share

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/group"
)

// Settings are what a group can be set to, each under the name of its config. They
// are here for groups of both kinds: a name can become that of either.
type Settings struct {
	Session    time.Duration // share.session.timeout.ms
	Heartbeat  time.Duration // share.heartbeat.interval.ms
	Lock       time.Duration // share.record.lock.duration.ms
	Deliveries int16         // share.delivery.count.limit
	MaxLocks   int           // share.partition.max.record.locks
	Reset      Reset         // share.auto.offset.reset
	Stable     bool          // share.isolation.level is read_committed
	Renew      bool          // share.renew.acknowledge.enable

	Consumer group.Times // if the group is one of consumers
}

func (s Settings) limits() limits { return limits{s.Lock, s.Deliveries, s.MaxLocks} }

// Reset says where a group begins in a partition.
type Reset struct {
	Earliest bool
	Ago      time.Duration // by_duration; zero and not Earliest: at the end
}

// Setting is one config of a group.
type Setting struct {
	Name, Type, Default, Doc string // Type as Kafka's DescribeConfigs names it

	apply func(*Settings, string) error
}

// SettingError says which config is wrong and why.
type SettingError struct {
	Name string
	Err  error
}

// Error names the config and the reason.
func (e *SettingError) Error() string { return fmt.Sprintf("group config %s: %v", e.Name, e.Err) }

// Unwrap returns the reason.
func (e *SettingError) Unwrap() error { return e.Err }

// whole is a setting that is a whole number from lo to hi.
func whole(lo, hi int64, set func(*Settings, int64)) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < lo || n > hi {
			return fmt.Errorf("%q: want a whole number from %d to %d", v, lo, hi)
		}
		set(s, n)
		return nil
	}
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// SettingsTable returns every config of a group, sorted by name. Names, defaults and
// bounds are Kafka's, but for the shortest lock, which is what Kafka can be set to.
func SettingsTable() []Setting {
	return []Setting{
		{"consumer.heartbeat.interval.ms", "int", "5000", "How often members of a group of consumers send a heartbeat (KIP-848), in ms.",
			whole(5000, 15000, func(s *Settings, n int64) { s.Consumer.Heartbeat = ms(n) })},
		{"consumer.session.timeout.ms", "int", "45000", "A member of a group of consumers (KIP-848) that sends no heartbeat for so long is removed, in ms.",
			whole(45000, 60000, func(s *Settings, n int64) { s.Consumer.Session = ms(n) })},
		{"share.auto.offset.reset", "string", "latest", "Where the group begins in a partition: earliest, latest, or by_duration:<ISO 8601 duration> before now.", applyReset},
		{"share.delivery.count.limit", "int", "5", "How often a record is delivered before it is archived.",
			whole(2, 10, func(s *Settings, n int64) { s.Deliveries = int16(n) })},
		{"share.heartbeat.interval.ms", "int", "5000", "How often members send a heartbeat, in ms.",
			whole(5000, 15000, func(s *Settings, n int64) { s.Heartbeat = ms(n) })},
		{"share.isolation.level", "string", "read_uncommitted", "Which records of transactions are delivered: read_committed or read_uncommitted.",
			func(s *Settings, v string) error {
				if v != "read_committed" && v != "read_uncommitted" {
					return fmt.Errorf("%q: want read_committed or read_uncommitted", v)
				}
				s.Stable = v == "read_committed"
				return nil
			}},
		{"share.partition.max.record.locks", "int", "2000", "How many records of a partition are undecided at a time.",
			whole(100, 10000, func(s *Settings, n int64) { s.MaxLocks = int(n) })},
		{"share.record.lock.duration.ms", "int", "30000", "How long a member has a record before it is delivered again, in ms.",
			whole(1000, 60000, func(s *Settings, n int64) { s.Lock = ms(n) })},
		{"share.renew.acknowledge.enable", "boolean", "true", "Whether members may renew the lock of a record.",
			func(s *Settings, v string) error {
				if v != "true" && v != "false" {
					return fmt.Errorf("%q: want true or false", v)
				}
				s.Renew = v == "true"
				return nil
			}},
		{"share.session.timeout.ms", "int", "45000", "A member that sends no heartbeat for so long is removed, in ms.",
			whole(45000, 60000, func(s *Settings, n int64) { s.Session = ms(n) })},
	}
}

// ParseSettings returns base with what a group sets. The error is a *SettingError of
// Kind Invalid. An empty base stands for the table's defaults.
func ParseSettings(base Settings, set map[string]string) (Settings, error) {
	s := base
	left := len(set)
	for _, row := range SettingsTable() {
		v, ok := set[row.Name]
		if ok {
			left--
		} else if base == (Settings{}) {
			v = row.Default
		} else {
			continue
		}
		if err := row.apply(&s, v); err != nil {
			return base, lattice.E(lattice.Invalid, &SettingError{row.Name, err})
		}
	}
	if left > 0 {
		return base, lattice.E(lattice.Invalid, &SettingError{unknownIn(set), fmt.Errorf("this node has no such config of a group")})
	}
	return s, nil
}

// unknownIn returns the first name, in order, that is in no row.
func unknownIn(set map[string]string) string {
	unknown := ""
	for name := range set {
		known := false
		for _, row := range SettingsTable() {
			known = known || row.Name == name
		}
		if !known && (unknown == "" || name < unknown) {
			unknown = name
		}
	}
	return unknown
}

const byDuration = "by_duration:"

func applyReset(s *Settings, v string) error {
	switch {
	case v == "earliest":
		s.Reset = Reset{Earliest: true}
	case v == "latest":
		s.Reset = Reset{}
	case strings.HasPrefix(v, byDuration):
		d, ok := parseDuration(v[len(byDuration):])
		if !ok {
			return fmt.Errorf("%q: want an ISO 8601 duration such as P3DT3H4M59S", v)
		}
		s.Reset = Reset{Ago: d}
	default:
		return fmt.Errorf("%q: want earliest, latest or by_duration:<duration>", v)
	}
	return nil
}

// parseDuration reads PnDTnHnMn.nS, with parts left out but in order, and without a
// sign. Zero is the shortest there is, so that it is not taken for none.
func parseDuration(v string) (time.Duration, bool) {
	rest, ok := strings.CutPrefix(strings.ToUpper(v), "P")
	if !ok || rest == "" {
		return 0, false
	}
	day, clock, timed := strings.Cut(rest, "T")
	total, found := 0.0, false
	part := func(from *string, unit string, size float64) bool {
		number, after, has := strings.Cut(*from, unit)
		if !has {
			return true
		}
		n, err := strconv.ParseFloat(number, 64)
		if err != nil || n < 0 || strings.ContainsAny(number, "+-EXINP_") || unit != "S" && n != math.Trunc(n) {
			return false
		}
		*from, total, found = after, total+n*size, true
		return true
	}
	const hour = float64(time.Hour)
	if !part(&day, "D", 24*hour) || !part(&clock, "H", hour) || !part(&clock, "M", hour/60) || !part(&clock, "S", hour/3600) {
		return 0, false
	}
	if !found || day != "" || clock != "" || timed && strings.HasSuffix(rest, "T") || total >= math.MaxInt64 {
		return 0, false
	}
	return max(time.Duration(total), 1), true
}
