#!/usr/bin/env python3
"""Writes the tables of docs/performance.md from build/bench/*.jsonl. Usage: benchmarks/report.py [NAME...]

Of the tables named, or of all, with what they were measured on.

A table stands between `<!-- bench NAME -->` and `<!-- end -->`; NAME is that of a results file, or `machine`.
Without results for one of them nothing is written.
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/performance.md"
BLOCK = re.compile(r"(<!-- bench (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def results(name):
    path = ROOT / f"build/bench/{name}.jsonl"
    if not path.exists():
        command = "python3 benchmarks/profile_step.py" if name == "profile" else "make bench"
        sys.exit(f"{path}: no results; run {command}")
    return [json.loads(line) for line in path.read_text().splitlines()]


def digits(value):
    return f"{value:,.2f}" if abs(value) < 10 else f"{value:,.1f}" if abs(value) < 1000 else f"{value:,.0f}"


def table(lines):
    yield "| case | lockstep | peer | unit | peer / lockstep |"
    yield "| --- | ---: | ---: | --- | ---: |"
    for line in lines:
        ratio = "" if line["ratio"] is None else f"{digits(line['ratio'])}x"
        yield f"| `{line['case']}` | {digits(line['ours'])} | {digits(line['peer'])} | {line['unit']} | {ratio} |"


def profile_table(lines):
    yield "| where | share of the step |"
    yield "| --- | ---: |"
    for line in lines:
        yield f"| {line['where']} | {line['percent']:.1f} % |"


def machine_text(names):
    """Runs at different times may have been on different machines; all are named."""
    lines = [line for name in names for line in results(name)]
    about = sorted({(line["machine"], json.dumps(line["versions"]), line["rounds"]) for line in lines})
    for machine, versions, rounds in about:
        found = ", ".join(f"{name} {version}" for name, version in json.loads(versions).items())
        yield f"{machine}; {found}; {rounds} rounds."


def main():
    page = PAGE.read_text()
    names = sys.argv[1:] or [name for _, name, _ in BLOCK.findall(page)]
    benches = [name for name in names if name not in ("machine", "profile")]
    texts = {name: table(results(name)) for name in benches}
    if "profile" in names:
        texts["profile"] = profile_table(results("profile"))
    if "machine" in names:
        texts["machine"] = machine_text(benches)
    texts = {name: "\n".join(lines) + "\n" for name, lines in texts.items()}
    PAGE.write_text(BLOCK.sub(lambda match: match.group(1) + texts.get(match.group(2), match.group(0)[len(match.group(1)):-len(match.group(3))])
                              + match.group(3), page))


if __name__ == "__main__":
    main()
