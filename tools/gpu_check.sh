#!/usr/bin/env bash
# Runs lockstep on this machine's NVIDIA GPU, from what tools/gpu_bundle.sh has built: the steps of a small network beside those of
# CPUs, ranks that share the GPU, waits of the host beside those on the simulated device, the contract suites of devices and communicators, the demo, errors, kernels beside their references, NCCL with one rank (and with two, where the bundle has an
# NCCL that lets them share a GPU), bytes per second, a language model beside the same one in PyTorch, GPT-2 beside PyTorch's (losses and speed), and the table of the goals.
# Usage: tools/gpu_check.sh BUNDLE.tar.xz [steps] [ranks] [waits] [contracts] [gates] [demo] [errors] [kernels] [nccl] [nccl2] [bytes] [speed]
# [goals]; all but nccl2 by default. Needs a python3 with torch, or TORCH=FOLDER, that of a LibTorch for CUDA, for all parts but speed and goals. Lines of JSON are
# kept in build/gpu/results.jsonl. Without a GPU it starts each program, shows what that says is missing, and ends with 2.
set -uo pipefail
cd "$(dirname "$0")/.."
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
tar -C "$work" -xJf "${1:?usage: tools/gpu_check.sh BUNDLE.tar.xz [PART...]}" || exit 2
shift
torch="${TORCH:-$(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))')}" || exit 2
export LD_LIBRARY_PATH="$torch/lib:$work/lib" PATH="$work/bin:$PATH"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || echo "gpu: there is no driver of NVIDIA here" >&2
[ -n "${TORCH:-}" ] || python3 -c 'import torch; print("torch", torch.__version__)'
failed=0
mkdir -p build/gpu
results="$PWD/build/gpu/results.jsonl"

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
  tee -a "$results" < "$work/lines"
  if [ $status = 0 ]; then echo "ok    $1"; else echo "FAIL  $1 (exit status $status)"; tail -3 "$work/output"; failed=1; fi
}

# The contract suites, with a line of JSON each: staged ranks are threads of the program.
contracts() {
  local status
  timeout 400 cuda_contract_tests --gtest_brief=1 --gtest_output="json:$work/suites.json" > "$work/output" 2>&1
  status=$?
  if [ $status = 0 ]; then echo "ok    contract suites"; else echo "FAIL  contract suites (exit status $status)"; tail -20 "$work/output"; failed=1; fi
  python3 - "$work/suites.json" <<'PYTHON' | tee -a "$results"
import json, sys
for suite in json.load(open(sys.argv[1]))["testsuites"]:
    bad = [test["name"] for test in suite["testsuite"] if test["result"] != "COMPLETED" or "failures" in test]
    print(json.dumps({"check": "contract suite " + suite["name"], "ok": not bad, "tests": suite["tests"], "failed": bad}))
PYTHON
}

contract_ranks() {  # BACKEND RANKS: those of communicators, with a process per rank
  local status said
  said="$(python3 tests/contracts/contract_ranks.py cuda_contract_tests "$@" 2>&1)"
  status=$?
  python3 -c 'import json, sys; print(json.dumps({"check": sys.argv[1], "ok": sys.argv[2] == "0", "said": sys.argv[3][-300:]}))' \
    "contract suites, $*" "$status" "$said" | tee -a "$results"
  if [ $status = 0 ]; then echo "ok    contract suites, $*: $said"; else echo "FAIL  contract suites, $*"; echo "$said"; failed=1; fi
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
  python3 - "$folder/metrics.csv" "$flags" <<'PYTHON' | tee -a "$results"
import csv, json, sys
found = [value for row in csv.DictReader(open(sys.argv[1])) for key, value in row.items() if key.endswith("device/items_per_sec") and value]
rate = found[-1] if found else None
if rate and sys.argv[2] == "--trainer.precision bf16-mixed":
    print(json.dumps({"check": "language model", "ok": True, "tokens_per_second": float(rate)}))
PYTHON
}

host_waits() {  # CASE WORLD: waits of a steady step by CUPTI's callbacks, beside those of the simulated device
  check "waits of the simulated device: $*" sim_case "$1" --world "$2" --out "$work/sim.json"
  check "waits by CUPTI: $*" sim_case "$1" --world "$2" --accelerator cuda --out "$work/cuda.json"
  python3 - "$work/sim.json" "$work/cuda.json" > "$work/lines" <<'PYTHON' || failed=1
import json, sys
sim, cuda = (json.load(open(file)) for file in sys.argv[1:])
counts = [found["host_syncs_per_step"] for found in (sim, cuda)]
is_ok = not cuda["failures"] and counts[0] == counts[1]
print(json.dumps({"check": f"host waits of {sim['case']}, {sim['world']} ranks", "ok": is_ok, "of_sim": counts[0], "by_cupti": counts[1],
                  "failures": cuda["failures"]}))
sys.exit(not is_ok)
PYTHON
  tee -a "$results" < "$work/lines"
}

