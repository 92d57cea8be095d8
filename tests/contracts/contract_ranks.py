#!/usr/bin/env python3
"""Runs the contract suites of communicators with a process per rank, each of which runs the same tests: so they are for ranks whose
devices are connected. Ends with 0 where all passed, with 1 where a test failed, was skipped or did not use the backend, with 2 where
the program says that it cannot run here. Usage: contract_ranks.py PROGRAM BACKEND RANKS [GTEST_FLAG...]"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

STAGED = "collectives of devices go through the host's memory"
SECONDS = 540


def run(program, backend, ranks, flags):
    """Exit statuses and texts of all ranks, by rank."""
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder) / f"rank_{rank}" for rank in range(ranks)]
        processes = []
        for rank, file in enumerate(files):
            environment = {"CONTRACT_BACKEND": backend, "CONTRACT_RANK": str(rank), "CONTRACT_RANKS": str(ranks), "CONTRACT_FOLDER": folder}
            with file.open("w") as output:
                processes.append(subprocess.Popen([program, "--gtest_brief=1", *flags], stdout=output, stderr=subprocess.STDOUT,
                                                  env={**os.environ, **environment}))
        try:
            statuses = [process.wait(SECONDS) for process in processes]
        finally:
            for process in processes:
                process.kill()
        return statuses, [file.read_text(errors="replace") for file in files]


def verdict(statuses, texts):
    """Exit status, and what to say."""
    text = texts[0].strip()
    if set(statuses) == {2}:
        return 2, text
    if any(statuses):
        return 1, "\n".join(f"rank {rank}: exit status {status}\n{text[-4000:]}" for rank, (status, text) in enumerate(zip(statuses, texts)) if status)
    if STAGED in text:
        return 1, "the backend was not used: " + text[text.index(STAGED):].splitlines()[0]
    passed = re.search(r"PASSED +\] (\d+) tests?", text)
    if passed is None or int(passed[1]) == 0 or "SKIPPED" in text:
        return 1, "tests are missing:\n" + text[-4000:]
    return 0, f"{passed[1]} tests"


if __name__ == "__main__":
    found, said = verdict(*run(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
    print(said)
    sys.exit(found)
