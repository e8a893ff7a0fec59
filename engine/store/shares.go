package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/share"
)

// sharesOf is share.Logs over a store.
type sharesOf struct{ topicsOf }

var _ share.Logs = sharesOf{}

func (v sharesOf) Log(tp lattice.TopicPartition) (share.Log, bool) {
	p, err := v.s.leading(tp)
	if err != nil {
		return nil, false
	}
	return shareLog{p}, true
}

// shareLog is a partition as share groups read it.
type shareLog struct{ *partition.Partition }

// Find reads the headers of batches, and nothing else of them: what is a marker, and
// what belongs to an aborted transaction, is not for members.
func (l shareLog) Find(from int64, max int, stable bool) (share.Found, error) {
	read := l.Read
	if stable {
		read = l.ReadStable
	}
	slice, err := read(from, max)
	if err != nil {
		return share.Found{}, err
	}
	aborted := partition.InAborted(nil)
	if stable {
		aborted = partition.InAborted(slice.Aborted())
	}
	headers, err := slice.Headers()
	if err != nil {
		slice.Release()
		return share.Found{}, err
	}
	found := share.Found{Slice: slice, Batches: make([]share.Batch, len(headers))}
	for i, h := range headers {
		found.Batches[i] = share.Batch{First: h.BaseOffset, Last: h.LastOffset(), Size: h.Size(), Skip: h.Control() || h.Count == 0 || aborted(h)}
	}
	return found, nil
}

func (l shareLog) Wait(from int64, min int, stable bool, wake func()) (cancel func()) {
	if stable {
		return l.WaitStable(from, min, wake)
	}
	return l.Partition.Wait(from, min, wake)
}

func (l shareLog) OffsetAt(ctx context.Context, ms int64) (int64, error) {
	t, err := l.OffsetForTime(ctx, ms)
	if err != nil {
		return 0, err
	}
	if t.Offset < 0 {
		return l.Bounds().Committed, nil
	}
	return t.Offset, nil
}

// Shares returns the coordinator of the store's share groups.
func (s *Store) Shares() *share.Manager { return s.shares }

// GroupConfig lists every config of a group with value, default, source and
// documentation, sorted by name. A group need not exist to have configs.
func (s *Store) GroupConfig(name string) []ConfigEntry {
	set := s.shares.Config(name)
	var out []ConfigEntry
	for _, row := range share.SettingsTable() {
		e := ConfigEntry{Name: row.Name, Value: row.Default, Default: row.Default, Source: "default", Type: row.Type, Doc: row.Doc}
		if v, ok := set[row.Name]; ok {
			e.Value, e.Source = v, "group"
		}
		out = append(out, e)
	}
	return out
}

// AlterGroup changes configs of a group; with replace, everything that is not named
// goes back to its default. Errors: *ConfigError, share.ErrMaxSize.
func (s *Store) AlterGroup(name string, ch []ConfigChange, replace, validateOnly bool) error {
	s.changeMu.Lock()
	defer s.changeMu.Unlock()
	set := map[string]string{}
	if !replace {
		maps.Copy(set, s.shares.Config(name))
	}
	for _, c := range ch {
		switch {
		case c.Op != "" && c.Op != "set":
			return configError(c.Name, "it is no list: %s does not apply", c.Op)
		case c.Value != nil:
			set[c.Name] = *c.Value
		default:
			if _, err := share.ParseSettings(s.cfg.Shares.Defaults, map[string]string{c.Name: ""}); isUnknownSetting(err) {
				return configError(c.Name, "this node has no such config of a group")
			}
			delete(set, c.Name)
		}
	}
	_, err := share.ParseSettings(s.cfg.Shares.Defaults, set)
	if err == nil && !validateOnly {
		err = s.shares.SetConfig(name, set)
	}
	if err == nil && !validateOnly {
		err = s.setTimes(name)
	}
	var setting *share.SettingError
	if errors.As(err, &setting) {
		return configError(setting.Name, "%w", setting.Err)
	}
	return err
}

// setTimes tells the coordinator of consumers what a group is set to.
func (s *Store) setTimes(name string) error {
	base := s.cfg.Shares.Defaults
	base.Consumer = group.Times{} // which stands for that coordinator's own
	set, err := share.ParseSettings(base, s.shares.Config(name))
	if err == nil {
		s.groups.SetTimes(name, set.Consumer)
	}
	return err
}

// isUnknownSetting tells a name that no row has from a value that it does not take.
func isUnknownSetting(err error) bool {
	var setting *share.SettingError
	if !errors.As(err, &setting) {
		return false
	}
	for _, row := range share.SettingsTable() {
		if row.Name == setting.Name {
			return false
		}
	}
	return true
}

const groupConfigVersion = 1

func encodeGroupConfig(set map[string]string) ([]byte, error) {
	b, err := json.Marshal(set)
	if err != nil {
		return nil, fmt.Errorf("encode the configs of a group: %w", err)
	}
	return append([]byte{groupConfigVersion}, b...), nil
}

func decodeGroupConfig(name string, b []byte) (map[string]string, error) {
	if len(b) == 0 || b[0] != groupConfigVersion {
		return nil, lattice.E(lattice.Corrupt, fmt.Errorf("catalogue: configs of group %q have no version that is known here", name))
	}
	var set map[string]string
	if err := json.Unmarshal(b[1:], &set); err != nil || len(set) == 0 {
		return nil, lattice.E(lattice.Corrupt, fmt.Errorf("catalogue: configs of group %q: %w", name, errors.Join(err, errEmptyConfig)))
	}
	return set, nil
}

var errEmptyConfig = errors.New("want an object that is not empty")

// LoadShares, PutShares, LoadGroupConfigs and PutGroupConfig are share.Records.

func (l *local) LoadShares(yield func(group.Key, share.State) error) error {
	return l.db.Iterate([]byte{keyShare}, func(k, v []byte) error {
		key, err := group.ParseKey(k[1:])
		if err != nil {
			return err
		}
		s, err := share.ParseState(v)
		if err != nil {
			return fmt.Errorf("share group %q, %s: %w", key.Group, key.TopicPartition, err)
		}
		return yield(key, s)
	})
}

func (l *local) PutShares(changes []share.Change) error {
	b := l.db.Batch()
	for _, c := range changes {
		k := c.Key.AppendTo([]byte{keyShare})
		if c.State == nil {
			b.Delete(k)
			continue
		}
		b.Set(k, c.State.AppendTo(nil))
	}
	return l.db.Commit(b, true)
}

func (l *local) LoadGroupConfigs(yield func(name string, set map[string]string) error) error {
	return l.db.Iterate([]byte{keyGroup}, func(k, v []byte) error {
		name := string(k[1:])
		set, err := decodeGroupConfig(name, v)
		if err != nil {
			return err
		}
		return yield(name, set)
	})
}

func (l *local) PutGroupConfig(name string, set map[string]string) error {
	b := l.db.Batch()
	k := append([]byte{keyGroup}, name...)
	if len(set) == 0 {
		b.Delete(k)
		return l.db.Commit(b, true)
	}
	v, err := encodeGroupConfig(set)
	if err != nil {
		return err
	}
	b.Set(k, v)
	return l.db.Commit(b, true)
}
