#!/bin/sh
# Generates the Go code of the .proto files, and the OpenAPI document of the node's API. Needs protoc (Debian:
# protobuf-compiler, libprotobuf-dev); the Go generators come from go.mod.
set -eu
cd "$(dirname "$0")"
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin" ./openapi google.golang.org/protobuf/cmd/protoc-gen-go connectrpc.com/connect/cmd/protoc-gen-connect-go
PATH="$bin:$PATH" protoc -I . \
	--go_out=. --go_opt=paths=source_relative \
	--connect-go_out=. --connect-go_opt=paths=source_relative,simple \
	lattice/v1/*.proto lattice/app/v1/*.proto
protoc -I . --include_imports --include_source_info --descriptor_set_out=/dev/stdout lattice/v1/*.proto |
	"$bin/openapi" >"$bin/openapi.json"
mv "$bin/openapi.json" openapi.json
