#!/usr/bin/env python3
"""Measures lockstep and its peers in turns and writes what it found to build/bench/*.jsonl.

Usage: benchmarks/run.py [--rounds 9] [--only BENCH ...] [--quiet-wait SECONDS]

In each round every program runs once, ours and the peer's one after the other, and gives one number per
case; programs warm up before they measure and their start counts only where it is what is measured. The
number of a case is the 25th percentile of its rounds; of a difference, such as what DDP adds to a step, the
median over rounds of the difference within the round. ratio is peer / ours: above 1 ours is faster, or needs
less memory. Benchmarks whose programs repeat their work themselves have fewer rounds.
"""
import argparse
import collections
import dataclasses
import itertools
import json
import os
import pathlib
import platform
import pty
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEADLINE_S = 300  # for one program


@dataclasses.dataclass(frozen=True)
class Program:
    """Something to run; "{results}" in its arguments becomes the file for its numbers."""
    name: str
    arguments: tuple


@dataclasses.dataclass(frozen=True)
class Number:
    """A case of a program or, with `minus`, how much more it takes than another case."""
    program: str
    case: str
    minus: str = ""


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the results: our number beside the peer's."""
    case: str
    ours: Number
    peer: Number
    unit: str = "us"


@dataclasses.dataclass(frozen=True)
class Bench:
    name: str
    programs: tuple
    rows: tuple
    most_rounds: int = sys.maxsize


PER_UNIT = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "MiB": 2**20}  # nanoseconds or bytes
# What the peer's program calls a strategy, and our flags for it.
SHARDED_STRATEGIES = {"ddp": ("ddp",), "fsdp": ("fsdp",), "fsdp_bf16": ("fsdp", "--fabric.precision", "bf16-mixed")}


def step_bench(bin_dir, python, peers):
    steps = "1000"
    cases = ("forward", "backward", "raw_loop", "fabric", "trainer_bare", "trainer_full")
    programs = (Program("ours", (f"{bin_dir}/bench_step", "{results}", steps, *cases)),
                Program("peer", (python, f"{peers}/step.py", "{results}", steps)))
    rows = [Row(case, Number("ours", case), Number("peer", case)) for case in cases]
    rows += [Row(f"{case}_over_loop", Number("ours", case, minus="raw_loop"), Number("peer", case, minus="raw_loop"))
             for case in cases[3:]]
    return Bench("step", programs, tuple(rows))


def epoch_bench(bin_dir, python, peers):
    arguments = ("{results}", str(ROOT / "data/digits.csv.gz"), "5")
    programs = (Program("ours", (f"{bin_dir}/bench_epoch", *arguments)),
                Program("peer", (python, f"{peers}/epoch.py", *arguments)))
    return Bench("epoch", programs, (Row("epoch", Number("ours", "epoch"), Number("peer", "epoch"), "ms"),))


def epoch_ranks_bench(bin_dir, python, peers):
    """The same on two ranks under DDP; of the whole run, too."""
    arguments = ("{results}", str(ROOT / "data/digits.csv.gz"), "5", "2")
    programs = (Program("ours", (f"{bin_dir}/bench_epoch", *arguments)),
                Program("peer", (python, f"{peers}/epoch.py", *arguments)))
    rows = [Row(f"ranks_2_{case}", Number("ours", case), Number("peer", case), unit)
            for case, unit in (("epoch", "ms"), ("run", "s"), ("run_processor_time", "s"))]
    return Bench("epoch_ranks", programs, tuple(rows))


def loader_bench(bin_dir, python, peers):
    arguments = ("{results}", str(ROOT / "data/digits.csv.gz"), "10")
    programs = (Program("ours", (f"{bin_dir}/bench_loader", *arguments)),
                Program("peer", (python, f"{peers}/loader.py", *arguments)))
    rows = [Row(case, Number("ours", case), Number("peer", case)) for case in ("workers_0", "workers_2")]
    return Bench("loader", programs, tuple(rows))


