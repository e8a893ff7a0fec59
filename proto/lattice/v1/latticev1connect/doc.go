// Package latticev1connect holds the generated clients and handlers of the
// services in package latticev1, for the Connect, gRPC and gRPC-Web protocols.
// Made by proto/gen.sh.
package latticev1connect
