#!/usr/bin/env bash
# Breaks the code on purpose, one patch of sim/testdata/breaks at a time and in a copy,
# and shows which seed of the simulation finds it by which property. Fails if one is
# not found, or does not apply any more.
# Usage: scripts/sim-breaks.sh [SEEDS] [NAME...]
set -euo pipefail
cd "$(dirname "$0")/.."
seeds=${1:-600}
[ $# -gt 0 ] && shift
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - | tar -xf - -C "$copy"
git -C "$copy" init -q
missed=0
batch=20
for patch in sim/testdata/breaks/*.patch; do
	name=$(basename "$patch" .patch)
	if [ $# -gt 0 ] && ! printf '%s\n' "$@" | grep -qx "$name"; then
		continue
	fi
	git -C "$copy" apply "$PWD/$patch"
	# Some seeds at a time, so that a break that is found soon costs little.
	if ! (cd "$copy" && ${GO:-go} test -c -o "$copy/sim.test" ./sim); then
		echo "$name: it does not build"
		missed=1
	else
		found= from=0
		while [ "$from" -lt "$seeds" ] && [ -z "$found" ]; do
			if out=$(cd "$copy/sim" && ../sim.test -test.timeout 0 -test.run 'TestSeeds$' -sim.seeds="$batch" -sim.from="$from" 2>&1); then
				from=$((from + batch))
				continue
			fi
			found=$(grep -oE '_test.go:[0-9]+: seed [0-9]+: .*' <<<"$out" | sed 's,^[^ ]* ,,' | sort -n -k2,2 | sed -n 1p) || true
			found=${found:-the program ends: $(tail -5 <<<"$out" | tr '\n' ' ')}
		done
		if [ -n "$found" ]; then
			echo "$name: ${found:0:240}"
		else
			echo "$name: NOT FOUND in $seeds seeds"
			missed=1
		fi
	fi
	git -C "$copy" apply -R "$PWD/$patch"
done
exit $missed
