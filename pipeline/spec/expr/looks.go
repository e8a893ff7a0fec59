package expr

import (
	"slices"
	"strings"

	"github.com/lattice-log/lattice/internal/nearest"
)

// IsExpression tells an expression from plain text where an application file may have
// either: "event.payload.seat" from "blocked". Text is an expression when, outside
// quotes, it reads a root (event.x), calls a function (concat(...)), or when it is one
// text in quotes. So '"event.x"', quoted again inside YAML's quotes, is that text.
//
// Text of the form nam.something, near the name of a root, or unknown(...) is taken for
// an expression too, so that its mistake is found and not stored.
func IsExpression(text string, scope Scope) bool {
	if n := len(text); n >= 2 && (text[0] == '"' || text[0] == '\'') && text[n-1] == text[0] {
		return true
	}
	sigs := signatures()
	var roots []string
	for r := range scope.Roots {
		roots = append(roots, r)
	}
	roots = append(roots, "state", "derived")
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"' || c == '\'':
			end := strings.IndexByte(text[i+1:], c)
			if end < 0 {
				return false // an apostrophe: prose
			}
			i += end + 2
		case nameByte(c, false):
			end := i
			for end < len(text) && nameByte(text[end], true) {
				end++
			}
			word, rest := text[i:end], text[end:]
			_, function := sigs[word]
			function = function || slices.Contains([]string{"lookup", "LOOKUP_FIELD", "now", "random", "uuid", "shuffle", "nanoTime"}, word)
			before := i == 0 || !strings.ContainsRune("./:@-", rune(text[i-1]))
			switch {
			case before && slices.Contains(roots, word) && len(rest) > 1 && (rest[0] == '.' && nameByte(rest[1], false) || rest[0] == '['):
				return true
			case before && function && strings.HasPrefix(rest, "("):
				return true
			case i == 0 && strings.HasPrefix(rest, "(") && strings.HasSuffix(text, ")"):
				return true
			case i == 0 && isPath(text):
				if _, near := nearest.Name(word, roots); near {
					return true
				}
			}
			i = end
		default:
			i++
		}
	}
	return false
}

func nameByte(c byte, digits bool) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || digits && c >= '0' && c <= '9'
}

// isPath reports a.b or a.b.c: names with dots between them, and nothing else.
func isPath(text string) bool {
	parts := strings.Split(text, ".")
	for _, p := range parts {
		if p == "" || strings.IndexFunc(p, func(r rune) bool { return r > 127 || !nameByte(byte(r), true) }) >= 0 {
			return false
		}
	}
	return len(parts) > 1
}
