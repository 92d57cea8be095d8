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

# One unit per module, as tools/check_names.py allows: LibTorch's headers are then read once. src/cuda needs headers for CUDA,
# which these wheels have not; src/xla is built with LibTorch 2.13 and later.
write_units() {  # into $1
  local file module
  grep -rlE 'c10d/|comm/c10d\.h|comm/compat\.h|device/compat\.h|StorageImpl|CachingDeviceAllocator|profiler_kineto' --include='*.cpp' --exclude-dir=cuda --exclude-dir=xla src | LC_ALL=C sort |
    while read -r file; do
      module="${file#src/}"
      [ -e "$1/${module%%/*}.cpp" ] || echo "#include <lockstep/torch.h>" > "$1/${module%%/*}.cpp"  # as precompiled
      echo "#include \"$PWD/$file\"" >> "$1/${module%%/*}.cpp"
    done
}

check_unit() {  # the unit $2 against version $1
  local include="$cache/$1/torch/include" name
  name="$(basename "$2" .cpp): $(grep -c "$PWD" "$2") files against LibTorch $1"
  c++ -std=gnu++20 -fsyntax-only -w -O1 --param=ggc-min-heapsize=8000000 -DUSE_DISTRIBUTED -DUSE_C10D_GLOO -Iinclude -Isrc \
    -isystem "$include" -isystem "$include/torch/csrc/api/include" -idirafter third_party/gloo_stub "$2" \
    || { echo "libtorch: $name: FAILED"; return 1; }
  echo "libtorch: $name: compiled"
}

units="$(mktemp -d)"
trap 'rm -rf "$units"' EXIT
write_units "$units"
for version in "$@"; do (fetch_headers "$version"); done
export -f check_unit
export cache
for version in "$@"; do for unit in "$units"/*.cpp; do echo "$version $unit"; done; done |
  xargs -P "$(nproc)" -n 2 bash -c 'check_unit "$@"' check_unit
