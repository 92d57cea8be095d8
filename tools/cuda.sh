#!/usr/bin/env bash
# Fetches the headers that liblockstep_cuda.so is compiled with into the user's cache, where they are not installed: NCCL's, of the
# version that LibTorch asks for (a package of about 200 MB, of which one header is kept), and CUDA's runtime (3 MB) where there is no
# toolkit. Neither LibTorch for CUDA nor a GPU is needed.
# Usage: tools/cuda.sh [VERSION_OF_LIBTORCH]
set -euo pipefail
cd "$(dirname "$0")/.."
version="${1:-$(sed -n 's/^torch_version=//p' tools/setup.sh)}"
minor="${version%.*}"
root="${XDG_CACHE_HOME:-$HOME/.cache}/lockstep/cuda-$minor"
[ ! -e "$root/include/nccl.h" ] || exit 0

partial="$(mktemp -d)"
trap 'rm -rf "$partial"' EXIT
pip() { python3 -m pip "$@" --quiet --no-deps --disable-pip-version-check --only-binary=:all:; }

# What LibTorch for CUDA of that version needs; of it only its description is fetched. (With === builds for CPUs, which are called
# $version+cpu, are left out.)
pip install --dry-run --ignore-installed --report "$partial/report.json" "torch===$version" 2>/dev/null \
  || { echo "cuda: pip finds no torch $version for CUDA" >&2; exit 1; }
read -r nccl cuda < <(python3 - "$partial/report.json" <<'PYTHON'
import json, re, sys
needs = "\n".join(json.load(open(sys.argv[1]))["install"][0]["metadata"].get("requires_dist", []))
nccl = re.search(r"(nvidia-nccl-cu\d+==[\d.]+)", needs)
cuda = re.search(r"cuda-toolkit\S*==(\d+\.\d+)", needs)
print(*([nccl[1], cuda[1]] if nccl and cuda else ["", ""]))
PYTHON
)
[ -n "$nccl" ] || { echo "cuda: torch $version names no CUDA or NCCL" >&2; exit 1; }
packages=("$nccl")
nvcc="$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)"
if [ -z "$nvcc" ] || ! "$nvcc" --version | grep -q "release ${cuda%.*}\."; then
  packages+=("nvidia-cuda-runtime==$cuda.*" "nvidia-cuda-crt==$cuda.*" "nvidia-cuda-cccl==$cuda.*")
fi
echo "cuda: fetching headers from ${packages[*]}, about 200 MB, into $root"
pip download --dest "$partial/wheels" "${packages[@]}"
du -sm "$partial/wheels" | awk '{print "cuda: " $1 " MB were fetched"}'
python3 - "$partial" <<'PYTHON'
import pathlib, sys, zipfile
folder = pathlib.Path(sys.argv[1])
for wheel in (folder / "wheels").glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            inner = name.partition("/include/")[2]
            if not inner or name.endswith("/"):
                continue
            path = folder / "include" / inner
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(name))
PYTHON
[ -e "$partial/include/nccl.h" ] || { echo "cuda: $nccl has no nccl.h" >&2; exit 1; }
mkdir -p "$root"
cp -r "$partial/include" "$root/"
