-- +goose Up
CREATE TABLE projection_head (
	id       INTEGER PRIMARY KEY CHECK (id = 1),
	position INTEGER NOT NULL
) STRICT;
INSERT INTO projection_head (id, position) VALUES (1, 0);

CREATE TABLE projection_relay (
	id      INTEGER PRIMARY KEY CHECK (id = 1),
	relayed INTEGER NOT NULL
) STRICT;
INSERT INTO projection_relay (id, relayed) VALUES (1, 0);

CREATE TABLE projection_guards (
	projection    TEXT NOT NULL,
	tenant_schema TEXT NOT NULL,
	fork_id       TEXT NOT NULL,
	stream        TEXT NOT NULL,
	entity_id     TEXT NOT NULL,
	applied       INTEGER NOT NULL,
	parked        INTEGER NOT NULL,
	PRIMARY KEY (projection, tenant_schema, fork_id, stream, entity_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE projection_dead_letters (
	id               INTEGER PRIMARY KEY,
	projection       TEXT NOT NULL,
	tenant_schema    TEXT NOT NULL,
	fork_id          TEXT NOT NULL,
	stream           TEXT NOT NULL,
	entity_id        TEXT NOT NULL,
	sequence_number  INTEGER NOT NULL,
	event_type       TEXT NOT NULL,
	state            TEXT NOT NULL,
	error_class      TEXT NOT NULL,
	error            TEXT NOT NULL,
	stack_trace      TEXT NOT NULL,
	retry_count      INTEGER NOT NULL,
	first_failed_at  INTEGER NOT NULL,
	failed_at        INTEGER NOT NULL,
	source_topic     TEXT NOT NULL,
	source_partition INTEGER NOT NULL,
	source_offset    INTEGER NOT NULL,
	source_key       BLOB NOT NULL,
	record           BLOB NOT NULL,
	resolved_at      INTEGER NOT NULL,
	resolved_by      TEXT NOT NULL,
	reason           TEXT NOT NULL
) STRICT;
CREATE INDEX projection_dead_letters_entity ON projection_dead_letters (projection, tenant_schema, fork_id, stream, entity_id, sequence_number);
-- Bytes that are no event have no guard: this is theirs.
CREATE UNIQUE INDEX projection_dead_letters_raw ON projection_dead_letters (projection, source_topic, source_partition, source_offset) WHERE sequence_number = 0;

CREATE TABLE projection_outbox (
	position INTEGER PRIMARY KEY,
	kind     TEXT NOT NULL,
	key      BLOB NOT NULL,
	message  BLOB NOT NULL
) STRICT;

-- +goose Down
SELECT 1;
