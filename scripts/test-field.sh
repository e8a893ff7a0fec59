#!/bin/sh
# Sets up the Kafka clients that test/field drives, where that was not done
# before, and runs them all against a real node: minutes, and Maven, PyPI and
# npm. Writes docs/protocol/clients.md. Arguments go to go test, such as
# -run 'TestField/clients/sarama'.
set -eu
cd "$(dirname "$0")/.."

need() {
	for tool in "$@"; do
		if ! command -v "$tool" >/dev/null 2>&1; then
			echo "test-field: needs $tool; install it and run this again" >&2
			exit 1
		fi
	done
}

need go java javac mvn python3 node npm cargo
(
	cd test/java
	if [ ! -f target/classpath ] || [ pom.xml -nt target/classpath ]; then
		mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath -Dmdep.outputFile=target/classpath
	fi
	javac -Xlint:all,-processing,-classfile,-path -cp "$(cat target/classpath)" -d target/classes src/*.java
)
(
	cd test/python
	if [ ! -f .venv/done ] || [ requirements.txt -nt .venv/done ]; then
		python3 -m venv .venv
		.venv/bin/pip install -q -r requirements.txt
		touch .venv/done
	fi
)
(
	cd test/node/platformatic
	if [ ! -f node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
		npm ci --no-audit --no-fund --loglevel=error
		touch node_modules/.package-lock.json
	fi
)
(
	cd test/node/confluent
	if [ ! -f node_modules/.librdkafka/done ] || [ package-lock.json -nt node_modules/.librdkafka/done ]; then
		./build.sh || { tail -20 build.log >&2; exit 1; }
	fi
)
(cd test/rust && cargo build -q)
exec go test -tags field -count=1 -timeout 30m "$@" ./test/field
