-- +goose Up
CREATE TABLE ledger_head (
	id       BIGINT PRIMARY KEY CHECK (id = 1),
	position BIGINT NOT NULL
) WITH (fillfactor = 10);
INSERT INTO ledger_head (id, position) VALUES (1, 0);

-- COLLATE "C": names are compared as bytes, as SQLite does.
CREATE TABLE ledger_events (
	position        BIGINT PRIMARY KEY,
	tenant_schema   TEXT COLLATE "C" NOT NULL,
	fork_id         TEXT COLLATE "C" NOT NULL,
	stream          TEXT COLLATE "C" NOT NULL,
	entity_id       TEXT COLLATE "C" NOT NULL,
	sequence_number BIGINT NOT NULL,
	event_type      TEXT NOT NULL,
	ir_version      TEXT NOT NULL,
	ts              BIGINT NOT NULL,
	payload         TEXT NOT NULL,
	intent_id       TEXT NOT NULL,
	intent_type     TEXT NOT NULL,
	correlation_id  TEXT NOT NULL,
	causation_id    TEXT NOT NULL,
	state_patch     TEXT
);
CREATE UNIQUE INDEX ledger_events_entity ON ledger_events (tenant_schema, fork_id, stream, entity_id, sequence_number);

CREATE TABLE ledger_intents (
	tenant_schema  TEXT COLLATE "C" NOT NULL,
	fork_id        TEXT COLLATE "C" NOT NULL,
	intent_id      TEXT COLLATE "C" NOT NULL,
	fingerprint    TEXT NOT NULL,
	first_position BIGINT NOT NULL,
	last_position  BIGINT NOT NULL,
	PRIMARY KEY (tenant_schema, fork_id, intent_id)
);

CREATE TABLE ledger_entities (
	tenant_schema   TEXT COLLATE "C" NOT NULL,
	fork_id         TEXT COLLATE "C" NOT NULL,
	stream          TEXT COLLATE "C" NOT NULL,
	entity_id       TEXT COLLATE "C" NOT NULL,
	sequence_number BIGINT NOT NULL,
	position        BIGINT NOT NULL,
	state           TEXT,
	PRIMARY KEY (tenant_schema, fork_id, stream, entity_id)
) WITH (fillfactor = 70);

CREATE TABLE ledger_publishers (
	name     TEXT COLLATE "C" PRIMARY KEY,
	owner    TEXT NOT NULL,
	beat     BIGINT NOT NULL,
	position BIGINT NOT NULL
) WITH (fillfactor = 10);

CREATE TABLE ledger_unpublished (
	name     TEXT COLLATE "C" NOT NULL,
	position BIGINT NOT NULL,
	error    TEXT NOT NULL,
	at       BIGINT NOT NULL,
	PRIMARY KEY (name, position)
);

-- +goose StatementBegin
CREATE FUNCTION ledger_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'the ledger is append-only' USING ERRCODE = 'restrict_violation';
END;
$$;
-- +goose StatementEnd
CREATE TRIGGER ledger_events_keep BEFORE UPDATE OR DELETE ON ledger_events FOR EACH ROW EXECUTE FUNCTION ledger_append_only();
CREATE TRIGGER ledger_events_stay BEFORE TRUNCATE ON ledger_events FOR EACH STATEMENT EXECUTE FUNCTION ledger_append_only();

-- +goose Down
SELECT 1;