def ddp_bench(bin_dir, python, peers):
    steps = "500"
    programs = (Program("ours", (f"{bin_dir}/bench_ddp", "{results}", steps)),
                Program("peer", (python, f"{peers}/ddp.py", "{results}", steps)))
    rows = []
    for model, unit in (("tiny", "us"), ("mid", "ms")):
        for case in (f"{model}_local", f"{model}_ddp"):
            rows.append(Row(case, Number("ours", case), Number("peer", case), unit))
        rows.append(Row(f"{model}_tax", Number("ours", f"{model}_ddp", minus=f"{model}_local"),
                        Number("peer", f"{model}_ddp", minus=f"{model}_local"), unit))
    return Bench("ddp", programs, tuple(rows))


def replica_check_bench(bin_dir, _python, _peers):
    """Beside an all-reduce of as many bytes, ours too."""
    rows = [Row(case, Number("ours", f"{case}_compare"), Number("ours", f"{case}_all_reduce"))
            for case in ("unwritten", "mid")]
    program = Program("ours", (f"{bin_dir}/bench_replica_check", "{results}", "200"))
    return Bench("replica_check", (program,), tuple(rows))


def loss_scale_bench(bin_dir, _python, _peers):
    """A step whose loss scale is found by DeepSpeed's rule, beside one under a scale that stays."""
    program = Program("ours", (f"{bin_dir}/bench_step", "{results}", "1000", "deepspeed_scale_is_found", "deepspeed_scale_stays"))
    row = Row("step", Number("ours", "deepspeed_scale_is_found"), Number("ours", "deepspeed_scale_stays"))
    return Bench("loss_scale", (program,), (row,))


def start_bench(bin_dir, python, peers):
    programs, rows = [], []
    for ranks in ("2", "4", "8"):
        ours, peer, case = f"ours_{ranks}", f"peer_{ranks}", f"ranks_{ranks}"
        programs.append(Program(ours, (f"{bin_dir}/bench_start", "--fabric.devices", ranks, "--bench.results",
                                       "{results}")))
        programs.append(Program(peer, (python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                                       ranks, f"{peers}/start.py", "{results}")))
        launched = f"lockstep_run_{ranks}"
        programs.append(Program(launched, (f"{bin_dir}/lockstep", "run", "--nproc-per-node", ranks,
                                           f"{bin_dir}/bench_start", "--bench.results", "{results}")))
        rows.append(Row(case, Number(ours, case), Number(peer, case), "s"))
        rows.append(Row(launched, Number(launched, case), Number(peer, case), "s"))
    return Bench("start", tuple(programs), tuple(rows))


def fault_bench(bin_dir, python, peers):
    """A rank of four dies, of a job without and with a restart."""
    ranks, programs = "4", []
    for restarts, suffix in (("0", ""), ("1", "_again")):
        driver = (python, str(ROOT / "benchmarks/launch/faults.py"), "{results}", f"ranks_{ranks}")
        flags = ("--nproc-per-node", ranks, "--max-restarts", restarts)
        programs += [Program(f"ours{suffix}", (*driver, "rank 1 .* killed by SIGKILL", f"{bin_dir}/lockstep", "run", *flags,
                                               f"{bin_dir}/bench_fault", "fit", "--run_dir", "{{folder}}/run", "--resume", "auto",
                                               "--bench.moments", "{{moments}}")),
                     Program(f"peer{suffix}", (*driver, r"exitcode: -9\b.* local_rank: 1\b", python, "-m", "torch.distributed.run",
                                               "--standalone", *flags, f"{peers}/fault.py", "{{moments}}", "{{folder}}"))]
    rows = [Row(case, Number(f"ours{suffix}", case), Number(f"peer{suffix}", case), "ms")
            for case, suffix in ((f"ranks_{ranks}_report", ""), (f"ranks_{ranks}_end", ""), (f"ranks_{ranks}_training", "_again"))]
    return Bench("fault", tuple(programs), tuple(rows), most_rounds=5)


def all_reduce_bench(bin_dir, *_):
    programs = (Program("ours", (f"{bin_dir}/bench_all_reduce", "{results}")),)
    rows = [Row(f"{size}_{ours}", Number("ours", f"{size}/{ours}"), Number("ours", f"{size}/gloo"))
            for ours in ("ordered", "fast", "ordered_unchecked")
            for size in ("64_B", "4_KiB", "64_KiB", "1_MiB", "16_MiB", "64_MiB")]
    return Bench("all_reduce", programs, tuple(rows))


