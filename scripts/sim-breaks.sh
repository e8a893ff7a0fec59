#!/usr/bin/env bash
# Breaks the code on purpose, one patch of sim/testdata/breaks at a time and in a copy,
# and shows which seed of the simulation finds it by which property. Fails if one is
# not found, or does not apply any more.
# Usage: scripts/sim-breaks.sh [SEEDS] [NAME...]
set -euo pipefail
cd "$(dirname "$0")/.."
seeds=${1:-200}
[ $# -gt 0 ] && shift
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - | tar -xf - -C "$copy"
git -C "$copy" init -q
missed=0
for patch in sim/testdata/breaks/*.patch; do
	name=$(basename "$patch" .patch)
	if [ $# -gt 0 ] && ! printf '%s\n' "$@" | grep -qx "$name"; then
		continue
	fi
	git -C "$copy" apply "$PWD/$patch"
	if out=$(cd "$copy" && ${GO:-go} test -failfast -count=1 -timeout 0 ./sim -run 'TestSeeds$' -sim.seeds="$seeds" 2>&1); then
		echo "$name: NOT FOUND in $seeds seeds"
		missed=1
	elif found=$(grep -m1 -oE 'seed [0-9]+: [^:]+: .*' <<<"$out"); then
		echo "$name: ${found:0:200}"
	else
		echo "$name: the program ends:"
		tail -40 <<<"$out"
		missed=1
	fi
	git -C "$copy" apply -R "$PWD/$patch"
done
exit $missed
