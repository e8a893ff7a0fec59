-- +goose Up
-- Which generation of a table is live. Every transaction of a projection holds its row
-- shared; a swap holds it alone.
CREATE TABLE projection_tables (
	tenant_schema TEXT NOT NULL,
	name          TEXT NOT NULL,
	generation    INTEGER NOT NULL,
	epoch         INTEGER NOT NULL,
	digest        TEXT NOT NULL,
	PRIMARY KEY (tenant_schema, name)
) STRICT, WITHOUT ROWID;

-- The generations that were begun by a rebuild, and what it swapped out.
CREATE TABLE projection_sets (
	tenant_schema TEXT NOT NULL,
	name          TEXT NOT NULL,
	generation    INTEGER NOT NULL,
	state         TEXT NOT NULL,
	digest        TEXT NOT NULL,
	version       TEXT NOT NULL,
	done          INTEGER NOT NULL,
	total         INTEGER NOT NULL,
	started_at    INTEGER NOT NULL,
	changed_at    INTEGER NOT NULL,
	PRIMARY KEY (tenant_schema, name, generation)
) STRICT, WITHOUT ROWID;

-- How far a rebuild has read its source: all below next is in the tables.
CREATE TABLE projection_sources (
	tenant_schema TEXT NOT NULL,
	name          TEXT NOT NULL,
	generation    INTEGER NOT NULL,
	source        TEXT NOT NULL,
	part          INTEGER NOT NULL,
	next          INTEGER NOT NULL,
	PRIMARY KEY (tenant_schema, name, generation, source, part)
) STRICT, WITHOUT ROWID;

-- 1: of tables that are not live.
ALTER TABLE projection_dead_letters ADD COLUMN hidden INTEGER NOT NULL DEFAULT 0;

-- +goose Down
SELECT 1;
