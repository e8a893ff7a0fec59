// Package batches decides how replicas of a store get each other's record batches.
//
// It is a state machine, as mesh/reconcile is one for the store's entries: messages,
// finished reads and writes, and the time go in; messages to send, spans to store and
// spans to read come out. It owns no goroutine, socket, file or clock. Of each
// partition it knows how far it is here, and holds no batches beyond those on their
// way to the disk. It verifies none: who stores a span does (core/span).
//
// # What the caller must do
//
//  1. Connect a peer only when it is authenticated and a member.
//  2. Give each Effects.Receive to the partition's log, in order for each partition,
//     and then say where that is, durably, by Received. Nothing that claims a batch
//     is sent before: a claim that a crash can take back would let peers forget it.
//  3. Send Effects.Send to each peer in order, whole messages. A connection that
//     loses or reorders them, or takes them too slowly, must be dropped: Disconnect.
//  4. Answer each Effects.Read by Loaded, once, in any order.
//  5. Close the connections in Effects.Drop, and that of a peer for which Step
//     returned an error; the peer is disconnected here already.
//  6. Say by Changed that there is a partition, that this node appended to it, or who
//     leads it now; by Gone that there is none any more; and call Tick a few times a
//     second.
//     With Config.Unsent also say by Waiting how much waits to go to a peer, when it falls.
//  7. Count and show Effects.Refused.
//  8. Give each Effects.Heard to the partition's log, which verifies it, and say what
//     became of it by AckTaken; and say by Told which acknowledgements there are.
//
// After a crash a new Replica begins with where each log is. Nothing else is kept.
//
// # A session
//
//	A                                       B
//	hello  root, window            <->      hello
//	                                        equal roots: nothing more is sent
//	ranges digests of 16 ranges     ->
//	                               <-       ranges: those that differ split, small ones as items
//	offer  items that differ        ->
//	follow partition, from leaf     ->
//	                               <-       span, span, ...   as far as credit goes
//	credit                          ->      when they are durable
//	frontier root                  <->      when nothing is lacking, and now and then
//	                               <-       span, as batches are appended; offer, of what is not followed
//
// Who has the lower node id compares. A partition is followed at one peer: at its
// leader if that is connected and has more, otherwise at whoever has most. A follow
// is open: what is appended later comes on it. Others are told of it by an offer,
// so A and C meet through B (once B has all that some checkpoint of the leader covers:
// with less it can prove nothing), and a partition whose source falls silent, passes it
// over or fails is followed elsewhere, and not there again for a while.
//
// Partitions are known from the store's state. What a peer has of one that is not
// known here yet is remembered until it is.
//
// # Messages
//
// Versions 1 and 2; a session speaks the highest that both hellos name. Numbers are big-endian. Each message is
//
//	0      2     3      4        8
//	+------+-----+------+--------+------
//	| "LR" | ver | kind | length | body     length u32, of the body
//	|      | 1   | u8   | u32    |
//	+------+-----+------+--------+------
//
// and each kind bounds its body (MaxBody). There is one encoding for each message.
//
//	partition topic 16, number u32
//	item      partition 20 | size u64, batches that can be proven, not 0 | root 32, of their tree
//	bound     length u8, partition without its trailing zeros; empty: before the first, or past the last
//
//	 1 hello     lowest version u16 | highest u16 | store 32 | node 32 | session u64 |
//	             root 32 | items u32 | window u32, bytes of spans that may come unasked for credit
//	 2 ranges    from bound | u16 n, then n x: to bound | mode u8 | by mode:
//	             0 equal   -
//	             1 digest  items u32 | 16 bytes of their digest
//	             2 items   u16 n, n x item: all there are; offer yours that differ
//	 3 offer     u16 n, n x item, ascending: here, durably
//	 4 follow    u16 n, n x (partition | ask u32; 0 = nothing any more | from u64, the leaf)
//	 5 span      partition | ask u32, of the follow | size u64, of the sender's tree | from u64 |
//	             u32 n, n x (length u32, batch) | u16 n, n x (length u32, grant) | checkpoint length u16,
//	             signed note | u8 n, n x hash: compact range before | u8 n, n x hash: consistency proof
//	             Without batches, which version 2 allows: the log begins at from, where it ends, as
//	             the checkpoint says
//	 6 ended     partition | ask u32 | first u64 | reason u8: no more comes on a follow. With
//	             reason 0 the log begins at leaf first here: follow it from there
//	 7 refuse    partition | ask u32 | reason u8: spans were not taken; no more of them
//	 8 credit    bytes u32
//	 9 frontier  root 32 | items u32
//	10 bye       reason u8
//
// Of version 2, which the header of each of them says:
//
//	11 acks      u16 n, n x (partition | length u16, acknowledgement, at most 2 KiB; core/cosign)
//
// Reasons are those of mesh/reconcile. The root is SHA-256("lattice/partitions/v1\x00" |
// items u32 | items), a range's digest its first 16 bytes: whoever finds two sets with
// one such digest has only made two replicas miss a difference in that range.
//
// # Bounds
//
// Spans are sent against credit: a message may overdraw it, but none is sent while
// there is none, so a peer can make a node hold a window and one message; eight peers have
// a whole window, the others an eighth. Who syncs slowly takes a window with one sync.
// History is read for a peer while little waits to go to it. All other
// messages cost their bytes and the work that they cause against a budget that fills
// with time; who exceeds it is dropped. So are those who speak of too many partitions,
// or send too much that is refused; they are not let in again for a while. Of the
// partitions that a peer follows each gets a turn of some bytes, in a circle; those
// that are caught up, so new batches, come before those that are not, three turns of
// four. Offers are sent at a rate far below the budget of who gets them.
//
// # Rules for changing it
//
//   - A message of version 1 keeps its bytes and meaning. If a case in TestGolden
//     changes, the design is wrong, not the test.
//   - A new kind or field needs a new version, which hello negotiates, and a row in
//     docs/format/README.md.
package batches
