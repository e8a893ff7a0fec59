#!/bin/sh
# Fetches the source of the Redis that Debian 12 ships, as Debian's source package
# has it, and lays out its test suite in the directory given: source/.
# The suite calls redis-cli and redis-benchmark; these are the machine's.
set -eu
cd "$1"
work=$PWD
sum=4b1dc4ee6d622a09fff9c6777191209750fb5e5a725ef78ea012d6eef4c22982 # of Debian's redis_7.0.15.orig.tar.gz

need() {
	command -v "$1" >/dev/null 2>&1 || {
		echo "Redis's suite needs $1: apt-get install $2" >&2
		exit 1
	}
}
need apt-get apt
need tclsh tcl
need redis-cli redis-tools
need redis-benchmark redis-tools

# The machine's package sources, asked for source packages, in a place of their own.
rm -rf apt source
mkdir -p apt/none apt/parts apt/lists/partial apt/cache/archives/partial
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
	[ -f "$file" ] || continue
	sed -e 's/^deb /deb-src /' -e 's/^Types:.*/Types: deb-src/' "$file" >"apt/parts/$(basename "$file")"
done
apt() {
	apt-get -q -o Dir::Etc::SourceList="$work/apt/none" -o Dir::Etc::SourceParts="$work/apt/parts" -o Dir::State::Lists="$work/apt/lists" \
		-o Dir::Cache="$work/apt/cache" -o APT::Sandbox::User="$(id -un)" "$@"
}
apt update >apt/log
(cd apt && apt source --download-only redis >>log)
archive=$(echo apt/redis_*.orig.tar.gz)
echo "$sum  $archive" | sha256sum -c --quiet || {
	echo "$archive is another version than the results are of" >&2
	exit 1
}
mkdir source
tar -xzf "$archive" -C source --strip-components=1 --wildcards '*/runtest' '*/tests'
mkdir -p source/src
ln -s "$(command -v redis-cli)" "$(command -v redis-benchmark)" source/src/
rm -rf apt
