package kafka

import (
	"fmt"
	"log/slog"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Keys that the code names.
const (
	keyProduce     = 0
	keyAPIVersions = 18
)

// handler starts the work on a request, and sees to it that exactly one of
// reply, answer, answerStream and silence is called, now or later. An error
// means that the request does not parse, and closes the connection; then none
// of them may have been called.
type handler func(c *conn, r *request) error

// api is one row of the table that drives ApiVersions, dispatch and
// docs/protocol/kafka.md.
type api struct {
	key       int16
	name      string
	advertise int16 // lowest version that ApiVersions names
	min, max  int16 // versions that are served
	serve     handler
	note      string // what differs from Kafka, for the coverage page
	home      homing // whether another node may have to answer it

	flexible int16 // first version with KIP-482's encoding
	requests prometheus.Counter
	duration prometheus.Observer
}

// apiTable holds the APIs by key; nil where there is none.
type apiTable []*api

// newAPITable returns the table. It is made for each server, since its rows
// carry the server's counters.
func newAPITable() apiTable {
	rows := []api{
		{key: 0, name: "Produce", advertise: 0, min: 3, max: 13, serve: (*conn).produce,
			note: "Advertised from 0, since old librdkafka turns compression off otherwise. What another node leads is forwarded to it."},
		{key: 1, name: "Fetch", min: 4, max: 18, serve: (*conn).fetch,
			note: "No fetch sessions (session id 0), which clients take as 'send the whole list each time'."},
		{key: 2, name: "ListOffsets", min: 1, max: 11, serve: cold((*conn).listOffsets)},
		{key: 3, name: "Metadata", min: 0, max: 13, serve: cold((*conn).metadata),
			note: "This node is the only broker, and leader of every partition: what another member leads is read from the replica here, and written by way of this node."},
		{key: 8, name: "OffsetCommit", home: homeUse, min: 2, max: 10, serve: (*conn).offsetCommit,
			note: "The retention time of versions 2-4 is ignored; offsets.retention.minutes applies."},
		{key: 9, name: "OffsetFetch", home: homeRead, min: 1, max: 10, serve: cold((*conn).offsetFetch)},
		{key: 10, name: "FindCoordinator", min: 0, max: 6, serve: cold((*conn).findCoordinator),
			note: "This node, whichever coordinates the group: what is asked of it goes there (Groups on several nodes)."},
		{key: 11, name: "JoinGroup", home: homeUse, min: 0, max: 9, serve: (*conn).joinGroup},
		{key: 12, name: "Heartbeat", home: homeChange, min: 0, max: 4, serve: cold((*conn).heartbeat)},
		{key: 13, name: "LeaveGroup", home: homeChange, min: 0, max: 5, serve: cold((*conn).leaveGroup)},
		{key: 14, name: "SyncGroup", home: homeChange, min: 0, max: 5, serve: (*conn).syncGroup},
		{key: 15, name: "DescribeGroups", home: homeReadMany, min: 0, max: 6, serve: cold((*conn).describeGroups)},
		{key: 16, name: "ListGroups", home: homeList, min: 0, max: 5, serve: cold((*conn).listGroups)},
		{key: 18, name: "ApiVersions", min: 0, max: 4, serve: cold((*conn).apiVersions),
			note: "Any higher version is answered as version 0 with UNSUPPORTED_VERSION."},
		{key: 19, name: "CreateTopics", min: 2, max: 7, serve: cold((*conn).createTopics),
			note: "A replication factor above 1 is INVALID_REPLICATION_FACTOR, unless kafka.replication is lenient."},
		{key: 20, name: "DeleteTopics", min: 1, max: 6, serve: cold((*conn).deleteTopics)},
		{key: 21, name: "DeleteRecords", min: 0, max: 2, serve: cold((*conn).deleteRecords),
			note: "What another node leads is forwarded to it."},
		{key: 22, name: "InitProducerId", min: 0, max: 5, serve: (*conn).initProducerID,
			note: "A transaction that stands in the way is aborted before the answer, which therefore is not CONCURRENT_TRANSACTIONS."},
		{key: 23, name: "OffsetForLeaderEpoch", min: 2, max: 4, serve: cold((*conn).offsetForLeaderEpoch)},
		{key: 24, name: "AddPartitionsToTxn", min: 0, max: 5, serve: (*conn).addPartitionsToTxn,
			note: "A partition that another node leads is POLICY_VIOLATION."},
		{key: 25, name: "AddOffsetsToTxn", min: 0, max: 4, serve: (*conn).addOffsetsToTxn},
		{key: 26, name: "EndTxn", min: 0, max: 4, serve: (*conn).endTxn,
			note: "Answered when the records can be read (Kafka: when the decision is durable). A partition without a batch gets no marker."},
		{key: 27, name: "WriteTxnMarkers", min: 1, max: 2, serve: (*conn).writeTxnMarkers,
			note: "Aborts what its coordinator has forgotten; a transaction that it knows is INVALID_TXN_STATE, a commit INVALID_REQUEST."},
		{key: 28, name: "TxnOffsetCommit", min: 0, max: 4, serve: (*conn).txnOffsetCommit},
		{key: 32, name: "DescribeConfigs", min: 1, max: 4, serve: cold((*conn).describeConfigs)},
		{key: 33, name: "AlterConfigs", min: 0, max: 2, serve: cold((*conn).alterConfigs),
			note: "Topics and groups: a node's own configuration is a file, of which there is nothing to reset."},
		{key: 34, name: "AlterReplicaLogDirs", min: 1, max: 2, serve: cold((*conn).alterReplicaLogDirs),
			note: "One directory: the store's. Moving there changes nothing, others are LOG_DIR_NOT_FOUND."},
		{key: 35, name: "DescribeLogDirs", min: 1, max: 4, serve: cold((*conn).describeLogDirs),
			note: "One directory: the store's."},
		{key: 37, name: "CreatePartitions", min: 0, max: 3, serve: cold((*conn).createPartitions)},
		{key: 42, name: "DeleteGroups", home: homeChangeMany, min: 0, max: 2, serve: (*conn).deleteGroups},
		{key: 43, name: "ElectLeaders", min: 0, max: 2, serve: cold((*conn).electLeaders),
			note: "Every partition has one replica: ELECTION_NOT_NEEDED."},
		{key: 44, name: "IncrementalAlterConfigs", min: 0, max: 1, serve: cold((*conn).incrementalAlterConfigs),
			note: "Topics and groups: a node's own configuration is a file, of which there is nothing to reset."},
		{key: 45, name: "AlterPartitionReassignments", min: 0, max: 1, serve: cold((*conn).alterPartitionReassignments),
			note: "This node is the only place for a replica; others are INVALID_REPLICA_ASSIGNMENT."},
		{key: 46, name: "ListPartitionReassignments", min: 0, max: 0, serve: cold((*conn).listPartitionReassignments),
			note: "None is ever under way."},
		{key: 47, name: "OffsetDelete", home: homeChange, min: 0, max: 0, serve: (*conn).offsetDelete},
		{key: 50, name: "DescribeUserSCRAMCredentials", min: 0, max: 0, serve: cold((*conn).describeUserScramCredentials)},
		{key: 51, name: "AlterUserSCRAMCredentials", min: 0, max: 0, serve: cold((*conn).alterUserScramCredentials),
			note: "Kept for listeners with SASL, of which there are none yet: until then they decide nothing."},
		{key: 57, name: "UpdateFeatures", min: 0, max: 2, serve: cold((*conn).updateFeatures),
			note: "Levels go with the version of the program: a request for the one in force is granted, others are refused."},
		{key: 60, name: "DescribeCluster", min: 0, max: 2, serve: cold((*conn).describeCluster)},
		{key: 61, name: "DescribeProducers", min: 0, max: 0, serve: cold((*conn).describeProducers)},
		{key: 65, name: "DescribeTransactions", min: 0, max: 0, serve: cold((*conn).describeTransactions)},
		{key: 66, name: "ListTransactions", min: 0, max: 2, serve: cold((*conn).listTransactions)},
		{key: 68, name: "ConsumerGroupHeartbeat", home: homeUse, min: 0, max: 1, serve: cold((*conn).consumerGroupHeartbeat)},
		{key: 69, name: "ConsumerGroupDescribe", home: homeReadMany, min: 0, max: 1, serve: cold((*conn).consumerGroupDescribe)},
		{key: 74, name: "ListConfigResources", min: 0, max: 1, serve: cold((*conn).listConfigResources),
			note: "Topics, groups that are set to something, and this node. There are no subscriptions to clients' telemetry, which is all that version 0 lists."},
		{key: 75, name: "DescribeTopicPartitions", min: 0, max: 0, serve: cold((*conn).describeTopicPartitions)},
		{key: 76, name: "ShareGroupHeartbeat", min: 1, max: 1, serve: cold((*conn).shareGroupHeartbeat)},
		{key: 77, name: "ShareGroupDescribe", min: 1, max: 1, serve: cold((*conn).shareGroupDescribe)},
		{key: 78, name: "ShareFetch", min: 1, max: 2, serve: (*conn).shareFetch,
			note: "A request that brings acknowledgements is answered at once, with or without records."},
		{key: 79, name: "ShareAcknowledge", min: 1, max: 2, serve: (*conn).shareAcknowledge},
		{key: 90, name: "DescribeShareGroupOffsets", min: 0, max: 1, serve: cold((*conn).describeShareGroupOffsets)},
		{key: 91, name: "AlterShareGroupOffsets", min: 0, max: 0, serve: (*conn).alterShareGroupOffsets,
			note: "An offset outside the log is taken as its nearest end."},
		{key: 92, name: "DeleteShareGroupOffsets", min: 0, max: 0, serve: (*conn).deleteShareGroupOffsets},
	}
	table := make(apiTable, rows[len(rows)-1].key+1)
	for i := range rows {
		a := &rows[i]
		if a.key != keyProduce {
			a.advertise = a.min
		}
		req := kmsg.RequestForKey(a.key)
		for a.flexible = 0; a.flexible <= a.max; a.flexible++ {
			if req.SetVersion(a.flexible); req.IsFlexible() {
				break
			}
		}
		table[a.key] = a
	}
	return table
}

// find returns the API of a key, nil when it is not served.
func (t apiTable) find(key int16) *api {
	if key < 0 || int(key) >= len(t) {
		return nil
	}
	return t[key]
}

// cold makes a handler of a function that needs no speed: its request is decoded
// by kmsg, and its answer is there when it returns. It runs in the connection's
// reader, so that a client's administrative requests take effect one by one.
func cold[Q kmsg.Request](serve func(*conn, *request, Q) kmsg.Response) handler {
	return func(c *conn, r *request) error {
		req, unlock, err := decode[Q](c, r)
		if err != nil {
			return err
		}
		defer unlock()
		r.answer(serve(c, r, req))
		return nil
	}
}

// bigControl is the size from which decoded requests exist one at a time: the
// structures take many times the space of the bytes.
const bigControl = 128 << 10

// decode reads the body of a request that is not Produce. Byte fields alias the
// frame. The caller calls unlock when it has done with the request.
func decode[Q kmsg.Request](c *conn, r *request) (req Q, unlock func(), err error) {
	if len(r.body) > c.srv.cfg.MaxControlBytes {
		return req, nil, fmt.Errorf("request of %d bytes, MaxControlBytes is %d: %w", len(r.body), c.srv.cfg.MaxControlBytes, errLimit)
	}
	unlock = func() {}
	if len(r.body) > bigControl {
		c.srv.bigDecode.Lock()
		unlock = c.srv.bigDecode.Unlock
	}
	req = kmsg.RequestForKey(r.api.key).(Q)
	req.SetVersion(r.version)
	if err := req.ReadFrom(r.body); err != nil {
		unlock()
		return req, nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	return req, unlock, nil
}

// dispatch reads the header of a request and starts the work on it. An error
// closes the connection.
func (c *conn) dispatch(frame *buffer) error {
	r, _ := c.srv.requests.Get().(*request)
	if r == nil {
		r = new(request)
	}
	r.c, r.frame, r.size, r.start = c, frame, len(frame.b), time.Now()
	if err := c.readHeader(r); err != nil {
		c.srv.recycle(r)
		return err
	}
	c.enqueue(r)
	// r may be gone once the handler answered: no use of it after this, but for an error.
	a, version := r.api, r.version
	err := errNotHere
	if a.home != homeNone {
		err = c.byHome(r)
	}
	if err == errNotHere {
		err = a.serve(c, r)
	}
	if err != nil {
		r.silence()
		return fmt.Errorf("%s version %d: %w", a.name, version, err)
	}
	return nil
}

// readHeader fills in what the header of a request says (versions 1 and 2 of
// the request header, KIP-482).
func (c *conn) readHeader(r *request) error {
	d := decoder{b: r.frame.b}
	key, version, corr := d.int16(), d.int16(), d.int32()
	if d.bad {
		return errMalformed
	}
	a := c.srv.apis.find(key)
	if a == nil {
		return lattice.E(lattice.Unsupported, fmt.Errorf("api key %d version %d is not served", key, version))
	}
	r.api, r.version, r.corr = a, version, corr
	switch {
	case key == keyAPIVersions && (version < a.min || version > a.max):
		// Whatever follows has a form that we do not know. Kafka answers so that
		// the client can come down to a version that we do.
		r.version, r.api = 0, c.srv.apis.tooNew()
		return nil
	case version < a.min || version > a.max:
		return lattice.E(lattice.Unsupported, fmt.Errorf("%s version %d is not served", a.name, version))
	}
	r.client = d.string()
	d.flexible = r.flexible()
	d.tags()
	r.body = d.b
	return d.err()
}

// tooNew is ApiVersions for versions that are not served.
func (t apiTable) tooNew() *api {
	a := *t[keyAPIVersions]
	a.serve = func(_ *conn, r *request) error {
		r.answer(t.versionsUnsupported())
		return nil
	}
	return &a
}

// peer describes a connection for the log.
func (c *conn) peer() slog.Attr { return slog.String("peer", c.addr.String()) }
