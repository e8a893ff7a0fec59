#!/bin/sh
# What a change must pass. Arguments: the go command, gofumpt and staticcheck.
set -eu
cd "$(dirname "$0")/.."
go=$1 gofumpt=$2 staticcheck=$3

# Files that git knows or would add, so that nothing outside the tree counts.
files=$(git ls-files --cached --others --exclude-standard '*.go' | xargs grep -L '^// Code generated' || true)
# shellcheck disable=SC2086
unformatted=$($go run "$gofumpt" -l $files)
if [ -n "$unformatted" ]; then
	echo "check: not gofumpt'd:" >&2
	echo "$unformatted" >&2
	exit 1
fi

# A file has less than 500 lines; generated ones may have more.
long=$(echo "$files" | xargs wc -l | awk '$2 != "total" && $1 >= 500 { print "  " $2 ": " $1 " lines" }')
if [ -n "$long" ]; then
	echo "check: files of 500 lines or more:" >&2
	echo "$long" >&2
	exit 1
fi

$go vet ./...
$go run "$staticcheck" ./...
$go test -short -tags invariants ./...
