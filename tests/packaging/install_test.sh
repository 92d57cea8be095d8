#!/usr/bin/env bash
# Installs lockstep into a folder of its own and builds a consumer project out of tree against it.
# Usage: install_test.sh BUILD_DIR SOURCE_DIR LIBTORCH_ROOT
set -euo pipefail
build=$1 source=$2 torch=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >/dev/null
version=$("$work/prefix/bin/lockstep" --version)
grep -qx 'lockstep 0.1.0' <<<"$version"
grep -q "^LibTorch: .*, $torch$" <<<"$version"
for page in lockstep lockstep-run lockstep-report; do test -s "$work/prefix/share/man/man1/$page.1"; done
"$work/prefix/bin/lockstep" doctor >"$work/doctor" || { cat "$work/doctor"; exit 1; }
grep -q "^\[ok\] *self-test *2 ranks were started" "$work/doctor"
cp -r "$source/tests/packaging/consumer" "$work/consumer"
# As docs/quickstart.md says, where neither python3 nor the cache leads to LibTorch.
mkdir "$work/home" "$work/no_python"
printf '#!/bin/sh\nexit 1\n' >"$work/no_python/python3"
chmod +x "$work/no_python/python3"
configure() {
  HOME=$work/home XDG_CACHE_HOME= PATH=$work/no_python:$PATH \
    cmake -S "$work/consumer" -B "$1" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix"
}
configure "$work/build" >"$work/configured"
grep -qx -- "-- LibTorch: $torch" "$work/configured"
cmake --build "$work/build" >/dev/null
"$work/build/consumer" | tee "$work/out"
grep -qx 'lockstep 0.1.0, 1 rank, sum 1' "$work/out"

# With everything precompiled: the second program includes nothing itself.
cmake -S "$source/tests/packaging/precompiled" -B "$work/precompiled" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DTorch_DIR="$torch/share/cmake/Torch" -DREADME_PROGRAM="$source/examples/01_trainer/main.cpp" >/dev/null
cmake --build "$work/precompiled" >/dev/null
"$work/precompiled/second"

# Without CMake, by what pkg-config says.
pkg_config() { PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name lockstep.pc)") pkg-config "$@" lockstep; }
[ "$(pkg_config --modversion)" = 0.1.0 ]
# shellcheck disable=SC2046
g++ -std=c++20 -E $(pkg_config --cflags) "$work/consumer/main.cpp" >/dev/null
# shellcheck disable=SC2046
g++ "$(find "$work/build" -name main.cpp.o)" $(pkg_config --libs) -o "$work/plain"
"$work/plain" | cmp - "$work/out"

# The installed demo finds LibTorch.
"$work/prefix/bin/lockstep" demo --print_config >"$work/config"
grep -qx 'trainer:' "$work/config"

# Where that LibTorch is gone, the error names the places.
config=$(find "$work/prefix" -name lockstepConfig.cmake)
sed -i "s|^set(LOCKSTEP_BUILT_WITH_TORCH .*|set(LOCKSTEP_BUILT_WITH_TORCH \"$work/gone\")|" "$config"
if configure "$work/other" >"$work/configured" 2>&1; then exit 1; fi
grep -q "LibTorch not found" "$work/configured"
grep -q "$work/gone" "$work/configured"
grep -q "$work/home/.cache/lockstep" "$work/configured"
