#!/bin/sh
# Builds librdkafka and its tests in the directory given, from the sources that
# the npm package @confluentinc/kafka-javascript brings, and lays out there, as
# kafka/, what the tests want of a Kafka distribution: see kafka/bin.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$1"

need() {
	command -v "$1" >/dev/null 2>&1 || {
		echo "librdkafka's suite needs $1: apt-get install $2" >&2
		exit 1
	}
}
# Without these, librdkafka builds and its tests skip.
need_header() {
	echo "#include <$1>" | c++ -E -x c++ - >/dev/null 2>&1 || {
		echo "librdkafka's suite needs the header $1: apt-get install $2" >&2
		exit 1
	}
}
need npm nodejs
need c++ g++
need make make
need python3 python3
need javac openjdk-17-jdk-headless
need mvn maven
need_header zlib.h zlib1g-dev
need_header openssl/ssl.h libssl-dev
need_header zstd.h libzstd-dev
need_header rapidjson/schema.h rapidjson-dev

cp "$here/package.json" "$here/package-lock.json" .
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
rm -rf source kafka
mv node_modules/@confluentinc/kafka-javascript/deps/librdkafka source
rm -rf node_modules
(
	cd source
	./configure --disable-gssapi --disable-curl --disable-lz4-ext
	make -j2 libs
	make -j2 -C tests build
	rm -f tests/stats_*.json
) >build.log 2>&1 || {
	tail -20 build.log >&2
	exit 1
}
cp -r "$here/kafka" kafka
mvn -q -B -f "$here/../../java/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
	-DoutputDirectory="$PWD/kafka/libs"
make -C source/tests/java KAFKA_PATH="$PWD/kafka" >>build.log 2>&1 || {
	tail -20 build.log >&2
	exit 1
}
