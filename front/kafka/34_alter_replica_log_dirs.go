package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterReplicaLogDirs (key 34), versions 1 to 2 (KIP-113).
//
//	v2  flexible
//
// There is one directory, the store's (see DescribeLogDirs): moving a partition to
// it is granted and changes nothing, there is no other.

func (c *conn) alterReplicaLogDirs(_ *request, req *kmsg.AlterReplicaLogDirsRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.AlterReplicaLogDirsResponse)
	here := s.store.Volume().Dir
	for i := range req.Dirs {
		d := &req.Dirs[i]
		for j := range d.Topics {
			t := &d.Topics[j]
			out := kmsg.NewAlterReplicaLogDirsResponseTopic()
			out.Topic = t.Topic
			for _, n := range t.Partitions {
				p := kmsg.NewAlterReplicaLogDirsResponseTopicPartition()
				p.Partition = n
				_, err := s.partition(t.Topic, n)
				if err == nil && d.Dir != here {
					err = refuse(kerr.LogDirNotFound, "directory %q: the only one is %s", d.Dir, here)
				}
				p.ErrorCode = s.code(err)
				out.Partitions = append(out.Partitions, p)
			}
			resp.Topics = append(resp.Topics, out)
		}
	}
	return resp
}
