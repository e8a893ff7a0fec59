#!/bin/sh
# What is seen without running anything. Argument: the staticcheck command.
set -eu
cd "$(dirname "$0")/.."

# Files that git knows or would add, so that nothing outside the tree counts.
git ls-files --cached --others --exclude-standard '*.go' >bin/files
unformatted=$(xargs gofmt -l <bin/files)
if [ -n "$unformatted" ]; then
	echo "lint: not gofmt'd:" >&2
	echo "$unformatted" >&2
	exit 1
fi

# A file has less than 500 lines; generated ones may have more.
long=$(xargs grep -L '^// Code generated' <bin/files | xargs wc -l | awk '$2 != "total" && $1 >= 500 { print "  " $2 ": " $1 " lines" }')
if [ -n "$long" ]; then
	echo "lint: files of 500 lines or more:" >&2
	echo "$long" >&2
	exit 1
fi

# Modules of tests of their own ask for what the product asks for now; vet says if not.
for module in test/*/go.mod; do
	(cd "$(dirname "$module")" && go vet ./...)
done
go vet ./...
"$1" ./...
