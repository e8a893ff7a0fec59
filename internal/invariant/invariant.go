// Package invariant checks what must always hold, in builds that ask for it
// (-tags invariants): a defect then stops where it happens and not where it is
// noticed. In other builds the checks compile to nothing.
package invariant

import "fmt"

// Check panics with the message if ok is false, when invariants are compiled in.
// Guard what is costly to compute by Enabled.
func Check(ok bool, format string, args ...any) {
	if Enabled && !ok {
		panic("invariant broken: " + fmt.Sprintf(format, args...))
	}
}
