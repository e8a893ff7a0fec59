-- +goose Up
CREATE TABLE thing (id TEXT PRIMARY KEY, n BIGINT NOT NULL CHECK (n >= 0), note TEXT, blob_ BYTEA);