def between_hosts_bench(bin_dir, *_):
    """Ranks that share no memory, as those of two hosts: over sockets, here of the loopback interface."""
    programs = (Program("ours", (f"{bin_dir}/bench_all_reduce", "{results}", "2", "all_reduce", "apart")),)
    rows = [Row(f"{size}_{ours}", Number("ours", f"{size}/{ours}"), Number("ours", f"{size}/gloo"))
            for ours in ("sockets", "sockets_unchecked")
            for size in ("64_B", "4_KiB", "64_KiB", "1_MiB", "16_MiB", "64_MiB")]
    return Bench("between_hosts", programs, tuple(rows))


def two_hosts_bench(bin_dir, *_):
    """Two ranks on each of two hosts, which are one here; beside ranks that each tell all others, as those of uneven hosts, and
    three collectives that make one host by host."""
    programs = (Program("ours", (f"{bin_dir}/bench_all_reduce", "{results}", "4", "all_reduce", "hosts", "64_B")),)
    rows = [Row(f"64_B_vs_{peer}", Number("ours", "64_B/ordered"), Number("ours", f"64_B/{peer}"))
            for peer in ("gloo", "one_level", "host_by_host")]
    return Bench("two_hosts", programs, tuple(rows))


def copies_bench(bin_dir, *_):
    """A large all-reduce beside a copy of as many bytes by each rank: both read and write each byte in memory once."""
    size = "64_MiB"
    programs = (Program("ours", (f"{bin_dir}/bench_all_reduce", "{results}", "2", "copies", "any", size)),)
    return Bench("copies", programs, (Row(f"{size}_vs_copy", Number("ours", f"{size}/ordered"), Number("ours", f"{size}/copy"), "ms"),))


def many_ranks_bench(bin_dir, *_):
    """More ranks than processors, where there are two of these, and two ranks on one processor."""
    programs = [Program("together", (f"{bin_dir}/bench_all_reduce", "{results}", "2", "all_reduce", "together"))]
    rows = [Row(f"ranks_2_on_one_{size}", Number("together", f"{size}/ordered"), Number("together", f"{size}/gloo"))
            for size in ("64_B", "64_KiB", "1_MiB", "16_MiB")]
    for ranks in ("4", "8"):
        programs.append(Program(f"ranks_{ranks}", (f"{bin_dir}/bench_all_reduce", "{results}", ranks)))
        rows += [Row(f"ranks_{ranks}_{size}", Number(f"ranks_{ranks}", f"{size}/ordered"), Number(f"ranks_{ranks}", f"{size}/gloo"))
                 for size in ("64_B", "64_KiB", "1_MiB", "16_MiB")]
    return Bench("many_ranks", tuple(programs), tuple(rows))


def all_gather_bench(bin_dir, *_):
    programs = (Program("ours", (f"{bin_dir}/bench_all_reduce", "{results}", "2", "all_gather")),)
    rows = [Row(size, Number("ours", f"all_gather_{size}/ordered"), Number("ours", f"all_gather_{size}/gloo"))
            for size in ("64_B", "64_KiB", "1_MiB", "16_MiB", "64_MiB")]
    return Bench("all_gather", programs, tuple(rows))


def adamw_bench(bin_dir, python, peers):
    programs = (Program("ours", (f"{bin_dir}/bench_adamw", "{results}")),
                Program("deepspeed", (python, f"{peers}/cpu_adam.py", "{results}")))
    rows = [Row(f"{model}_vs_{peer}", Number("ours", f"{model}/ours"), Number("ours", f"{model}/{peer}"))
            for model in ("10M", "tiny_100") for peer in ("fused", "torch_optim")]
    rows += [Row("10M_vs_deepspeed_cpu_adam", Number("ours", "10M/ours"), Number("deepspeed", "10M")),
             Row("10M_vs_memory_pass", Number("ours", "10M/ours"), Number("ours", "10M/memory_pass"))]
    rows += [Row(f"10M_and_{kind}_vs_copy_after", Number("ours", f"10M/{kind}_along"), Number("ours", f"10M/{kind}_after"))
             for kind in ("bfloat16", "float16")]
    return Bench("adamw", programs, tuple(rows))


