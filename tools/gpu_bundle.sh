#!/usr/bin/env bash
# Builds what tools/gpu_check.sh runs, against a LibTorch for CUDA, on a machine that needs neither a GPU nor CUDA, and packs it with
# the libraries that it needs into build/gpu/bundle.tar.xz, which may have 64 MiB.
# Usage: tools/gpu_bundle.sh FOLDER_OF_LIBTORCH   (it holds include/ and lib/, as the folder `torch` of a wheel does)
# The header of that LibTorch's NCCL is taken from the packages beside it, or fetched by tools/cuda.sh. NCCL=FILE packs another libnccl.so.2, too: with
# version 2.30 or later two ranks can share a GPU. BUILD=FOLDER packs what was built there, with the LibTorch for CPUs of the same version.
set -euo pipefail
cd "$(dirname "$0")/.."
programs="gpu_case cuda_contract_tests sim_case digits example_05_fsdp_transformer example_11_models_from_elsewhere"
most_bytes=$((64 << 20))

pack() {  # FOLDER: of a build
  local build="$1" bundle
  bundle="$(mktemp -d)"
  mkdir "$bundle/bin" "$bundle/lib"
  for program in $programs; do cp "$build/bin/$program" "$bundle/bin/"; done
  cp -a "$build"/lib/liblockstep*.so* "$bundle/lib/"
  find "$bundle" -type f -exec strip {} +
  ldd "$build"/bin/digits "$build"/lib/liblockstep_core.so | awk '/yaml-cpp|uring|png|jpeg/ && $3 ~ /^\// {print $3}' | sort -u |
    while read -r library; do cp -L "$library" "$bundle/lib/"; done
  [ -z "${NCCL:-}" ] || cp -L "$NCCL" "$bundle/lib/libnccl_other.so.2"
  mkdir -p build/gpu
  tar -C "$bundle" -cJf "$output" .
  rm -rf "$bundle"
}

output="${BUNDLE:-build/gpu/bundle.tar.xz}"
if [ -n "${BUILD:-}" ]; then
  pack "$BUILD"
else
  [ -e "${1:-}/lib/libtorch_cuda.so" ] || { echo "usage: tools/gpu_bundle.sh FOLDER_OF_LIBTORCH, which has lib/libtorch_cuda.so" >&2; exit 2; }
  torch="$(cd "$1" && pwd)"
  version="$(sed -n 's/^#define TORCH_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' "$torch/include/torch/headeronly/version.h" | paste -sd.)"
  [ -e "$torch/../nvidia/nccl/include/nccl.h" ] || tools/cuda.sh "$version"
  # The CUDA libraries that LibTorch needs are those of the machine with the GPU.
  cmake -S . -B build/gpu -G Ninja -DLOCKSTEP_TORCH_ROOT="$torch" -DLOCKSTEP_CUDA=ON -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_EXE_LINKER_FLAGS=-Wl,--unresolved-symbols=ignore-in-shared-libs
  # shellcheck disable=SC2086  # words
  cmake --build build/gpu --target lockstep_cuda $programs
  pack build/gpu
fi
bytes="$(stat -c %s "$output")"
echo "gpu: $output, $((bytes >> 20)) MB"
if [ "$bytes" -gt "$most_bytes" ]; then
  echo "gpu: the bundle has more than $((most_bytes >> 20)) MiB; leave NCCL to a bundle of its own, or strip it to one architecture" >&2
  exit 1
fi
