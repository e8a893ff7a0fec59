package node

import (
	"fmt"

	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/front/redis"
)

// wireRedis makes the Redis front end.
func (n *Node) wireRedis() error {
	if n.lns.redis == nil {
		return nil
	}
	c := n.cfg
	st, err := n.stores.find(c.Redis.Store)
	if err != nil {
		return fmt.Errorf("redis.store: %w", err)
	}
	info := st.Info()
	n.redis, err = redis.New(redis.Config{
		MaxClients: c.Redis.Connections, MaxClientsPerAddress: c.Redis.ConnectionsPerAddress,
		MaxBulkBytes: int(c.Redis.ArgumentBytes), MaxQueryBytes: int(c.Redis.QueryBytes), MaxReplyBytes: int(c.Redis.ReplyBytes),
		MaxPushBytes: int(c.Redis.PushBytes), MaxBufferedBytes: c.Redis.BufferedBytes,
		IdleTimeout: ms(c.Redis.IdleMs), StallTimeout: ms(c.Limits.StallMs), DrainTimeout: stopWithin,
		TLS: n.lns.tls, Logger: n.log, Metrics: n.metrics,
		About: redis.About{
			Version: n.opts.Version, Commit: n.opts.Commit, Node: info.Node.String(), Store: info.ID.String(),
			Data: c.Data, Durability: c.State.Durability,
		},
	}, redisState{st.State()})
	return err
}

// redisState lets the front end run transactions on a store's keys.
type redisState struct{ db *keyval.DB }

// View implements redis.State.
func (s redisState) View(f func(structs.Rows) error) (redis.Ticket, error) {
	t, err := s.db.View(func(tx *keyval.Tx) error { return f(tx) })
	if t == (keyval.Ticket{}) {
		return nil, err
	}
	return t, err
}

// Update implements redis.State.
func (s redisState) Update(f func(structs.Rows) error) (redis.Ticket, error) {
	t, err := s.db.Update(func(tx *keyval.Tx) error { return f(tx) })
	if t == (keyval.Ticket{}) {
		return nil, err
	}
	return t, err
}
