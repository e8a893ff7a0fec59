#!/bin/sh
# Runs every fuzz target of some packages for some time each.
set -eu
cd "$(dirname "$0")/.."
for pkg in $(go list "$1"); do
	for target in $(go test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true); do
		echo "== $pkg $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$2" "$pkg"
	done
done
