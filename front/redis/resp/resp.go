// Package resp is the Redis serialization protocol: a Parser that cuts commands
// out of a connection's bytes, and a Writer for replies in RESP2 and RESP3.
//
// # Commands
//
// A command is an array of bulk strings, or a line of words (inline):
//
//	*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n
//	GET "a key"\r\n
//
// The Parser takes what Redis takes and refuses the rest in Redis's words, so
// that a client which probes a server by its mistakes finds what it expects. An
// array of no or a negative number of strings, and an empty line, are no command
// and no mistake.
//
// # Memory
//
// A Parser holds what was received and not yet taken. It grows with the bytes
// that came, not with the lengths that they claim, and never above Limits. The
// arguments of a command are slices of its buffer: they are good until the next
// Free, Grow or Shrink.
//
// # Replies
//
// A Writer appends to one buffer. Types that RESP2 lacks are written as Redis
// writes them to old clients: maps as flat arrays, doubles as strings, booleans
// as integers, nulls as null strings or arrays.
package resp
