#!/usr/bin/env bash
# Builds a project with lockstep's sources in it, by add_subdirectory and by FetchContent. What it would compile of lockstep, the
# build has compiled with the same flags, so its libraries are put in place; the program is compiled and linked as Ninja would.
# Usage: embedded_test.sh BUILD_DIR SOURCE_DIR LIBTORCH_ROOT
set -euo pipefail
build=$1 source=$2 torch=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for fetch in OFF ON; do
  own=$work/build_$fetch
  cmake -S "$source/tests/packaging/embedded" -B "$own" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_SOURCE="$source" \
    -DUSE_FETCH_CONTENT=$fetch -DCMAKE_PREFIX_PATH="$torch" >"$work/configured"
  ninja -C "$own" -t commands consumer >"$work/commands_$fetch"
  # Of lockstep the two libraries are built, optional ones where what they need is there, and nothing else.
  ninja -C "$own" -t targets all | sed -n 's/: CXX_[A-Z_]*_LINKER.*//p' | sed 's/.*[/]//' | sort | tr '\n' ' ' >"$work/linked"
  grep -qx 'consumer liblockstep.so.0.1.0 liblockstep_core.so.0.1.0 ' <(sed -E 's/liblockstep_(cuda|xla).so //g' "$work/linked"; echo)
  # The project's own flags are none of lockstep's.
  grep -- '-c .*/consumer/main.cpp' "$work/commands_$fetch" >"$work/compile"
  if grep -E -- '-Werror|-fvisibility|-g1' "$work/compile"; then exit 1; fi
  sed "s|$own|OWN|g" "$work/commands_$fetch" >"$work/plain_$fetch"
done
cmp "$work/plain_OFF" "$work/plain_ON"

mkdir -p "$own/lib"
cp -P "$build"/lib/liblockstep.so* "$build"/lib/liblockstep_core.so* "$own/lib"
ninja -C "$own" CMakeFiles/consumer.dir/"${source#/}"/tests/packaging/consumer/main.cpp.o >/dev/null
(cd "$own" && sh -ec "$(tail -1 "$work/commands_$fetch")")
"$own/consumer" | tee "$work/out"
grep -qx 'lockstep 0.1.0, 1 rank, sum 1' "$work/out"
