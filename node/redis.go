package node

import (
	"fmt"

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
	}, redis.Over(st.State()))
	if err == nil {
		st.OnExpired(n.redis.Expired)
	}
	return err
}
