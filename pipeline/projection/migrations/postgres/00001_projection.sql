-- +goose Up
CREATE TABLE projection_head (
	id       BIGINT PRIMARY KEY CHECK (id = 1),
	position BIGINT NOT NULL
) WITH (fillfactor = 10);
INSERT INTO projection_head (id, position) VALUES (1, 0);

-- A row of its own: whoever relays holds it while others take positions.
CREATE TABLE projection_relay (
	id      BIGINT PRIMARY KEY CHECK (id = 1),
	relayed BIGINT NOT NULL
) WITH (fillfactor = 10);
INSERT INTO projection_relay (id, relayed) VALUES (1, 0);

-- COLLATE "C": names are compared as bytes, as SQLite does.
CREATE TABLE projection_guards (
	projection    TEXT COLLATE "C" NOT NULL,
	tenant_schema TEXT COLLATE "C" NOT NULL,
	fork_id       TEXT COLLATE "C" NOT NULL,
	stream        TEXT COLLATE "C" NOT NULL,
	entity_id     TEXT COLLATE "C" NOT NULL,
	applied       BIGINT NOT NULL,
	parked        BIGINT NOT NULL,
	PRIMARY KEY (projection, tenant_schema, fork_id, stream, entity_id)
) WITH (fillfactor = 70);

CREATE TABLE projection_dead_letters (
	id               BIGINT PRIMARY KEY,
	projection       TEXT COLLATE "C" NOT NULL,
	tenant_schema    TEXT COLLATE "C" NOT NULL,
	fork_id          TEXT COLLATE "C" NOT NULL,
	stream           TEXT COLLATE "C" NOT NULL,
	entity_id        TEXT COLLATE "C" NOT NULL,
	sequence_number  BIGINT NOT NULL,
	event_type       TEXT NOT NULL,
	state            TEXT NOT NULL,
	error_class      TEXT NOT NULL,
	error            TEXT NOT NULL,
	stack_trace      TEXT NOT NULL,
	retry_count      BIGINT NOT NULL,
	first_failed_at  BIGINT NOT NULL,
	failed_at        BIGINT NOT NULL,
	source_topic     TEXT NOT NULL,
	source_partition BIGINT NOT NULL,
	source_offset    BIGINT NOT NULL,
	source_key       BYTEA NOT NULL,
	record           BYTEA NOT NULL,
	resolved_at      BIGINT NOT NULL,
	resolved_by      TEXT NOT NULL,
	reason           TEXT NOT NULL
);
CREATE INDEX projection_dead_letters_entity ON projection_dead_letters (projection, tenant_schema, fork_id, stream, entity_id, sequence_number);
-- Bytes that are no event have no guard: this is theirs.
CREATE UNIQUE INDEX projection_dead_letters_raw ON projection_dead_letters (projection, source_topic, source_partition, source_offset) WHERE sequence_number = 0;

CREATE TABLE projection_outbox (
	position BIGINT PRIMARY KEY,
	kind     TEXT NOT NULL,
	key      BYTEA NOT NULL,
	message  BYTEA NOT NULL
);

-- +goose Down
SELECT 1;
