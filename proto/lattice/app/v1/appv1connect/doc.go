// Package appv1connect holds the generated clients and handlers of the services
// in package appv1, for the Connect, gRPC and gRPC-Web protocols. Made by
// proto/gen.sh.
package appv1connect
