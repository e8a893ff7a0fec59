#!/bin/sh
# Runs the whole field of Kafka clients, and Kafka's own tools, against a real node,
# and writes docs/protocol/clients.md: minutes, and, the first time, more of Maven,
# PyPI, npm and crates.io than "make deps" brings. Arguments go to go test, such as
# -run 'TestField/clients/sarama'.
set -eu
cd "$(dirname "$0")/.."
scripts/deps.sh field
LATTICE_FIELD=all go test -count=1 -timeout 60m "$@" ./test/field
