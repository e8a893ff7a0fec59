package group

import (
	"context"

	lattice "github.com/lattice-log/lattice"
)

// Manager coordinates the groups of one store. Safe for concurrent use. Replies
// are called exactly once each, with no lock held, possibly before the call
// returns, and must not block.
type Manager struct{}

// New loads the stored offsets. Nothing runs until Run does, but every request
// that needs no disk is already answered.
func New(cfg Config, offsets Offsets, topics Topics) (*Manager, error) { panic("wip") }

// Run writes commits, groups them into shared syncs, and expires offsets, until
// ctx ends. It then answers everything that still waits with ErrClosed.
func (m *Manager) Run(ctx context.Context) error { panic("wip") }

// Join enters a classic group. The reply comes when the rebalance is through.
func (m *Manager) Join(r JoinRequest, reply func(JoinResult)) { panic("wip") }

// Sync fetches a classic member's assignment, and brings them if it leads.
func (m *Manager) Sync(r SyncRequest, reply func(SyncResult)) { panic("wip") }

// Heartbeat keeps a classic member alive. nil, or one of the errors above.
func (m *Manager) Heartbeat(r HeartbeatRequest) error { panic("wip") }

// Leave takes members out of a group of either type.
func (m *Manager) Leave(r LeaveRequest) LeaveResult { panic("wip") }

// ConsumerHeartbeat is KIP-848's request.
func (m *Manager) ConsumerHeartbeat(r ConsumerHeartbeatRequest) ConsumerHeartbeatResult {
	panic("wip")
}

// CommitOffsets replies when the offsets are durable or refused.
func (m *Manager) CommitOffsets(r CommitRequest, reply func(CommitResult)) { panic("wip") }

// FetchOffsets reads committed offsets.
func (m *Manager) FetchOffsets(r FetchRequest) FetchResult { panic("wip") }

// DeleteOffsets removes offsets of partitions that no member is subscribed to.
func (m *Manager) DeleteOffsets(group string, partitions []lattice.TopicPartition, reply func(DeleteOffsetsResult)) {
	panic("wip")
}

// DeleteGroup removes an Empty group and its offsets. ErrGroupNotFound, ErrNonEmpty, ErrNotStored.
func (m *Manager) DeleteGroup(group string, reply func(error)) { panic("wip") }

// Describe tells everything about one group. ErrGroupNotFound.
func (m *Manager) Describe(group string) (Description, error) { panic("wip") }

// List returns all groups, sorted by name.
func (m *Manager) List() []Listing { panic("wip") }

// TopicsChanged says that topics were created, deleted or given partitions.
func (m *Manager) TopicsChanged() { panic("wip") }

// TopicDeleted drops the offsets of a topic incarnation, durably before Run
// takes later commits. Calling it again is harmless.
func (m *Manager) TopicDeleted(id lattice.TopicID) { panic("wip") }
