#!/usr/bin/env bash
# Fetches what liblockstep_xla.so is compiled with and tested on into the user's cache: the header of PJRT's C interface
# (Apache-2.0, by The OpenXLA Authors, from the package xla-cpu-pjrt) and a plug-in for CPUs (Apache-2.0, the package
# lammps-jax-pjrt-cpu). Two packages of 63 MB each, pinned by hash; the header and the one library (202 MB) are kept.
# Says nothing where both are there; prints the path of the plug-in with --print.
set -euo pipefail
cd "$(dirname "$0")/.."
root="${XDG_CACHE_HOME:-$HOME/.cache}/lockstep/pjrt-0.115"
plugin="$root/pjrt_c_api_cpu_plugin.so"
plugin_sha256=ad1309ac822b1b24d51b7f9947c7c9fa9ef5d67f390584cbc3d1fa2428fed9c2

say_path() { [ "${1:-}" != --print ] || echo "$plugin"; }
if [ -e "$root/include/pjrt_c_api.h" ] && [ -e "$plugin" ]; then say_path "$@"; exit 0; fi

if [ "$(uname -m)" != x86_64 ]; then
  echo "xla: there is a plug-in for CPUs of x86-64 only; pass -DLOCKSTEP_PJRT_INCLUDE=FOLDER with a pjrt_c_api.h instead" >&2
  exit 1
fi
partial="$(mktemp -d)"
trap 'rm -rf "$partial"' EXIT
echo "xla: fetching a PJRT plug-in for CPUs and PJRT's header, 126 MB, into $root" >&2
cat > "$partial/requirements.txt" <<'REQUIREMENTS'
lammps-jax-pjrt-cpu==0.11.2 --hash=sha256:1319390d948b39f69f7dade496b7c385149d9ca6097a6b62114da113216d9ad1
xla-cpu-pjrt==0.0.1 --hash=sha256:55837b6b7b47daa717f2d9a5a03563ea0ceaa338d06a81a1e2d3f060d960decc
REQUIREMENTS
python3 -m pip download --quiet --no-deps --disable-pip-version-check --only-binary=:all: --require-hashes \
  --dest "$partial" --requirement "$partial/requirements.txt" 2> "$partial/pip.log" \
  || { cat "$partial/pip.log" >&2; echo "xla: pip could not fetch the plug-in" >&2; exit 1; }
python3 - "$partial" <<'PYTHON'
import pathlib, shutil, sys, zipfile
folder = pathlib.Path(sys.argv[1])
wanted = {"lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so": "kept", "xla_plugins/xla_cpu_pjrt/include/pjrt_c_api.h": "kept/include"}
for wheel in folder.glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for name in set(wanted) & set(archive.namelist()):
            target = folder / wanted[name] / pathlib.PurePath(name).name
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(name) as source, open(target, "wb") as sink:
                shutil.copyfileobj(source, sink)
PYTHON
echo "$plugin_sha256  $partial/kept/pjrt_c_api_cpu_plugin.so" | sha256sum --check --quiet \
  || { echo "xla: the plug-in is not the one that was pinned" >&2; exit 1; }
mkdir -p "$root/include"
cp "$partial/kept/include/pjrt_c_api.h" "$root/include/.new" && mv "$root/include/.new" "$root/include/pjrt_c_api.h"
cp "$partial/kept/pjrt_c_api_cpu_plugin.so" "$root/.new" && mv "$root/.new" "$plugin"
say_path "$@"
