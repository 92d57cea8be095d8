#!/usr/bin/env bash
# Builds what tools/gpu_check.sh runs, against a LibTorch for CUDA, on a machine that needs neither a GPU nor CUDA, and packs it with
# the libraries that it needs into build/gpu/bundle.tar.xz.
# Usage: tools/gpu_bundle.sh FOLDER_OF_LIBTORCH   (it holds include/ and lib/, as the folder `torch` of a wheel does)
set -euo pipefail
cd "$(dirname "$0")/.."
[ -e "${1:-}/lib/libtorch_cuda.so" ] || { echo "usage: tools/gpu_bundle.sh FOLDER_OF_LIBTORCH, which has lib/libtorch_cuda.so" >&2; exit 2; }
build=build/gpu
# The CUDA libraries that LibTorch needs are those of the machine with the GPU.
cmake -S . -B "$build" -G Ninja -DLOCKSTEP_TORCH_ROOT="$(cd "$1" && pwd)" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_EXE_LINKER_FLAGS=-Wl,--unresolved-symbols=ignore-in-shared-libs
cmake --build "$build" --target sim_case digits example_05_fsdp_transformer
bundle="$(mktemp -d)"
trap 'rm -rf "$bundle"' EXIT
mkdir "$bundle/bin" "$bundle/lib"
cp "$build"/bin/{sim_case,digits,example_05_fsdp_transformer} "$bundle/bin/"
cp -a "$build"/lib/liblockstep*.so* "$bundle/lib/"
find "$bundle" -type f -exec strip {} +
ldd "$build"/bin/digits "$build"/lib/liblockstep_core.so | awk '/yaml-cpp|uring|png|jpeg/ && $3 ~ /^\// {print $3}' | sort -u |
  while read -r library; do cp -L "$library" "$bundle/lib/"; done
tar -C "$bundle" -cJf "$build/bundle.tar.xz" .
echo "gpu: $build/bundle.tar.xz"
