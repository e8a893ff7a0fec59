#!/bin/sh
# Sets up what the tests need on Debian or Ubuntu: kcat, Redis's tools, Node.js with
# kafkajs and ioredis, Java and Python with a Kafka client each, redis-py, PostgreSQL, Apache Kafka. "deps.sh field" also sets up
# everything that only the whole field of clients (scripts/test-field.sh) needs;
# "deps.sh suites" installs what scripts/test-suites.sh builds and runs other projects' suites with.
# What is there already is left alone, so that a second run needs no network.
set -eu
cd "$(dirname "$0")/.."
field=${1:-}

# The packages that bring the commands that are missing; some are where only root's PATH looks.
missing=
PATH=$PATH:/usr/sbin:/sbin
want() {
	command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
want kcat kcat
want node nodejs
want npm npm
want redis-benchmark redis-tools # with redis-cli and, as redis-check-rdb, the server itself without its service
want javac default-jdk-headless
want mvn maven
want python3 python3
want chromium chromium # opens the example's page
want ip iproute2 # with tc; for the nodes in namespaces of test/mesh
want nft nftables
python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing="$missing python3-venv"
# The server's programs are not on the PATH; tests start it themselves.
for initdb in /usr/lib/postgresql/*/bin/initdb; do
	[ -x "$initdb" ] || command -v initdb >/dev/null 2>&1 || missing="$missing postgresql"
done
header() {
	[ -f "/usr/include/$1" ] || missing="$missing $2"
}
if [ "$field" = field ] || [ "$field" = suites ]; then
	want g++ g++
	want make make
	header openssl/ssl.h libssl-dev
	header zlib.h zlib1g-dev
	header zstd.h libzstd-dev
fi
if [ "$field" = field ]; then
	want cargo cargo
fi
if [ "$field" = suites ]; then
	want gcc gcc
	want unshare util-linux
	want tclsh tcl
	header rapidjson/schema.h rapidjson-dev
fi
if [ -n "$missing" ]; then
	if ! command -v apt-get >/dev/null 2>&1; then
		echo "deps: needs$missing (by Debian's names); install them and run this again" >&2
		exit 1
	fi
	sudo=
	if [ "$(id -u)" != 0 ]; then
		sudo=sudo
	fi
	$sudo apt-get update -q
	# shellcheck disable=SC2086
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
fi

[ "$field" != suites ] || exit 0

# newer A B: A is not there, or B is newer.
newer() { [ ! -f "$1" ] || [ "$2" -nt "$1" ]; }

# Each client driver in test/ that is a Node module gets its locked packages, and so does
# the client for browsers, whose build is checked.
modules() {
	for lock in "$@"; do
		[ -f "$lock" ] || continue
		dir=$(dirname "$lock")
		if newer "$dir/node_modules/.package-lock.json" "$lock"; then
			(cd "$dir" && npm ci --no-audit --no-fund --loglevel=error)
			touch "$dir/node_modules/.package-lock.json"
		fi
	done
}
modules test/*/package-lock.json test/node/kafkajs/package-lock.json client/ts/package-lock.json

# classpath DIR FILE FLAGS: what the pom in DIR runs on, from Maven.
classpath() {
	dir=$1
	file=$2
	shift 2
	if newer "$dir/target/$file" "$dir/pom.xml"; then
		(cd "$dir" && mvn -q -B -ntp "$@" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath -Dmdep.outputFile="target/$file.new")
		mv "$dir/target/$file.new" "$dir/target/$file"
	fi
}
classpath test/java classpath
classpath test/bench/kafka classpath # Apache Kafka itself
stale=
for source in test/java/src/*.java test/java/target/classpath; do
	if newer test/java/target/classes/Driver.class "$source"; then
		stale=yes
	fi
done
if [ -n "$stale" ]; then
	javac -Xlint:all,-processing,-classfile,-path -cp "$(cat test/java/target/classpath)" -d test/java/target/classes test/java/src/*.java
fi

if newer test/python/.venv/done test/python/requirements.txt; then
	python3 -m venv test/python/.venv
	test/python/.venv/bin/pip install -q --disable-pip-version-check -r test/python/requirements.txt
	touch test/python/.venv/done
fi

[ "$field" = field ] || exit 0
classpath test/java toolpath -Ptools
modules test/node/platformatic/package-lock.json
if newer test/node/confluent/node_modules/.librdkafka/done test/node/confluent/package-lock.json; then
	test/node/confluent/build.sh || { tail -20 test/node/confluent/build.log >&2; exit 1; }
fi
(cd test/rust && cargo build -q)
