-- +goose Up
-- Which generation of a table is live. Every transaction of a projection holds its row
-- shared; a swap holds it alone.
CREATE TABLE projection_tables (
	tenant_schema TEXT COLLATE "C" NOT NULL,
	name          TEXT COLLATE "C" NOT NULL,
	generation    BIGINT NOT NULL,
	epoch         BIGINT NOT NULL,
	digest        TEXT NOT NULL,
	PRIMARY KEY (tenant_schema, name)
) WITH (fillfactor = 50);

-- The generations that were begun by a rebuild, and what it swapped out.
CREATE TABLE projection_sets (
	tenant_schema TEXT COLLATE "C" NOT NULL,
	name          TEXT COLLATE "C" NOT NULL,
	generation    BIGINT NOT NULL,
	state         TEXT NOT NULL,
	digest        TEXT NOT NULL,
	version       TEXT NOT NULL,
	done          BIGINT NOT NULL,
	total         BIGINT NOT NULL,
	started_at    BIGINT NOT NULL,
	changed_at    BIGINT NOT NULL,
	PRIMARY KEY (tenant_schema, name, generation)
) WITH (fillfactor = 50);

-- How far a rebuild has read its source: all below next is in the tables.
CREATE TABLE projection_sources (
	tenant_schema TEXT COLLATE "C" NOT NULL,
	name          TEXT COLLATE "C" NOT NULL,
	generation    BIGINT NOT NULL,
	source        TEXT COLLATE "C" NOT NULL,
	part          BIGINT NOT NULL,
	next          BIGINT NOT NULL,
	PRIMARY KEY (tenant_schema, name, generation, source, part)
) WITH (fillfactor = 50);

-- 1: of tables that are not live.
ALTER TABLE projection_dead_letters ADD COLUMN hidden BIGINT NOT NULL DEFAULT 0;

-- +goose Down
SELECT 1;
