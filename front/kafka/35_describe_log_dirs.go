package kafka

import (
	"github.com/lattice-log/lattice/engine/store"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeLogDirs (key 35), versions 1 to 4 (KIP-113).
//
//	v2  flexible
//	v3  an error for the whole answer
//	v4  size and free space of the volume (KIP-827)
//
// There is one directory, the store's. A partition's size is that of its stored
// batches: what a Kafka broker counts, without trees, heads and indexes. What is
// asked for and not here is left out of the answer, as Kafka does.

func (c *conn) describeLogDirs(_ *request, req *kmsg.DescribeLogDirsRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	dir := kmsg.NewDescribeLogDirsResponseDir()
	vol := s.store.Volume()
	dir.Dir, dir.TotalBytes, dir.UsableBytes = vol.Dir, vol.Total, vol.Free
	if req.Topics == nil {
		for _, t := range s.store.Topics() {
			all := make([]int32, t.Partitions)
			for i := range all {
				all[i] = int32(i)
			}
			dir.Topics = appendStored(s, dir.Topics, t, all)
		}
	}
	for i := range req.Topics {
		want := &req.Topics[i]
		if t, ok := s.store.Topic(want.Topic); ok {
			dir.Topics = appendStored(s, dir.Topics, t, want.Partitions)
		}
	}
	resp.Dirs = append(resp.Dirs, dir)
	return resp
}

// appendStored adds those partitions of a topic that are here.
func appendStored(s *Server, to []kmsg.DescribeLogDirsResponseDirTopic, t store.Topic, parts []int32) []kmsg.DescribeLogDirsResponseDirTopic {
	out := kmsg.NewDescribeLogDirsResponseDirTopic()
	out.Topic = t.Name
	for _, i := range parts {
		log, err := s.store.Partition(t.ID, i)
		if err != nil {
			continue
		}
		p := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		p.Partition, p.Size = i, log.Size()
		out.Partitions = append(out.Partitions, p)
	}
	if len(out.Partitions) == 0 {
		return to
	}
	return append(to, out)
}