waits() {  # how often the host waits for the GPU in a steady step, by LibTorch's profiler
  check "digits under LibTorch's profiler" digits --trainer.max_epochs 1 --trainer.accelerator gpu --trainer.profiler pytorch \
    --trainer.log_every_n_steps 1000 --run_dir "$work/waits"
  python3 - "$work/waits" <<'PYTHON' | tee -a "$results"
import json, pathlib, sys
waits = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")
for file in pathlib.Path(sys.argv[1]).rglob("fit-trace-0.json"):
    events = [e for e in json.loads(file.read_text())["traceEvents"] if e["ph"] == "X"]
    ends = [e["ts"] + e["dur"] for e in events if e["name"].endswith(".training_step")]
    # The profiler itself waits when it stops, behind the last of its three steps.
    calls = [e["name"] for e in events if e.get("cat") == "runtime" and ends[4] < e["ts"] < ends[6]]
    print(json.dumps({"check": "waits of a steady step", "ok": True, "per_step": sum(name in waits for name in calls) / 2, "calls": len(calls)}))
PYTHON
}

# Each program is there with all that it needs, and names what is missing.
starts() {
  local status
  says() {  # TEXT COMMAND...
    local text="$1" output
    shift
    output="$(timeout 60 "$@" 2>&1)"
    status=$?
    if [ $status != 0 ] && [[ "$output" == *"$text"* ]]; then echo "ok    starts: $1: $(grep -m 1 -F "$text" <<< "$output")"
    else echo "FAIL  starts: $1 (exit status $status)"; echo "$output" | tail -5; failed=1; fi
  }
  says "driver" gpu_case kernels
  says "driver" cuda_contract_tests
  says "accelerator cuda is not there" digits --trainer.accelerator gpu --run_dir "$work/none"
  says "accelerator cuda is not there" example_05_fsdp_transformer --trainer.accelerator gpu --data.text "$0" --run_dir "$work/none"
  says "model.folder is required" example_11_models_from_elsewhere fit
  says "usage" sim_case
  if digits --version > "$work/output" 2>&1; then echo "ok    starts: $(head -1 "$work/output")"; else failed=1; cat "$work/output"; fi
}

gpu_case kernels > /dev/null 2> "$work/missing"
case $? in
  0 | 1) ;;
  2)
    starts
    echo "gpu: nothing was run: no GPU"
    [ $failed = 0 ] && exit 2
    exit 1 ;;
  *)
    echo "FAIL  gpu_case does not start:"
    cat "$work/missing"
    exit 1 ;;
esac

for part in "${@:-steps ranks waits contracts gates demo errors kernels nccl bytes speed goals}"; do
  for one in $part; do
    case "$one" in
      steps) for name in single clip bf16 fp16; do steps $name 1; done ;;
      ranks) for name in ddp fsdp zero1 zero2 zero3 clip bf16 fp16 fsdp_offload zero3_offload; do steps $name 2; done ;;
      waits)  # ranks that share the GPU wait for copies without gates, which the simulated device has
        for name in single bf16 fp16 clip captured fsdp zero1 zero3; do host_waits $name 1; done
        export LOCKSTEP_CUDA_GATES=1
        for name in ddp fsdp zero3; do host_waits $name 2; done
        unset LOCKSTEP_CUDA_GATES ;;
      contracts)
        contracts
        contract_ranks nccl 1 ;;
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
        contract_ranks nccl 2
        for name in ddp fsdp no_shard zero1 zero2 zero3 clip captured; do steps $name 2 --backend nccl; done
        unset LD_PRELOAD NCCL_MULTI_RANK_GPU_ENABLE ;;
      bytes) cases speed ;;
      speed)
        speed --trainer.precision bf16-mixed
        speed --trainer.precision bf16-mixed --trainer.gradient_clip_val 1
        speed --trainer.precision 32-true
        timeout 120 python3 benchmarks/peers/torch_language_model.py ;;
      goals)
        cases steps
        waits
        timeout 200 python3 benchmarks/peers/gpu_goals.py | tee -a "$results"
        timeout 400 python3 benchmarks/peers/gpt2.py "$work/bin/example_11_models_from_elsewhere" > "$work/lines" 2> "$work/output" || {
          echo "FAIL  GPT-2 beside PyTorch's"; tail -3 "$work/output"; failed=1; }
        tee -a "$results" < "$work/lines"
        python3 tools/gpu_table.py "$results" ;;
      *) echo "gpu: no part is called $one" >&2; exit 2 ;;
    esac
  done
done
exit $failed
