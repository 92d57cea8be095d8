#!/usr/bin/env bash
# Makes build/peers, a virtual environment with which tests and benchmarks run PyTorch, Lightning and
# safetensors in Python, on the same LibTorch wheel that C++ was built with. Usage: tools/peers.sh [deepspeed];
# with the argument DeepSpeed is there, too, which some benchmarks run against.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=build/peers
requirements="safetensors==0.7.0 numpy==2.2.6 packaging typing_extensions filelock sympy networkx jinja2 fsspec \
lightning==2.6.6 pytorch-lightning==2.6.6 torchmetrics==1.9.0 lightning-utilities==0.15.3 setuptools==80.9.0 \
tensorboard==2.21.0 mlflow-skinny==3.17.2 transformers==5.12.1"
deepspeed="deepspeed==0.19.8"

make_environment() {
  echo "peers: making $venv for programs in Python"
  torch_root=$(sed -n 's/^LOCKSTEP_TORCH_ROOT:PATH=//p' build/*/CMakeCache.txt | head -1)
  rm -rf "$venv"
  python3 -m venv "$venv"
  # The wheel's folder first, so that pip finds torch there and does not fetch it again.
  "$venv/bin/python" - "$(dirname "$torch_root")" <<'PY'
import pathlib, site, sys
pathlib.Path(site.getsitepackages()[0], "lockstep_torch.pth").write_text(sys.argv[1] + "\n")
PY
  # shellcheck disable=SC2086
  "$venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check $requirements
  # The byte code of what most tests import is made here, once, rather than by several of them at the same time.
  "$venv/bin/python" -c 'import torch, safetensors.torch, lightning'
  echo "$requirements" > "$venv/requirements.txt"
}

# Its kernel for Adam is compiled at first use, which takes minutes.
add_deepspeed() {
  echo "peers: adding $deepspeed"
  "$venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check wheel ninja py-cpuinfo
  DS_BUILD_OPS=0 "$venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check --no-build-isolation "$deepspeed"
  PATH="$PWD/$venv/bin:$PATH" DS_ACCELERATOR=cpu "$venv/bin/python" -c \
    'from deepspeed.ops.op_builder.cpu import CPUAdamBuilder; CPUAdamBuilder().load(verbose=False)'
  echo "$deepspeed" > "$venv/deepspeed.txt"
}

[ "$(cat "$venv/requirements.txt" 2>/dev/null)" = "$requirements" ] || make_environment
if [ "${1:-}" = deepspeed ] && [ "$(cat "$venv/deepspeed.txt" 2>/dev/null)" != "$deepspeed" ]; then add_deepspeed; fi