def checkpoint_bench(bin_dir, python, peers):
    folder = ROOT / "build/bench/checkpoint"
    programs = (Program("ours", (f"{bin_dir}/bench_checkpoint", "{results}", str(folder / "ours"))),
                Program("peer", (python, f"{peers}/checkpoint.py", "{results}", str(folder / "peer"))))
    rows = (Row("save_vs_torch_save", Number("ours", "save"), Number("peer", "save"), "ms"),
            Row("save_vs_raw_write", Number("ours", "save"), Number("ours", "raw_write"), "ms"),
            Row("load_vs_torch_load", Number("ours", "load"), Number("peer", "load"), "ms"),
            Row("snapshot_vs_copy", Number("ours", "snapshot"), Number("peer", "copy"), "ms"))
    return Bench("checkpoint", programs, rows)


def sharded_bench(bin_dir, python, peers):
    programs, rows = [], []
    for size, steps in (("10m", "10"), ("85m", "3")):
        for ranks, (strategy, flags) in itertools.product(("2", "4"), SHARDED_STRATEGIES.items()):
            run = f"{size}_{ranks}_{strategy}"
            ours, peer = f"ours_{run}", f"peer_{run}"
            programs.append(Program(ours, (f"{bin_dir}/bench_sharded", "--fabric.devices", ranks, "--fabric.strategy", *flags,
                                           "--bench.results", "{results}", "--bench.size", size, "--bench.steps", steps)))
            programs.append(Program(peer, (python, f"{peers}/fsdp2.py", "{results}", size, ranks, strategy, steps)))
            for case, unit, minus in (("step", "ms", ""), ("sent", "MiB", ""), ("peak_rss", "MiB", ""),
                                      ("peak_rss", "MiB", "rss_before")):
                name = f"{run}_{case}_over_start" if minus else f"{run}_{case}"
                rows.append(Row(name, Number(ours, case, minus), Number(peer, case, minus), unit))
    return Bench("sharded", tuple(programs), tuple(rows), most_rounds=3)


def live_bench(bin_dir, *_):
    """What the engine that shards costs where no unit is ever released, over averaging alone."""
    def program(name, *flags):
        return Program(name, (f"{bin_dir}/bench_sharded", "--fabric.devices", "2", "--fabric.strategy", *flags,
                              "--bench.results", "{results}", "--bench.size", "10m", "--bench.steps", "20"))

    programs = (program("live", "fsdp", "--fabric.strategy.sharding_strategy", "NO_SHARD"), program("ddp", "ddp"))
    return Bench("live", programs, (Row("10m_2_live_vs_ddp_step", Number("live", "step"), Number("ddp", "step"), "ms"),))


def zero_bench(bin_dir, python, peers):
    def ours_with(*flags):
        return (f"{bin_dir}/bench_sharded", *flags, "--bench.results", "{results}", "--bench.size", "14m", "--bench.steps", "10")

    programs = [Program("alone", ours_with("--fabric.devices", "1", "--fabric.strategy", "single_device"))]
    rows = []
    for stage in ("1", "2", "3"):
        ours, peer = f"ours_{stage}", f"peer_{stage}"
        programs.append(Program(ours, ours_with("--fabric.devices", "2", "--fabric.strategy", f"deepspeed_stage_{stage}")))
        programs.append(Program(peer, (python, f"{peers}/zero.py", "{results}", "2", stage, "10")))
        rows += [Row(f"stage_{stage}_{case}", Number(ours, case), Number(peer, case), unit)
                 for case, unit in (("step", "ms"), ("sent", "MiB"), ("peak_rss", "MiB"))]
        rows.append(Row(f"alone_vs_stage_{stage}_step", Number("alone", "step"), Number(peer, "step"), "ms"))
    return Bench("zero", tuple(programs), tuple(rows), most_rounds=5)


def profiler_bench(bin_dir, python, peers):
    programs = (Program("ours", (f"{bin_dir}/bench_profiler", "{results}")),
                Program("peer", (python, f"{peers}/profiler.py", "{results}")))
    rows = [Row(case, Number("ours", case), Number("peer", case), "ns")
            for case in ("off", "simple", "advanced", "trace")]
    return Bench("profiler", programs, tuple(rows))


