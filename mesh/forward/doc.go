// Package forward is how a node has the leader of a partition, or the home of a group, do
// what a client of its own asked for: the bytes of /lattice/forward/1 and of
// /lattice/groups/1, and the books of both ends of a stream.
//
// It is pure: the Asker and the Leader own no goroutine, stream or clock. mesh/p2p
// carries the bytes, and node does what is asked.
//
// # A stream
//
// One for each store and pair of asking node and leader, opened by the asker when it
// has something to ask. Asks go one way and answers the other, many under way at a
// time. The leader begins them in the order in which they come; answers come as they
// are ready. A stream replaces an earlier one of the same asker: the leader takes
// nothing more from that before it takes anything from the new one.
//
// Numbers are big-endian.
//
//	opening, 36 bytes, by the asker:
//	 0 "LF" | version u8 = 1 | 0 u8 | store 32
//
//	ask:
//	 0 length u32 of what follows, at most 32 MiB and 36
//	 4 kind u8 | acks i8, -1 to 1 | 0 u16 | id u64
//	16 wait u32, for how many ms the asker waits from now on | topic 16 | partition u32
//	40 kind 1, append: record batches (magic 2), to the end
//	   kind 2, truncate: acks is 0; before i64, -1: the high watermark
//	   kind 3, lead: acks is 0; to 32, the node that is to lead
//
//	answer:
//	 0 length u32 of what follows, at most 64 KiB
//	 4 status u8: 0 done, 1 refused | kind u8 (lattice.Kind; 0 if done) | code i16, as Kafka numbers errors | id u64
//	16 base i64 | time i64 | start i64, as in Kafka's Produce answer; -1: none. Of a truncation start alone
//	40 text u16, so many bytes of UTF-8: why | n u16, n x: record u32, text u16, so many bytes: why that record
//
// /lattice/groups/1 has streams of its own, which begin with "LG". There the leader is the
// home of groups, and there are two kinds of asks, in which acks, topic and partition are 0:
//
//	kind 4, call: what is asked, at most 16 MiB, in the bytes of the front ends
//	kind 5, cancel: wait is 0, nothing follows; nobody waits for the ask with this id
//
// An answer that is done has base and time -1 and, behind n = 0, what the front end
// answered, at most 16 MiB and not empty. A call may wait as long as its asker likes (a
// member that joins waits for others), so neither end counts silence while one is out. The
// answer to one that was cancelled frees its place, and is passed over.
//
// The ids of a stream's asks rise. An answer names an ask that has none yet.
// No answer is ever made up: who asked and hears nothing does not know whether it was
// done, and says so to its client (ErrLost), whose retry the leader recognizes by the
// producer's sequence.
//
// # What a hostile one costs
//
// An asker: memory for what it has sent, up to Limits.Bytes and one ask more; whoever
// does what it asks holds it to all rules of a client. A leader: the places of the
// requests that it does not answer, until their time is over; what it says of its own
// partitions is believed, as clients believe any leader.
//
// # Rules for changing it
//
//   - Messages keep their bytes: if a case in TestGolden changes, the design is wrong,
//     not the test. A change is another protocol id.
//   - A leader that does not know a kind ends the stream: to the asker its answer is lost.
//   - The numbers of lattice.Kind are in answers; TestKinds holds them.
package forward
