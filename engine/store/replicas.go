package store

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/partition"
)

// maxReplicas bounds a topic's set.
const maxReplicas = 16

const (
	replicasConfig  = "lattice.replicas"
	minInSyncConfig = "min.insync.replicas"
)

// applyReplicas takes a list of node ids.
func applyReplicas(c *partition.Config, v string) error {
	c.Replicas = nil
	if v == "" {
		return nil
	}
	for _, item := range strings.Split(v, ",") {
		id, err := lattice.ParseAuthorID(strings.TrimSpace(item))
		switch {
		case err != nil:
			return fmt.Errorf("%q: want ids of nodes, 64 hex digits each: %w", item, err)
		case slices.Contains(c.Replicas, id):
			return fmt.Errorf("%s is named twice", id)
		}
		c.Replicas = append(c.Replicas, id)
	}
	if len(c.Replicas) > maxReplicas {
		return fmt.Errorf("%d nodes, at most %d", len(c.Replicas), maxReplicas)
	}
	return nil
}

// applyMinInSync comes after applyReplicas.
func applyMinInSync(c *partition.Config, v string) error {
	n, err := strconv.Atoi(v)
	switch most := max(1, len(c.Replicas)); {
	case err != nil || n < 1:
		return fmt.Errorf("%q: want a whole number of at least 1", v)
	case n > most && most == 1:
		return fmt.Errorf("%d, but the leader alone has the records: name the nodes in %s first", n, replicasConfig)
	case n > most:
		return fmt.Errorf("%d of the %d nodes in %s", n, most, replicasConfig)
	}
	c.MinInSync = n
	return nil
}

// checkReplicas refuses nodes that are no members, and cannot have what they would
// acknowledge. set is what a topic has set.
func (s *Store) checkReplicas(set map[string]string) error {
	cfg, err := parseConfig(s.cfg.TopicDefaults, set)
	if err != nil {
		return err
	}
	for _, id := range cfg.Replicas {
		if id == s.info.Node {
			continue
		}
		if _, ok := s.state.Member(id); !ok {
			return configError(replicasConfig, "%s is no member of the store", id)
		}
	}
	return nil
}
