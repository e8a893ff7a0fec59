#!/bin/sh
# Builds the binding of @confluentinc/kafka-javascript from the sources that its
# package brings, librdkafka with it: a prebuilt one is nothing that a package
# registry serves. Needs a C++ compiler, make, python3, and the headers of
# Node.js, OpenSSL, zlib and zstd.
set -eu
cd "$(dirname "$0")"
log=$PWD/build.log
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
package=$PWD/node_modules/@confluentinc/kafka-javascript
prefix=$PWD/node_modules/.librdkafka
(
	cd "$package/deps/librdkafka"
	./configure --prefix="$prefix" --libdir="$prefix/lib" --disable-gssapi --disable-curl --disable-lz4-ext
	make -j2 libs
	make -C src install
	make -C src-cpp install
) >"$log" 2>&1
cd "$package"
gyp=$(dirname "$(readlink -f "$(command -v npm)")")/../node_modules/node-gyp/bin/node-gyp.js
nodedir=$(dirname "$(dirname "$(readlink -f "$(command -v node)")")")
CKJS_LINKING=dynamic BUILD_LIBRDKAFKA=0 \
	CPATH="$prefix/include/librdkafka" LIBRARY_PATH="$prefix/lib" LDFLAGS="-Wl,-rpath,$prefix/lib" \
	node "$gyp" rebuild --jobs 2 --nodedir="$nodedir" >>"$log" 2>&1
touch "$prefix/done"
