// Package latticev1 holds the messages of Lattice's public API, version 1,
// generated from the .proto files beside it by proto/gen.sh. Within version 1
// fields and methods are only added. Go programs use package client, which
// wraps these messages; other languages generate their own from the same files
// or read proto/openapi.json and send JSON.
package latticev1
