package spec

import (
	"path"
	"strings"
)

// matches reports whether a slash-separated file name fits a pattern, in which ** is
// any number of folders and the rest is as in path.Match.
func matches(pattern, name string) bool {
	p, n := strings.Split(pattern, "/"), strings.Split(name, "/")
	// fits[j] says that the parts of p so far fit the first j parts of n.
	fits := make([]bool, len(n)+1)
	fits[0] = true
	for _, part := range p {
		next := make([]bool, len(n)+1)
		if part == "**" {
			next[0] = fits[0]
			for j := 1; j <= len(n); j++ {
				next[j] = fits[j] || next[j-1]
			}
		} else {
			for j := 1; j <= len(n); j++ {
				ok, err := path.Match(part, n[j-1])
				next[j] = fits[j-1] && ok && err == nil
			}
		}
		fits = next
	}
	return fits[len(n)]
}
