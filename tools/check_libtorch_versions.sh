#!/usr/bin/env bash
# Compiles the files that use c10d, LibTorch's storages, allocators or profiler, where its versions differ, against the headers of other versions.
# Usage: tools/check_libtorch_versions.sh VERSION...
# Nothing is linked or run. The headers are those of the wheels for macOS, 81 and 127 MB for 2.11.0 and 2.14.1, which differ
# from those of Linux in the lists of operators for Metal only: PyPI's wheels for Linux hold CUDA too, more than 530 MB each.
# pip fetches a wheel once; of it only the headers are kept, in the folder of the user's cache that tools/setup.sh fills, too.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { echo "usage: tools/check_libtorch_versions.sh VERSION..." >&2; exit 2; }

cache="${XDG_CACHE_HOME:-$HOME/.cache}/lockstep/headers"

fetch_headers() {  # into $cache/$1
  local version="$1" partial
  [ ! -d "$cache/$version" ] || return 0
  mkdir -p "$cache"
  partial="$(mktemp -d "$cache/$version.XXXXXX")"
  trap 'rm -rf "$partial"' EXIT
  echo "libtorch: fetching the headers of LibTorch $version"
  python3 -m pip download --quiet --no-deps --disable-pip-version-check --only-binary=:all: --python-version 3.13 \
    --platform macosx_14_0_arm64 --dest "$partial" "torch==$version" \
    || { echo "libtorch: torch $version could not be fetched" >&2; exit 1; }
  python3 - "$partial" <<'PYTHON'
import pathlib, sys, zipfile
folder = pathlib.Path(sys.argv[1])
for wheel in folder.glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith("torch/include/")])
    wheel.unlink()
PYTHON
  [ -e "$partial/torch/include/c10/core/StorageImpl.h" ] || { echo "libtorch: torch $version has no headers" >&2; exit 1; }
  mv "$partial" "$cache/$version"
  trap - EXIT
}

# One unit with all files, as LibTorch's headers take most of the time, and one per module, within which tools/check_names.py
# keeps names apart. src/cuda needs headers for CUDA, which these wheels have not; src/xla is built with LibTorch 2.13 and later.
write_units() {  # into $1
  local file module unit
  grep -rlE 'c10d/|comm/c10d\.h|comm/compat\.h|device/compat\.h|StorageImpl|CachingDeviceAllocator|profiler_kineto' --include='*.cpp' --exclude-dir=cuda --exclude-dir=xla src | LC_ALL=C sort |
    while read -r file; do
      module="${file#src/}"
      for unit in "$1/all.cpp" "$1/of_${module%%/*}.cpp"; do
        [ -e "$unit" ] || echo "#include <lockstep/torch.h>" > "$unit"  # as precompiled
        echo "#include \"$PWD/$file\"" >> "$unit"
      done
    done
}

compile() {  # the unit $2 against version $1
  local include="$cache/$1/torch/include"
  c++ -std=gnu++20 -fsyntax-only -w -O1 --param=ggc-min-heapsize=8000000 -DUSE_DISTRIBUTED -DUSE_C10D_GLOO -Iinclude -Isrc \
    -isystem "$include" -isystem "$include/torch/csrc/api/include" -idirafter third_party/gloo_stub "$2"
}

check_version() {  # $1, with the units of $2
  local unit failed=0
  if ! compile "$1" "$2/all.cpp" 2> "$2/$1.errors"; then
    for unit in "$2"/of_*.cpp; do  # these tell a file that does not compile from names that two modules share
      compile "$1" "$unit" || { echo "libtorch: $(basename "$unit" .cpp) against LibTorch $1: FAILED"; failed=1; }
    done
  fi
  [ "$failed" = 0 ] && echo "libtorch: $(($(wc -l < "$2/all.cpp") - 1)) files against LibTorch $1: compiled"
}

units="$(mktemp -d)"
trap 'rm -rf "$units"' EXIT
write_units "$units"
for version in "$@"; do (fetch_headers "$version"); done
export -f compile check_version
export cache
printf '%s\n' "$@" | xargs -P "$(nproc)" -I VERSION bash -c 'check_version VERSION "$0"' "$units"