def xla_bench(bin_dir, *_):
    """Captured steps on a plug-in for CPUs, beside LibTorch's kernels; LOCKSTEP_PJRT_PLUGIN names it."""
    programs = (Program("ours", (f"{bin_dir}/bench_xla", "{results}")),)
    rows = [Row(f"{network}_{ours}_vs_{peer}", Number("ours", f"{network}/{ours}"), Number("ours", f"{network}/{peer}"))
            for network in ("mlp_s", "mlp_m", "mlp_l", "cnn", "lm_s", "lm_m", "lm_l")
            for ours, peer in (("captured", "eager"), ("captured", "eager_fused"), ("traced", "eager_fused"), ("captured", "plugin"))]
    rows += [Row(f"buffers_{count}_captured_vs_plugin", Number("ours", f"buffers_{count}/captured"), Number("ours", f"buffers_{count}/plugin"))
             for count in (1, 10, 30, 60)]
    return Bench("xla", programs, tuple(rows), most_rounds=1)


def swap_bench(bin_dir, *_):
    programs = (Program("ours", (f"{bin_dir}/bench_swap", "{results}", str(ROOT / "build/bench/swap"))),)
    rows = [Row(f"{engine}_{ours}_vs_raw", Number("ours", f"{engine}/{ours}"), Number("ours", f"raw/{peer}"), "ms")
            for engine in ("io_uring", "threads")
            for ours, peer in (("update", "read_and_write"), ("read", "read"), ("fill", "write"))]
    return Bench("swap", programs, tuple(rows), most_rounds=5)


def all_benches(build):
    bin_dir, python = build / "bin", str(ROOT / "build/peers/bin/python")
    makers = (step_bench, epoch_bench, epoch_ranks_bench, loader_bench, ddp_bench, replica_check_bench, loss_scale_bench, start_bench, fault_bench,
              all_reduce_bench, between_hosts_bench, two_hosts_bench, copies_bench,
              many_ranks_bench, all_gather_bench, adamw_bench, checkpoint_bench, profiler_bench,
              sharded_bench, live_bench, swap_bench, zero_bench)
    if os.environ.get("LOCKSTEP_PJRT_PLUGIN"):
        makers += (xla_bench,)
    return [make(bin_dir, python, ROOT / "benchmarks/peers") for make in makers]


def wait_until_quiet(limit_s):
    """Waits while anything else is running, for `limit_s` at most."""
    end = time.monotonic() + limit_s
    calm = 0
    while calm < 5 and time.monotonic() < end:
        running = int(pathlib.Path("/proc/loadavg").read_text().split()[3].split("/")[0])
        calm = calm + 1 if running <= 1 else 0
        time.sleep(0.02)


def drain(terminal, tail):
    """Reads what a program prints, so that it never waits; keeps the end of it."""
    while True:
        try:
            text = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            return
        if not text:
            return
        tail.append(text)


