// Package proto holds the definition of Lattice's public API: the .proto files
// under lattice/v1 (a node) and lattice/app/v1 (a running application), the Go
// code that gen.sh makes of them, and openapi.json, the node's API for those who
// send JSON over plain HTTP.
package proto

import _ "embed"

// OpenAPI is the OpenAPI 3.1 document of the API.
//
//go:embed openapi.json
var OpenAPI []byte
