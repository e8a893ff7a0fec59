// Package spec reads an application: a directory of YAML files that declare states,
// events, intents with rules, projections and queries (docs/app.md has the grammar).
// Check reports every mistake there is, each with its place, what was expected and the
// nearest known name, and hands out an App only when there is none; so what runs later
// cannot meet a misspelt name.
//
// What an App holds is compiled and pure. Intent.Decide turns an intent and the state of
// its entity into a rejection, or the state after it and events; Projection.Step turns an
// event into the key of one row, and then, given that row, into operations on it. They
// read no clock, no random number and no other entity than the caller hands them,
// and give the same result for the same input. There is no SQL in here, and no Kafka.
//
// Values are JSON as Go has it: nil, bool, int64, float64, string, []any and
// map[string]any. Payload makes them from bytes; nothing here writes to what it was
// given.
//
// What a file may say and nothing executes (a partitioned table, a call of a language
// model) is a named warning, never silence.
//
// The files are hostile: size, number, nesting and the nodes that YAML's aliases stand
// for are bounded, and so is the cost of evaluating an expression (package expr).
package spec

// The bounds of an application, and of one step of it.
const (
	MaxFiles     = 500
	MaxFileBytes = 1 << 20
	MaxNodes     = 200_000 // YAML nodes of all files, aliases counted as often as they are used
	MaxNesting   = 32      // of YAML, and of a payload
	MaxProblems  = 200     // reported; the rest are counted

	MaxPayload = 1 << 20 // bytes of one payload
	MaxState   = 1 << 20 // bytes of one entity's state, about
	MaxEvents  = 100     // of one intent
	MaxLookups = 8       // of one projection
)
