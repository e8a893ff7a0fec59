#!/bin/sh
# Runs every fuzz target of some packages for some time each.
set -eu
cd "$(dirname "$0")/.."
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# Before Go 1.27 a target whose time is over can fail by that alone (go.dev/issue/75804): a bare
# "context deadline exceeded" and no failing input. Such a run says nothing, and is made again.
timed_out() {
	grep -qx '    context deadline exceeded' "$out" && ! grep -q 'Failing input written' "$out"
}

fuzz() { # target, time, package
	for _ in 1 2 3; do
		if go test -run '^$' -fuzz "^$1\$" -fuzztime "$2" "$3" >"$out" 2>&1; then
			cat "$out"
			return 0
		fi
		cat "$out"
		timed_out || return 1
	done
	return 1
}

for pkg in $(go list "$1"); do
	for target in $(go test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true); do
		echo "== $pkg $target"
		fuzz "$target" "$2" "$pkg"
	done
done
