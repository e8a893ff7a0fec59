#!/bin/sh
# Builds other projects' test suites and runs them against real nodes: see
# test/suites. Argument: their names with commas, or all. RUN chooses tests, such
# as RUN=kgo/tests/TestPing; then nothing is recorded.
#
# The tests run in a network of their own that has only a loopback interface:
# some suites insist on fixed ports.
set -eu
cd "$(dirname "$0")/.."

scripts/deps.sh suites
root=
[ "$(id -u)" = 0 ] || root=--map-root-user

export LATTICE_BIN="$PWD/bin/lattice"
mkdir -p bin/suites
go test -c -o bin/suites/harness ./test/suites
cd test/suites
../../bin/suites/harness -test.v -test.timeout 1h -test.run '^TestBuild$' -suites "$1"
# shellcheck disable=SC2086,SC2016
exec unshare --net $root sh -c 'ip link set lo up && exec "$@"' sh \
	../../bin/suites/harness -test.v -test.timeout 4h -test.parallel 2 -test.run "^TestRun\$${RUN:+/$RUN}" -suites "$1"
