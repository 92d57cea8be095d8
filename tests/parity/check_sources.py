#!/usr/bin/env python3
"""check_sources.py FOLDER...: these programs train through the Trainer and nothing else.

They include only <lockstep/lockstep.h> of the library and nothing of LibTorch, and call no backward(), no
step() of an optimizer and no collective of their own. Prints file:line and what was found; exit status 1 if
anything.
"""
import pathlib
import re
import sys

ALLOWED_INCLUDE = re.compile(r'"\w+\.h"|<lockstep/lockstep\.h>|<nlohmann/json\.hpp>|<c?[a-z_]+>')
INCLUDE = re.compile(r"^\s*#\s*include\s*(\S+)")
FORBIDDEN = re.compile(
    r"\bbackward\s*\(|(\.|->)(step|zero_grad)\s*\(|\bclip_grad_\w+\s*\(|\b(communicator|strategy)\s*\("
    r"|\b(all_reduce|all_gather\w*|reduce_scatter\w*|broadcast\w*|barrier)\s*\(")


def problems(folder):
    for file in sorted(p for p in folder.rglob("*") if p.suffix in (".h", ".cpp")):
        for number, line in enumerate(file.read_text().splitlines(), 1):
            code = line.split("//")[0]
            include = INCLUDE.match(code)
            if include and not ALLOWED_INCLUDE.fullmatch(include.group(1)):
                yield file, number, f"includes {include.group(1)}"
            call = FORBIDDEN.search(code)
            if call:
                yield file, number, f"calls {call.group(0)})"


def main():
    folders = [pathlib.Path(name) for name in sys.argv[1:]]
    found = [problem for folder in folders for problem in problems(folder)]
    for file, number, what in found:
        print(f"{file}:{number}: {what}")
    return 1 if found or not folders else 0


if __name__ == "__main__":
    sys.exit(main())
