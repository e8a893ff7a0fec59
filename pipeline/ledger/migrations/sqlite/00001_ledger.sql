-- +goose Up
CREATE TABLE ledger_head (
	id       INTEGER PRIMARY KEY CHECK (id = 1),
	position INTEGER NOT NULL
) STRICT;
INSERT INTO ledger_head (id, position) VALUES (1, 0);

CREATE TABLE ledger_events (
	position        INTEGER PRIMARY KEY,
	tenant_schema   TEXT NOT NULL,
	fork_id         TEXT NOT NULL,
	stream          TEXT NOT NULL,
	entity_id       TEXT NOT NULL,
	sequence_number INTEGER NOT NULL,
	event_type      TEXT NOT NULL,
	ir_version      TEXT NOT NULL,
	ts              INTEGER NOT NULL,
	payload         TEXT NOT NULL,
	intent_id       TEXT NOT NULL,
	intent_type     TEXT NOT NULL,
	correlation_id  TEXT NOT NULL,
	causation_id    TEXT NOT NULL,
	state_patch     TEXT
) STRICT;
CREATE UNIQUE INDEX ledger_events_entity ON ledger_events (tenant_schema, fork_id, stream, entity_id, sequence_number);

CREATE TABLE ledger_intents (
	tenant_schema  TEXT NOT NULL,
	fork_id        TEXT NOT NULL,
	intent_id      TEXT NOT NULL,
	fingerprint    TEXT NOT NULL,
	first_position INTEGER NOT NULL,
	last_position  INTEGER NOT NULL,
	PRIMARY KEY (tenant_schema, fork_id, intent_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE ledger_entities (
	tenant_schema   TEXT NOT NULL,
	fork_id         TEXT NOT NULL,
	stream          TEXT NOT NULL,
	entity_id       TEXT NOT NULL,
	sequence_number INTEGER NOT NULL,
	position        INTEGER NOT NULL,
	state           TEXT,
	PRIMARY KEY (tenant_schema, fork_id, stream, entity_id)
) STRICT;

CREATE TABLE ledger_publishers (
	name     TEXT PRIMARY KEY,
	owner    TEXT NOT NULL,
	beat     INTEGER NOT NULL,
	position INTEGER NOT NULL
) STRICT;

CREATE TABLE ledger_unpublished (
	name     TEXT NOT NULL,
	position INTEGER NOT NULL,
	error    TEXT NOT NULL,
	at       INTEGER NOT NULL,
	PRIMARY KEY (name, position)
) STRICT;

-- +goose StatementBegin
CREATE TRIGGER ledger_events_keep BEFORE UPDATE ON ledger_events BEGIN
	SELECT RAISE(ABORT, 'the ledger is append-only');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER ledger_events_stay BEFORE DELETE ON ledger_events BEGIN
	SELECT RAISE(ABORT, 'the ledger is append-only');
END;
-- +goose StatementEnd

-- +goose Down
SELECT 1;
