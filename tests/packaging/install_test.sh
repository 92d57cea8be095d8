#!/usr/bin/env bash
# Installs lockstep into a folder of its own and builds a consumer project out of tree against it.
# Usage: install_test.sh BUILD_DIR SOURCE_DIR LIBTORCH_ROOT
set -euo pipefail
build=$1 source=$2 torch=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >/dev/null
cp -r "$source/tests/packaging/consumer" "$work/consumer"
cmake -S "$work/consumer" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$work/prefix;$(dirname "$torch")" >/dev/null
cmake --build "$work/build" >/dev/null
"$work/build/consumer" | tee "$work/out"
grep -qx 'lockstep 0.1.0, 1 rank, sum 1' "$work/out"
