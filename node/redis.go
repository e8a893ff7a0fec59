package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/front/redis"
)

// buildRedis makes the Redis front end of a store.
func (n *Node) buildRedis(st *store.Store, reg *prometheus.Registry) (server, func(), error) {
	c := n.cfg
	info := st.Info()
	srv, err := redis.New(redis.Config{
		MaxClients: c.Redis.Connections, MaxClientsPerAddress: c.Redis.ConnectionsPerAddress,
		MaxBulkBytes: int(c.Redis.ArgumentBytes), MaxQueryBytes: int(c.Redis.QueryBytes), MaxReplyBytes: int(c.Redis.ReplyBytes),
		MaxPushBytes: int(c.Redis.PushBytes), MaxBufferedBytes: c.Redis.BufferedBytes,
		IdleTimeout: ms(c.Redis.IdleMs), StallTimeout: ms(c.Limits.StallMs), DrainTimeout: stopWithin,
		TLS: n.lns.tls, Logger: n.log, Metrics: reg,
		About: redis.About{
			Version: n.opts.Version, Commit: n.opts.Commit, Node: info.Node.String(), Store: info.ID.String(),
			Data: c.Data, Durability: c.State.Durability,
		},
	}, redis.Over(st.State()))
	if err != nil {
		return nil, nil, err
	}
	deaf := st.OnExpired(srv.Expired)
	return srv, func() { deaf(); srv.Detach() }, nil
}
