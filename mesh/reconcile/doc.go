// Package reconcile decides what replicas of a store must tell each other.
//
// It is a state machine: messages, finished reads and writes, and the time go in;
// messages to send, entries to store and spans to read come out. It owns no
// goroutine, socket, file or clock, so one test process can run many replicas, and
// a failure replays from its script. It holds no entries beyond those on their way
// to the disk: of each log it knows how far it is, in about 200 bytes.
//
// # What the caller must do
//
//  1. Connect a peer only when it is authenticated and a member. A node says nothing
//     about a store to anyone else, so a Replica is never shown a stranger.
//  2. Make each Effects.Store durable, in order, and then say so by Stored. Nothing
//     that claims an entry is sent before: a claim that a crash can take back would
//     let peers stop offering it. What the store refuses is reported by Stored too.
//  3. Send Effects.Send to each peer in order, whole messages. A connection that
//     loses or reorders messages, or takes them too slowly for a bounded queue, must
//     be dropped: Disconnect.
//  4. Answer each Effects.Read by Loaded, once, in any order. What is read must be
//     durable. That something was pruned meanwhile is an ordinary answer.
//  5. Close the connections in Effects.Drop, and that of a peer for which Step
//     returned an error; the peer is disconnected here already.
//  6. Say what this node wrote itself, once it is durable, by Appended; that the
//     members have changed by Reconsider; call Tick a few times a second.
//  7. Count and show Effects.Refused. Fetch what Effects.Snapshots offers if a log
//     cannot go on without it, and then Rebase.
//  8. Say what this node itself knows of a partition, once it is durable, by Learned:
//     its grants, checkpoints and cosignatures, and what Effects.Prove asks for, if
//     the tree is here.
//
// After a crash a new Replica begins from what is durable. Nothing else needs to be
// kept: what a peer had last time would be only a hint.
//
// # A session
//
//	A                                       B
//	hello  root, window            <->      hello
//	                                        equal roots: nothing more is sent
//	ranges digests of 16 ranges     ->
//	                               <-       ranges: equal ones skipped, others split, small ones as items
//	ranges items that differ        ->
//	want   log, after               ->
//	                               <-       blocks, blocks, ...   as far as credit goes
//	credit                          ->      when they are durable
//	frontier root                  <->      when nothing is outstanding: the end of catching up
//	                               <-       blocks, as they are written; offer, for logs not followed
//
// Who has the lower node id asks first. Each side wants what it lacks, at once, and
// each log from one peer only, so that many peers do not send the same. A want is
// open: what is written later follows on it. Others are told of new entries by an
// offer of 81 bytes, and a log whose source falls silent or fails is wanted from
// another. All that is received is offered on, so A and C meet through B.
//
// # What is checked
//
// Merging is the security boundary. An entry goes to the store only if it is of this
// store and of the log that was wanted, follows the entry before it in the chain,
// is of an author that Config.Admit lets in, and is signed. A batch that comes with
// its author's checkpoint needs no look at each signature: the leaves of its entries
// are added to the tree before it, whose compact range the sender gives, and a proof
// says that the result is a prefix of the tree that the author signed. So every
// byte is what the author committed to, wherever the batch stands. If the proof
// fails, signatures are checked one by one. What is good before the first bad entry
// is kept; the log is not wanted from this peer again for a while, and each refusal
// has a Reason. Whether an entry counts is judged later (core/fold).
//
// An entry that does not follow what is here means that its author signed two
// histories, or that the peer lies. The first place where both differ is searched by
// halving, an entry a step; two signed entries for one place are the proof, which is
// stored, told to everyone, and ends the log before that place on every node. A peer
// that shows no such entry is not asked again.
//
// # Messages
//
// Version 1. Numbers are big-endian. Each message is
//
//	0      2     3      4        8
//	+------+-----+------+--------+------
//	| "LM" | ver | kind | length | body     length u32, of the body
//	|      | 1   | u8   | u32    |
//	+------+-----+------+--------+------
//
// and each kind bounds its body (MaxBody), so that a reader knows after 8 bytes what
// it has to hold. There is one encoding for each message.
//
//	key   kind u8 | 40 bytes, the rest zero:
//	      1 fork       author 32          2 log  author 32, incarnation u64
//	      3 partition  topic 16, partition u32
//	item  key 41 | n u64 | id 32
//	      log: the sequence number and id of the last entry, of the last before a fork
//	      fork: incarnation, and the sequence number in the first 8 bytes of id
//	      partition: how many statements there are, and their digest
//	bound length u8, key without its trailing zeros; empty: the first key, or past the last
//	log   author 32, incarnation u64
//
//	 1 hello      lowest version u16 | highest u16 | store 32 | node 32 | session u64 |
//	              root 32 | items u32 | window u32, bytes of blocks that may come unasked for credit
//	 2 ranges     flags u8: 1 = the last answer to one message of yours | from bound |
//	              u16 n, then n x: to bound | mode u8 | by mode:
//	              0 equal   -
//	              1 digest  items u32 | 16 bytes of their digest
//	              2 items   u16 n, n x item: all there are; tell yours that differ
//	              3 answer  u16 n, n x item
//	 3 offer      u16 n, n x item: newly here
//	 4 want       u16 n, n x (log | after u64 | upto u64: 0 = and all that follows, at most
//	              after = nothing any more | ask u32) | u16 n, n x author: its fork | u16 n, n x (topic 16,
//	              partition u32): its statements
//	 5 blocks     log | ask u32, of the want | after u64 | u32 n, n x (length u32, entry) | checkpoint length u16, signed
//	              note; empty: none | u8 n, n x hash: compact range of the tree before |
//	              u8 n, n x hash: proof that the tree with them is a prefix of the checkpoint's
//	 6 fork       length u32, entry | length u32, entry
//	 7 statements topic 16, partition u32 | u16 n, n x (kind u8, length u32, bytes)
//	 8 pruned     log | first u64, the first entry that is here | state root 32 | sum 32 |
//	              bytes u64: of the snapshot that has the rest; zeros: none
//	 9 refuse     log | after u64 | reason u8
//	10 credit     bytes u32
//	11 frontier   root 32 | items u32
//	12 bye        reason u8
//
// The root is SHA-256("lattice/frontier/v1\x00" | items u32 | items), a range's
// digest its first 16 bytes: whoever finds two sets with one such digest has only
// made two replicas miss a difference in that range, which their roots then show.
//
// # Bounds
//
// Blocks are sent against credit: a message may overdraw it, but none is sent while
// there is none, so a peer can make a node hold a window and one entry. All other
// messages cost their bytes and the work that they cause against a budget that fills
// with time; who exceeds it is dropped. Logs that peers speak of are bounded, too, and
// who sends too much that is refused is dropped, and not let in again for a while.
// Of the logs that a peer wants each gets a turn of some bytes, in a circle; those
// that are caught up, so new writes, come before those that are not, three turns of four.
//
// # Rules for changing it
//
//   - A message of version 1 keeps its bytes and meaning. If a case in TestGolden
//     changes, the design is wrong, not the test.
//   - A new kind or field needs a new version, which hello negotiates, and a row in
//     docs/format/README.md.
package reconcile
