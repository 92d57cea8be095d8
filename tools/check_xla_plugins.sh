#!/usr/bin/env bash
# Runs tests of src/xla on two more PJRT plug-ins for CPUs than the one that tools/xla.sh fetches: PJRT 0.106 and 0.81, the oldest
# that is accepted. Needs the build of `make build`; two packages of pip, 63 MB each, pinned by hash, of which one library each is
# kept in the user's cache (274 and 259 MB).
# Usage: tools/check_xla_plugins.sh [NAME...], with the names of packages.
set -euo pipefail
cd "$(dirname "$0")/.."
cache="${XDG_CACHE_HOME:-$HOME/.cache}/lockstep/pjrt-others"
build="$PWD/build/release"

# fetch PACKAGE VERSION WHEEL_SHA256 LIBRARY_IN_WHEEL SHA256; prints the library's path
fetch() {
  local kept="$cache/$1-$2.so" partial
  if [ ! -e "$kept" ]; then
    mkdir -p "$cache"
    partial="$(mktemp -d "$cache/partial.XXXXXX")"
    echo "$1==$2 --hash=sha256:$3" > "$partial/requirements.txt"
    python3 -m pip download --quiet --no-deps --disable-pip-version-check --only-binary=:all: --require-hashes \
      --dest "$partial" --requirement "$partial/requirements.txt" 1>&2
    python3 -m zipfile --extract "$partial"/*.whl "$partial/wheel"
    echo "$5  $partial/wheel/$4" | sha256sum --check --quiet 1>&2
    mv "$partial/wheel/$4" "$kept"
    rm -rf "$partial"
  fi
  echo "$kept"
}

status=0
# check NAME PLUGIN COMMAND...
check() {
  local name="$1" plugin="$2" result=ok
  shift 2
  LOCKSTEP_BINARY_DIR="$build" LOCKSTEP_XLA_TEST_PLUGIN="$plugin" "$@" > "$build/xla_plugin.log" 2>&1 || { result=FAILED; status=1; }
  echo "xla plug-ins: $name: $result"
  [ "$result" = ok ] || tail -n 40 "$build/xla_plugin.log" >&2
}

is_wanted() {  # PACKAGE WANTED...
  [ $# -eq 1 ] || [[ " ${*:2} " == *" $1 "* ]]
}

if is_wanted fastatomstruct-xla-cpu "$@"; then
  plugin="$(fetch fastatomstruct-xla-cpu 2026.6.23 88b1c430b341b4bea40a37420311c9c75db6e22b46d2ff95b6986577bee6afe9 \
    fastatomstruct_xla_cpu/libpjrt_cpu.so 0a0fe56ca17be9efc7b942e89e534e5e0ad4a0f1e369b66d27b62184509015b9)"
  check "0.106, device, operators, networks, calls of the host" "$plugin" "$build/bin/xla_tests"
  check "0.106, digits" "$plugin" python3 tests/xla/digits_test.py
  check "0.106, strategies" "$plugin" python3 tests/xla/strategies_test.py TestSingleXla TestXla TestLostRank
fi
if is_wanted xla-cpu-pjrt "$@"; then
  plugin="$(fetch xla-cpu-pjrt 0.0.1 55837b6b7b47daa717f2d9a5a03563ea0ceaa338d06a81a1e2d3f060d960decc \
    xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so 88c3f28c5900f48ad4a82cab9e79bba9537809743395e341485f8794268820dc)"
  check "0.81, device, operators, networks" "$plugin" "$build/bin/xla_tests" --gtest_filter=-HostCall.*
  check "0.81, digits" "$plugin" python3 tests/xla/digits_test.py
  check "0.81, strategies" "$plugin" python3 tests/xla/older_plugin_test.py
fi
exit $status
