#!/bin/sh
# Lattice beside its peers on this machine, and with a history: twenty minutes, or
# a few with -short. With -keys, its keys beside Redis alone; with -mesh, two nodes of a mesh. Builds what it starts into bin/bench, asks Maven for Kafka's
# jars once, and gives its arguments to test/bench (-help lists them). A peer that
# is not here is an error that names the command that installs it.
set -eu
cd "$(dirname "$0")/.."

bins=$PWD/bin/bench
mkdir -p "$bins"
if [ ! -x bin/lattice ]; then
	echo "bench: needs bin/lattice; run make build" >&2
	exit 1
fi
cp bin/lattice "$bins/lattice"
go build -o "$bins/rawstream" ./mesh/p2p/rawstream
(
	cd test/bench
	go vet ./... >&2
	go test -count=1 ./... >&2
	go build -o "$bins/bench" .
	if [ "${1:-}" != -keys ]; then
		go build -o "$bins/kfake" ./kfake
		go build -o "$bins/nats-server" github.com/nats-io/nats-server/v2
	fi
)
# Without Maven the program says what to do, unless Kafka is left out.
if [ "${1:-}" != -keys ] && command -v mvn >/dev/null 2>&1; then
	(
		cd test/bench/kafka
		if [ ! -f target/classpath ] || [ pom.xml -nt target/classpath ]; then
			mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath -Dmdep.outputFile=target/classpath >&2
		fi
	)
fi
exec "$bins/bench" -bins "$bins" -classpath "$PWD/test/bench/kafka/target/classpath" \
	-commit "$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)" "$@"
