#!/bin/sh
# Rewrites the golden files and transcripts of some packages: those whose tests
# have the flag -rewrite. Read the diff: a changed golden byte of a format is a
# broken format.
set -eu
cd "$(dirname "$0")/.."
for pkg in $(go list -f '{{.Dir}}' "$1"); do
	if grep -qs 'flag.Bool("rewrite"' "$pkg"/*_test.go; then
		go test -count=1 "$pkg" -rewrite
	fi
done
git diff --stat
