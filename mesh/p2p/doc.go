// Package p2p carries what replicas tell each other between nodes, over libp2p.
//
// What is to be told is decided elsewhere (mesh/reconcile, of entries, and mesh/batches,
// of the records of topics); here are connections, streams, goroutines, deadlines and
// limits. Stores come in by an interface (Store),
// so this package knows no disk. Other packages see no libp2p.
//
// A Mesh is one node's part: New takes the configured addresses, Run serves and
// connects until its context ends, Add hands it a store, Join redeems an invitation.
// A node contacts nobody that it was not told of: by a token, by Remember, or by a
// member, of itself. It asks no public service, maps no port, and announces itself
// on the local network only with Config.MDNS.
//
// # Who is served
//
// A node's libp2p identity is its Ed25519 key, so the handshake (TLS 1.3 or Noise)
// proves the NodeID. Whoever is a member of no store here is a stranger. A stranger
// may ask to join, or whether it was removed, and nothing else: other streams are reset, whichever stores are
// here; it is disconnected after Limits.StrangerTime, and there are Limits.Strangers
// at a time, a few of each address. A member gets the stores that it is a member of;
// a store that is not here and one that it is no member of are answered alike, by a
// reset and silence. All nodes name the same protocols, whatever they carry.
//
// # A session: /lattice/reconcile/1
//
// One stream for each store and peer, both ways, of messages as mesh/reconcile draws
// them. Who opens it sends its hello, which names the store; the other looks up the
// store and whether the peer is a member, and answers with its own hello. Two that
// open at once keep the stream of the lower node id. A message is taken off the
// stream as its header says how long it is, into memory that grows as bytes come.
//
//	stream --> read --+                      +--> Read, Keep  (workers; Keep in order per log)
//	                  |   +--------------+   |         |
//	other peers ----> +-->| carrier.run  |---+         |
//	Appended, ticks ----->| owns Replica |<------------+
//	                      +--------------+
//	stream <-- write <-- queue <--+
//
// The carrier of a store is one goroutine, and it never waits for a peer, nor for a
// disk but to read the inventory when that was replaced:
// readers wait for it, the queue of a peer that is too slow ends that peer's session,
// and what a store keeps is bounded by the credit that the Replica gives.
//
// # A session about records: /lattice/batches/1
//
// As the above, of messages as mesh/batches draws them, for a Store that is a
// Partitions, too. Its goroutine (courier) owns a batches.Replica, and gives spans to
// logs, in order for each partition; those that gathered meanwhile are put together. So
// bulk of one kind does not wait for that of the other. What is not served is answered
// by the same silence.
//
// # Joining: /lattice/join/1
//
//	request, 196 bytes:
//	 0 "LJ" | version u8 = 1 | 0 u8
//	 4 store 32 | inviter 32 | claim: id 32, author 32, proof 64    (core/roster)
//	answer:
//	 0 "LJ" | version u8 = 1 | status u8
//	   0 welcome  length u32 <= 64 KiB, genesis entry | addresses u8 n <= 16, n x: length u8, bytes
//	   1 refused  nothing more. The store or the invitation is not here, the secret
//	              is not proven, or something failed: which, is not told
//	   2 used, 3 revoked, 4 expired    only to who has proven the secret
//	   5 later    too many ask; nothing was looked at
//
// # Snapshots: /lattice/snapshot/1
//
//	request, 116 bytes:
//	 0 "LS" | version u8 = 1 | 0 u8 | store 32 | root 32 | sum 32 | bytes u64 | offset u64
//	answer:
//	 0 "LS" | version u8 = 1 | status u8: 0 it follows, 1 it is not here, 2 later: others get theirs
//	 4 bytes u64 that follow, from the offset to the end, and they
//
// # Where others are: /lattice/where/1
//
// A member asks a member now and then, so that those who were invited by one node
// find each other without it. What comes is called, and believed when the handshake
// proves who is there; what was only told is not told on.
//
//	request, 36 bytes:
//	 0 "LQ" | version u8 = 1 | 0 u8 | store 32
//	answer, at most 256 KiB:
//	 0 "LQ" | version u8 = 1 | 0 u8 | u16 n <= 512, n x: node 32, u8 n <= 4, n x: length u8, bytes
//
// # Who was removed: /lattice/removed/1
//
// A node whose sessions end before they begin asks why. Who was a member and was removed
// is shown the proof; anybody else, and who asks of another store, hears nothing.
//
//	request, 36 bytes:
//	 0 "LO" | version u8 = 1 | 0 u8 | store 32
//	answer: the notice, at most 1 MiB, as core/fold draws it, to the end of the stream
//
// # What clients want elsewhere: /lattice/forward/1
//
// A node has the leader of a partition do what its own clients ask (Forward), and does
// the same for others where it leads (Leader). mesh/forward draws the messages.
//
// # Promises: /lattice/ballot/1
//
// A candidate asks a member of a partition's set, one question on a stream (AskBallot, Voter).
// mesh/ballot draws the messages. A peer of an older version says that it does not speak it.
//
// # Address book
//
// Where nodes were reached, and who told of them, is kept by Config.Book as JSON. It
// is a hint: without it a node waits to be found, or is told again.
//
//	{"version":1,
//	 "peers":[{"node":"<64 hex>","addresses":["/ip4/…"],"seen":<ms since 1970>,
//	           "invited":["<store, 64 hex>"]}]}
//
// Peers ascend by node, addresses by when they were learned, the newest first.
// "invited" are the stores into which the node invited this one: there it counts as
// a member until its membership is known.
//
// # Rules for changing it
//
//   - Requests and answers of a version keep their bytes: if a case in TestGolden
//     changes, the design is wrong, not the test. A change is another protocol id.
//   - A book of a later version is refused, one of an earlier opens for ever.
package p2p
