// Package sim runs many nodes of one store in one process, from a seed: the real
// engine (engine/store with its state, members and catalogue), real storage on a disk
// in memory, and the real decisions of the mesh (mesh/reconcile), over a network, a
// clock and disks that the seed drives. libp2p and the front ends are not in it.
//
// It promises that a seed run twice does the same things in the same order, which
// TestSame checks by comparing transcripts byte for byte. It does not promise that a
// seed does the same in another version: whatever draws once more from the seed's
// numbers makes another history of it.
//
// # How a run stays the same
//
// One goroutine acts for everybody: it draws what happens next, does it, and waits
// (testing/synctest) until no goroutine of any node has anything left to do. So the
// engine's goroutines run, but never while something else happens. Time moves only
// when it is told to. What a power cut leaves of a file is drawn from the seed and
// the file's name (storage/disk), so that files whose bytes depend on background
// work do not change what happens to the others.
//
// # What happens
//
// Nodes write keys, counters, topics and records, also of topics that others lead;
// truncate and read them; have topics held by several, want acks=all, and give
// partitions to other leaders; ask again when an answer was lost; meet, part, lose messages in one
// direction or both; stop, restart, lose power between two operations of the disk or
// in the middle of one write; get errors from their disks; lose their disks; are put back from an old
// backup; have clocks that are wrong; are invited, join, and are removed; take
// snapshots and prune. One of them may lie: it changes what it sends. An author
// without a node signs two histories, and entries from the far future.
//
// # What is checked
//
// All the time: no honest node refuses what another honest one sends for a reason
// that only a liar gives. When everybody that is honest can meet again: see
// check_test.go, records_test.go for records, and replicas_test.go for what several hold.
package sim
