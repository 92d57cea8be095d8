"""Runs a job in which a rank dies, and tells how long after that it was reported, over, and training again.

Usage: faults.py RESULTS CASE SAID COMMAND... ; CASE is how the names of its numbers begin, SAID a regular expression: what the
launcher says of the rank. In COMMAND "{folder}" becomes a folder, "{moments}" the file in it to which ranks write when the fault
was ("fault"), and when they trained again ("training").
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time


def run(command, said):
    """Returns {name: ns on the clock of all processes} of the report and the end, the exit code, and the end of stderr."""
    at = {}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
    lines = []
    for line in process.stderr:
        lines.append(line)
        if re.search(said, line):
            at.setdefault("report", time.monotonic_ns())
    code = process.wait()
    at["end"] = time.monotonic_ns()
    return at, code, "".join(lines)[-4000:]


def moments_in(path):
    """Of several ranks' moments the last one counts."""
    at = {}
    for line in path.read_text().splitlines():
        moment = json.loads(line)
        at[moment["case"]] = max(moment["at_ns"], at.get(moment["case"], 0))
    return at


def main():
    results, case, said, *command = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        moments = pathlib.Path(folder, "moments.jsonl")
        at, code, text = run([argument.format(moments=moments, folder=folder) for argument in command], said)
        at |= moments_in(moments)
    trains_again = "training" in at
    if "report" not in at or trains_again != (code == 0):
        sys.exit(f"exit code {code}, {'' if 'report' in at else 'not '}reported, {'' if trains_again else 'not '}training again\n{text}")
    names = ("training",) if trains_again else ("report", "end")
    with open(results, "a") as file:
        for name in names:
            file.write(json.dumps({"case": f"{case}_{name}", "ns": at[name] - at["fault"]}) + "\n")


if __name__ == "__main__":
    main()
