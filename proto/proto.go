// Package proto holds the definition of Lattice's public API: the .proto files
// under lattice/v1, the Go code that gen.sh makes of them, and openapi.json, the
// same for those who send JSON over plain HTTP.
package proto

import _ "embed"

// OpenAPI is the OpenAPI 3.1 document of the API.
//
//go:embed openapi.json
var OpenAPI []byte
