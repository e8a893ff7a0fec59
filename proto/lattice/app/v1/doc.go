// Package appv1 holds the messages of the API of a running application (the
// pipeline's), version 1, generated from the .proto files beside it by
// proto/gen.sh. Within version 1 fields and methods are only added.
package appv1
