#!/bin/sh
# Sets up what the tests need on Debian or Ubuntu: kcat, Redis's tools, and
# Node.js with kafkajs.
# What is there already is left alone, so that a second run needs no network.
set -eu
cd "$(dirname "$0")/.."

missing=
for tool in kcat node npm redis-benchmark; do
	command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
done
if [ -n "$missing" ]; then
	if ! command -v apt-get >/dev/null 2>&1; then
		echo "deps: needs$missing; install them and run this again" >&2
		exit 1
	fi
	sudo=
	if [ "$(id -u)" != 0 ]; then
		sudo=sudo
	fi
	# nodejs brings the command node; redis-tools brings redis-cli, redis-benchmark and,
	# as redis-check-rdb, the server itself without the service of redis-server.
	packages=$(echo "$missing" | sed 's/ node\b/ nodejs/; s/ redis-benchmark/ redis-tools/')
	$sudo apt-get update -q
	# shellcheck disable=SC2086
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $packages
fi

# Each client driver in test/ that is a Node module gets its locked packages.
for lock in test/*/package-lock.json; do
	[ -f "$lock" ] || continue
	dir=$(dirname "$lock")
	if [ ! -f "$dir/node_modules/.package-lock.json" ] || [ "$lock" -nt "$dir/node_modules/.package-lock.json" ]; then
		(cd "$dir" && npm ci --no-audit --no-fund --loglevel=error)
		touch "$dir/node_modules/.package-lock.json"
	fi
done
