#!/bin/sh
# Figures for this machine: Go benchmarks, then a node of its own measured from outside.
set -eu
cd "$(dirname "$0")/.."
go test -run '^$' -bench . -benchmem ./core/... ./storage/... ./engine/... ./front/... | grep -v '^?'

data=$(mktemp -d)
trap 'kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; rm -rf "$data"' EXIT
bin/lattice up --data "$data" --kafka 127.0.0.1:0 --http "" >/dev/null 2>"$data/log" &
pid=$!
tries=0
until [ -f "$data/node.json" ]; do
	tries=$((tries + 1))
	if [ "$tries" -gt 100 ]; then
		cat "$data/log" >&2
		exit 1
	fi
	sleep 0.1
done
for durability in fsync os; do
	echo "== durability $durability"
	bin/lattice bench produce --data "$data" --partitions 1 --durability "$durability"
	bin/lattice bench produce --data "$data" --partitions 1 --size 1024 --records 200000 --durability "$durability"
done
echo "== consume"
bin/lattice bench consume --data "$data" --partitions 1
bin/lattice bench consume --data "$data" --partitions 1 --size 1024 --records 200000
