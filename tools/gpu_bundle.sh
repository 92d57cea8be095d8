#!/usr/bin/env bash
# Builds what tools/gpu_check.sh runs, against a LibTorch for CUDA, on a machine that needs neither a GPU nor CUDA, and packs it with
# the libraries that it needs into build/gpu/bundle.tar.xz.
# Usage: tools/gpu_bundle.sh FOLDER_OF_LIBTORCH   (it holds include/ and lib/, as the folder `torch` of a wheel does)
# The header of that LibTorch's NCCL is taken from the packages beside it, or fetched by tools/cuda.sh. NCCL=FILE packs another libnccl.so.2, too: with
# version 2.30 or later two ranks can share a GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -e "${1:-}/lib/libtorch_cuda.so" ] || { echo "usage: tools/gpu_bundle.sh FOLDER_OF_LIBTORCH, which has lib/libtorch_cuda.so" >&2; exit 2; }
torch="$(cd "$1" && pwd)"
build=build/gpu
version="$(sed -n 's/^#define TORCH_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' "$torch/include/torch/headeronly/version.h" | paste -sd.)"
[ -e "$torch/../nvidia/nccl/include/nccl.h" ] || tools/cuda.sh "$version"
# The CUDA libraries that LibTorch needs are those of the machine with the GPU.
cmake -S . -B "$build" -G Ninja -DLOCKSTEP_TORCH_ROOT="$torch" -DLOCKSTEP_CUDA=ON -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_EXE_LINKER_FLAGS=-Wl,--unresolved-symbols=ignore-in-shared-libs
cmake --build "$build" --target lockstep_cuda gpu_case sim_case digits example_05_fsdp_transformer
bundle="$(mktemp -d)"
trap 'rm -rf "$bundle"' EXIT
mkdir "$bundle/bin" "$bundle/lib"
cp "$build"/bin/{gpu_case,sim_case,digits,example_05_fsdp_transformer} "$bundle/bin/"
cp -a "$build"/lib/liblockstep*.so* "$bundle/lib/"
find "$bundle" -type f -exec strip {} +
ldd "$build"/bin/digits "$build"/lib/liblockstep_core.so | awk '/yaml-cpp|uring|png|jpeg/ && $3 ~ /^\// {print $3}' | sort -u |
  while read -r library; do cp -L "$library" "$bundle/lib/"; done
[ -z "${NCCL:-}" ] || cp -L "$NCCL" "$bundle/lib/libnccl_other.so.2"
tar -C "$bundle" -cJf "$build/bundle.tar.xz" .
echo "gpu: $build/bundle.tar.xz, $(du -m "$build/bundle.tar.xz" | cut -f1) MB"
