#!/usr/bin/env bash
# Makes a fresh Debian or Ubuntu machine able to build lockstep: installs the
# packages that are missing (as root or through sudo) and, where no LibTorch is
# found, fetches one into the user's cache folder, which all clones share.
# Says nothing and takes a moment when there is nothing to do.
set -euo pipefail
cd "$(dirname "$0")/.."

torch_version=2.13.0
packages=(g++ cmake ninja-build make ccache mold pkg-config python3 python3-pip python3-venv ca-certificates
          libcli11-dev nlohmann-json3-dev libyaml-cpp-dev libspdlog-dev libfmt-dev zlib1g-dev libssl-dev libxxhash-dev
          libpng-dev libjpeg-dev liburing-dev libgtest-dev libgmock-dev)

install_packages() {
  command -v dpkg-query >/dev/null || { echo "setup: no dpkg here; install the equivalents of: ${packages[*]}" >&2; return 0; }
  local missing=() package
  for package in "${packages[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "setup: these packages are missing and this user may not install them: ${missing[*]}" >&2
      echo "setup: ask for: apt-get install ${missing[*]}" >&2
      exit 1
    fi
    sudo=(sudo)
  fi
  echo "setup: installing ${missing[*]}"
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

find_python_torch() {
  python3 -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')" 2>/dev/null || true
}

loads() {  # whether the LibTorch under $1 has all its libraries
  [ -e "$1/lib/libtorch_cpu.so" ] && ! ldd "$1/lib/libtorch_cpu.so" | grep -q 'not found'
}

fetch_torch() {
  local cache="${XDG_CACHE_HOME:-$HOME/.cache}/lockstep"
  local final="$cache/torch-$torch_version"
  [ -z "${Torch_DIR:-}" ] || return 0
  loads "$final/torch" && return 0
  local from_python; from_python="$(find_python_torch)"
  [ -n "$from_python" ] && loads "$from_python" && return 0
  mkdir -p "$cache"
  local partial; partial="$(mktemp -d "$cache/torch-$torch_version.XXXXXX")"
  trap 'rm -rf "$partial"' EXIT
  echo "setup: fetching LibTorch $torch_version (about 200 MB) into $final"
  local pip=(python3 -m pip install --quiet --no-compile --no-deps --disable-pip-version-check --root-user-action=ignore --target "$partial" "torch==$torch_version")
  "${pip[@]}" --timeout 5 --retries 0 --index-url https://download.pytorch.org/whl/cpu 2>/dev/null \
    || "${pip[@]}" \
    || { echo "setup: torch $torch_version could not be fetched; pass -DTorch_DIR=<libtorch>/share/cmake/Torch to cmake" >&2; exit 1; }
  if ! loads "$partial/torch"; then
    echo "setup: the torch that pip found needs libraries that are not here:" >&2
    ldd "$partial/torch/lib/libtorch_cpu.so" | grep 'not found' >&2 || true
    echo "setup: it is most likely a CUDA build; fetch a CPU build from https://download.pytorch.org/whl/cpu" >&2
    exit 1
  fi
  rm -rf "$final"
  mv "$partial" "$final"
  trap - EXIT
}

install_packages
fetch_torch