def stop(process):
    """Ends it, if it still runs, and what it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_program(program, environment):
    """Runs it on a terminal of its own, since progress bars draw only there. Returns {case: ns or bytes}."""
    with tempfile.TemporaryDirectory() as folder:
        results = pathlib.Path(folder, "results.jsonl")
        command = [argument.format(results=results) for argument in program.arguments]
        terminal, end = pty.openpty()
        tail = collections.deque(maxlen=4)
        reader = threading.Thread(target=drain, args=(terminal, tail))
        start_ns = time.monotonic_ns()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=end, stderr=end, cwd=folder,
                                   env=environment, start_new_session=True)
        os.close(end)
        reader.start()
        try:
            code = process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            code = f"no end within {DEADLINE_S} s"
        finally:
            stop(process)
        reader.join(10)
        os.close(terminal)
        if code != 0:
            text = b"".join(tail).decode(errors="replace")[-4000:]
            sys.exit(f"{' '.join(command)}: ended with {code}\n{text}")
        return numbers_of(results, start_ns)


def numbers_of(results, start_ns):
    """A moment becomes the time since the start; of several ranks' moments, and bytes, the most counts, and their processor
    time is added up."""
    numbers = {}
    for line in results.read_text().splitlines():
        value = json.loads(line)
        case = value["case"]
        if "ns" in value:
            numbers[case] = value["ns"]
        elif "processor_ns" in value:
            numbers[case] = numbers.get(case, 0) + value["processor_ns"]
        else:
            number = value["bytes"] if "bytes" in value else value["at_ns"] - start_ns
            numbers[case] = max(number, numbers.get(case, 0))
    return numbers


def measure(bench, rounds, quiet_wait_s, environment):
    """Returns {(program, case): [ns or bytes per round]}."""
    samples = collections.defaultdict(list)
    for number in range(rounds):
        print(f"\r{bench.name}: round {number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
        # Neither side always goes first.
        for program in bench.programs if number % 2 == 0 else reversed(bench.programs):
            wait_until_quiet(quiet_wait_s)
            for case, ns in run_program(program, environment).items():
                samples[program.name, case].append(ns)
    print(file=sys.stderr)
    return samples


def value_of(number, samples, rounds):
    """The number over all rounds, or None where one is missing."""
    values = samples[number.program, number.case]
    if len(values) != rounds:
        return None
    if not number.minus:
        return percentile_25(values)
    base = samples[number.program, number.minus]
    return statistics.median(a - b for a, b in zip(values, base)) if len(base) == rounds else None


def percentile_25(values):
    return statistics.quantiles(values, n=4, method="inclusive")[0] if len(values) > 1 else values[0]


def machine():
    model = next((line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())
    kernel = ".".join(platform.release().split(".")[:2])
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{len(os.sched_getaffinity(0))} x {model}, {gib:.0f} GiB, Linux {kernel}"


def versions(python):
    code = ("import json, platform, torch, lightning; from importlib.metadata import distributions; "
            "print(json.dumps({'python': platform.python_version(), 'torch': torch.__version__, "
            "'lightning': lightning.__version__, 'deepspeed': next((d.version for d in distributions(name='deepspeed')), None)}))")
    found = json.loads(subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout)
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return {"lockstep": commit.stdout.strip() or "unknown", **found}


def records(bench, samples, rounds, about):
    """The lines of the results file; names what is missing."""
    lines, missing = [], []
    for row in bench.rows:
        ours, peer = (value_of(number, samples, rounds) for number in (row.ours, row.peer))
        if ours is None or peer is None:
            missing.append(f"{bench.name}/{row.case}")
            continue
        scale = PER_UNIT[row.unit]
        ratio = round(peer / ours, 3) if ours > 0 else None
        lines.append({"bench": bench.name, "case": row.case, "ours": round(ours / scale, 3),
                      "peer": round(peer / scale, 3), "unit": row.unit, "ratio": ratio, "rounds": rounds, **about})
    return lines, missing


def show(lines):
    for line in lines:
        ratio = f"{line['ratio']:8.2f}x" if line["ratio"] is not None else "        -"
        print(f"{line['bench']:>11} {line['case']:<24} {line['ours']:>12.3f} {line['peer']:>12.3f} "
              f"{line['unit']:<3} {ratio}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="+", metavar="BENCH", help="names of benchmarks; default: all")
    parser.add_argument("--quiet-wait", type=float, default=2.0, metavar="SECONDS",
                        help="longest wait for an idle machine before each program")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    options = parser.parse_args()
    benches = all_benches(options.build.resolve())
    unknown = set(options.only or ()) - {bench.name for bench in benches}
    if unknown or options.rounds < 1:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(bench.name for bench in benches)}"
                     if unknown else "--rounds must be at least 1")

    about = {"machine": machine(), "versions": versions(ROOT / "build/peers/bin/python")}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    out = ROOT / "build/bench"
    out.mkdir(parents=True, exist_ok=True)
    all_missing = []
    for bench in benches:
        if options.only and bench.name not in options.only:
            continue
        rounds = min(options.rounds, bench.most_rounds)
        samples = measure(bench, rounds, options.quiet_wait, environment)
        lines, missing = records(bench, samples, rounds, about)
        (out / f"{bench.name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        show(lines)
        all_missing += missing
    if all_missing:
        sys.exit(f"no numbers for: {', '.join(all_missing)}")


if __name__ == "__main__":
    main()
