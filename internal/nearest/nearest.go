// Package nearest finds the known name that a mistyped one was most likely
// meant to be, for error messages. It never changes what a program does.
package nearest

import "strings"

// Name returns the known name with the smallest edit distance to name, and
// false when none is near enough to be worth a suggestion: more than a third
// of the longer name would have to change. Case does not count, a swap of two
// neighbours counts once, and among equals the first wins. A known name that
// ends with "." + name is as good as equal, so that "listen" finds
// "kafka.listen"; so is one that begins like it, up to a dot.
func Name(name string, known []string) (string, bool) {
	best, bestDist := "", -1
	low := strings.ToLower(name)
	for _, k := range known {
		kl := strings.ToLower(k)
		d := distance(low, kl)
		if low != "" && (strings.HasSuffix(kl, "."+low) || strings.HasPrefix(kl, low+".") || strings.HasPrefix(low, kl+".")) {
			d = min(d, 1)
		}
		if d > max(len(low), len(kl))/3 && d > 1 {
			continue
		}
		if bestDist < 0 || d < bestDist {
			best, bestDist = k, d
		}
	}
	return best, bestDist >= 0 && name != ""
}

// distance is the optimal string alignment distance in bytes: insertions,
// deletions, substitutions and swaps of neighbours cost one each.
func distance(a, b string) int {
	prev2 := make([]int, len(b)+1)
	prev := make([]int, len(b)+1)
	cur := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
