#!/usr/bin/env bash
# Runs lockstep on this machine's NVIDIA GPU, from what tools/gpu_bundle.sh has built: the steps of a small network beside those of
# CPUs, ranks that share the GPU, the demo, errors, kernels beside their references, NCCL with one rank (and with two, where the bundle has an
# NCCL that lets them share a GPU), bytes per second, and a language model beside the same one in PyTorch.
# Usage: tools/gpu_check.sh BUNDLE.tar.xz [steps] [ranks] [gates] [demo] [errors] [kernels] [nccl] [nccl2] [bytes] [speed]; all but nccl2 by
# default. Needs a python3 with torch. The lines of JSON of kernels, nccl and bytes are kept in build/gpu/results.jsonl.
set -uo pipefail
cd "$(dirname "$0")/.."
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
tar -C "$work" -xJf "${1:?usage: tools/gpu_check.sh BUNDLE.tar.xz [PART...]}" || exit 2
shift
torch="$(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))')" || exit 2
export LD_LIBRARY_PATH="$torch/lib:$work/lib" PATH="$work/bin:$PATH"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || echo "gpu: there is no driver of NVIDIA here" >&2
python3 -c 'import torch; print("torch", torch.__version__)'
failed=0

check() {  # NAME COMMAND...
  local name="$1" begin
  shift
  begin=$(date +%s%N)
  if timeout 60 "$@" > "$work/output" 2>&1; then
    echo "ok    $name ($((($(date +%s%N) - begin) / 1000000)) ms)"
  else
    echo "FAIL  $name (exit status $?)"
    tail -3 "$work/output"
    failed=1
  fi
}

cases() {  # PART: a line of JSON per check
  local status
  timeout 300 gpu_case "$1" > "$work/lines" 2> "$work/output"
  status=$?
  mkdir -p build/gpu
  tee -a build/gpu/results.jsonl < "$work/lines"
  if [ $status = 0 ]; then echo "ok    $1"; else echo "FAIL  $1 (exit status $status)"; tail -3 "$work/output"; failed=1; fi
}

steps() {  # CASE WORLD [FLAG...]: losses agree with those of CPUs
  check "20 steps: $*" sim_case "$1" --world "${@:2}" --accelerator cuda --out "$work/out.json"
  python3 - "$work/out.json" <<'PYTHON' || failed=1
import json, sys
found = json.load(open(sys.argv[1]))
limit = 1e-3 if found["case"] in ("bf16", "fp16") else 1e-5
is_bad = bool(found["failures"]) or found["largest_relative_difference_of_losses"] > limit
print("FAIL " if is_bad else "     ", "losses differ from those of CPUs by", found["largest_relative_difference_of_losses"], *found["failures"])
sys.exit(is_bad)
PYTHON
}

# A program, as timeout runs no functions of the shell.
cat > "$work/bin/train" <<TRAIN
#!/usr/bin/env bash
exec digits --trainer.max_epochs 3 --seed_everything 1 --run_dir "$work/run_\$\$" "\$@"
TRAIN
chmod +x "$work/bin/train"

refuses() {  # TEXT COMMAND...: fails with exit status 2 and the text
  local text="$1" output status
  shift
  output="$("$@" 2>&1)"
  status=$?
  if [ $status = 2 ] && [[ "$output" == *"$text"* ]]; then echo "ok    refused: $text"; else echo "FAIL  refused: $text"; echo "$output"; failed=1; fi
}

speed() {
  local folder="$work/speed_$RANDOM" flags="$*"
  check "language model of 86 million parameters, $flags" example_05_fsdp_transformer --model.size gpt2 --data.text "$torch/nn" \
    --data.batch_size 16 --trainer.max_steps 150 --trainer.limit_val_batches 0 --trainer.num_sanity_val_steps 0 --sample.tokens 0 \
    --trainer.enable_progress_bar false --trainer.enable_checkpointing false --trainer.accelerator gpu --run_dir "$folder" "$@"
  head -1 "$folder/metrics.csv"
  tail -2 "$folder/metrics.csv"
}

for part in "${@:-steps ranks gates demo errors kernels nccl bytes speed}"; do
  for one in $part; do
    case "$one" in
      steps) for name in single clip bf16 fp16; do steps $name 1; done ;;
      ranks) for name in ddp fsdp zero1 zero2 zero3 clip bf16 fp16 fsdp_offload zero3_offload; do steps $name 2; done ;;
      gates)
        export LOCKSTEP_CUDA_GATES=1
        for _ in 1 2 3 4 5 6; do for name in ddp fsdp zero3; do steps $name 2; done; done
        unset LOCKSTEP_CUDA_GATES ;;
      demo)
        check "digits on the GPU" train --trainer.accelerator gpu
        check "digits on the best accelerator" train
        check "digits in bf16, clipped" train --trainer.accelerator gpu --trainer.precision bf16-mixed --trainer.gradient_clip_val 1 ;;
      errors)
        refuses "not all of these are there" train --trainer.accelerator gpu --trainer.devices 99
        CUDA_VISIBLE_DEVICES='' refuses "accelerator cuda is not there" train --trainer.accelerator gpu ;;
      kernels)
        cases kernels
        export LOCKSTEP_CUDA_KERNELS=1
        for name in single clip bf16 fp16 captured; do steps $name 1; done
        for name in ddp fsdp zero3; do steps $name 2; done
        unset LOCKSTEP_CUDA_KERNELS
        if command -v compute-sanitizer > /dev/null; then check "kernels under compute-sanitizer" compute-sanitizer --error-exitcode 1 gpu_case kernels; fi ;;
      nccl)
        cases nccl
        # Two ranks of one GPU: staged, with a warning.
        for name in ddp zero3; do steps $name 2 --backend nccl; done ;;
      nccl2)
        [ -e "$work/lib/libnccl_other.so.2" ] || { echo "gpu: the bundle has no NCCL of its own; build it with NCCL=FILE" >&2; exit 2; }
        export LD_PRELOAD="$work/lib/libnccl_other.so.2" NCCL_MULTI_RANK_GPU_ENABLE=1
        for name in ddp fsdp no_shard zero1 zero2 zero3 clip captured; do steps $name 2 --backend nccl; done
        unset LD_PRELOAD NCCL_MULTI_RANK_GPU_ENABLE ;;
      bytes) cases speed ;;
      speed)
        speed --trainer.precision bf16-mixed
        speed --trainer.precision bf16-mixed --trainer.gradient_clip_val 1
        speed --trainer.precision 32-true
        timeout 120 python3 benchmarks/peers/torch_language_model.py ;;
      *) echo "gpu: no part is called $one" >&2; exit 2 ;;
    esac
  done
done
exit $failed
