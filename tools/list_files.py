#!/usr/bin/env python3
"""Lists the headers and sources of every module with what they say they are, into docs/files.md.

Usage: tools/list_files.py [--check]. With --check it writes nothing: exit status 1 if the list is not up to date. What a file is,
is the first sentence of the comment at its top; a source without one belongs to the header of its name.
"""
import pathlib
import re
import sys

from check_layers import LEVELS
from generated import write_or_check

ROOT = pathlib.Path(__file__).parent.parent
LIST = ROOT / "docs" / "files.md"
HEAD = """# Files

What each file of the library is, by module, from the lowest level up ([architecture](architecture.md)). Made by
`tools/list_files.py` from the first sentence of each file. Paths are those below `include/lockstep/` (in italics, public) and
`src/`. A source that says nothing at its top belongs to the header of its name, and is not listed.
"""


def first_sentence(file):
    lines = []
    for line in file.read_text().splitlines():
        if not line.startswith("//"):
            break
        lines.append(line.removeprefix("//").strip())
    text = " ".join(lines).split("  ")[0]
    sentence = re.match(r".*?[.](?= |$)", text)
    return (sentence.group(0) if sentence else text).rstrip(".").replace("|", "\\|").replace("<", "&lt;")


def rows(module):
    for root, mark in ((ROOT / "include" / "lockstep", "*"), (ROOT / "src", "`")):
        folder = root / module
        files = sorted(file for file in folder.rglob("*") if file.suffix in (".h", ".cpp"))
        for file in files:
            what = first_sentence(file)
            path = file.relative_to(root).as_posix()
            if what:
                yield f"| {mark}{path}{mark} | {what} |"


def text():
    parts = [HEAD]
    for level in LEVELS:
        for module in level:
            parts.append("\n".join([f"## {module}", "", "| File | What it is |", "| --- | --- |", *rows(module)]) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(write_or_check(LIST, text()))
