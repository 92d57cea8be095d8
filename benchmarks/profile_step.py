#!/usr/bin/env python3
"""Says where the time of a Trainer's step goes: samples bench_step with perf, by library and by function.

Usage: benchmarks/profile_step.py [CASE]. CASE is one of bench_step's, trainer_full unless given. Needs perf.
Writes build/bench/profile.jsonl: {"where", "percent"}, libraries first, then the largest functions.
"""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/bin/bench_step"
STEPS = "20000"
START_MS = "1500"  # not sampled: loading LibTorch, warming up
FUNCTIONS = 12


def record(case, folder):
    data = f"{folder}/perf.data"
    command = ["perf", "record", "--quiet", "-F", "2999", "-D", START_MS, "-o", data, "--",
               str(PROGRAM), f"{folder}/results.jsonl", STEPS, case]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    report = ["perf", "report", "-i", data, "--stdio", "--no-children", "--field-separator", "\t",
              "--fields", "overhead,dso,sym"]
    return subprocess.run(report, check=True, capture_output=True, text=True).stdout


def samples(report):
    """(percent, library, function) of each line."""
    for line in report.splitlines():
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) == 3 and re.fullmatch(r"[\d.]+%", fields[0]):
            yield float(fields[0].rstrip("%")), fields[1], re.sub(r"^\[.\] ", "", fields[2])


def short(function):
    """Without parameters and template arguments."""
    name = re.sub(r"\(anonymous namespace\)::", "", function)
    while re.search(r"<[^<>]*>", name):
        name = re.sub(r"<[^<>]*>", "", name)
    return name.split("(")[0][-60:]


def main():
    case = sys.argv[1] if len(sys.argv) > 1 else "trainer_full"
    with tempfile.TemporaryDirectory() as folder:
        found = list(samples(record(case, folder)))
    libraries, functions = collections.Counter(), collections.Counter()
    for percent, library, function in found:
        libraries[library] += percent
        functions[f"`{short(function)}` in {library}"] += percent
    lines = [(f"all of {library}", percent) for library, percent in libraries.most_common() if percent >= 0.5]
    lines += functions.most_common(FUNCTIONS)
    out = ROOT / "build/bench"
    out.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps({"where": where, "percent": round(percent, 2)}) + "\n" for where, percent in lines)
    (out / "profile.jsonl").write_text(text)
    for where, percent in lines:
        print(f"{percent:6.2f} %  {where}")


if __name__ == "__main__":
    main()
