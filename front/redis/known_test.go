package redis

import "strings"

// difference is a reply that may differ from Redis's, and why. The reasons are on
// the coverage page (Differences).
type difference struct {
	command string // "*": any
	why     string
	when    func(args []string, real, ours string) bool
}

func (d difference) covers(args []string, real, ours string) bool {
	return (d.command == "*" || strings.EqualFold(d.command, args[0])) && d.when(args, real, ours)
}

// sub reports whether the first argument is a subcommand.
func sub(name string) func(args []string, real, ours string) bool {
	return func(args []string, _, _ string) bool { return len(args) > 1 && strings.EqualFold(args[1], name) }
}

// knownDifferences is the table of what is answered differently from Redis.
func knownDifferences() []difference {
	return []difference{
		{"object", "OBJECT REFCOUNT is 1: small integers are not shared objects", sub("refcount")},
		{"object", "OBJECT ENCODING names the form for a value of that size; Redis also remembers how it became so (SORT of a sorted set makes it a skiplist, a set that once held a word stays a hash table)", sub("encoding")},
		{"sort", "SORT ALPHA compares all bytes; Redis's strcoll ends at a zero byte", func(_ []string, real, _ string) bool { return strings.Contains(real, `\x00`) }},
	}
}
