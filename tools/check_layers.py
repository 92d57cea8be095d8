#!/usr/bin/env python3
"""Checks that modules, and folders within them, include only what the tables below allow.

Usage: tools/check_layers.py [ROOT]. Prints file:line and the broken rule; exit status 1 if any.
Arrows only go up: a module may include itself and the modules in its row. So it is with the folders of a module
that has a table of its own.
"""
import pathlib
import re
import sys

LAYERS = {  # module -> (may see torch, modules it may include)
    "base": (False, ""),
    "formats": (False, "base"),
    "deepspeed": (False, "base formats"),
    "offload": (False, "base"),
    "cluster": (False, "base"),
    "rendezvous": (False, "base cluster"),
    "launch": (False, "base cluster rendezvous"),
    "device": (True, "base"),
    "comm": (True, "base cluster rendezvous launch device"),
    "state": (True, "base formats"),
    "metrics": (True, "base comm state"),
    "precision": (True, "base device state optim"),
    "data": (True, "base formats device state"),
    "optim": (True, "base deepspeed offload device state"),
    "checkpoint": (True, "base formats comm device state"),
    "parallel": (True, "base offload cluster device comm state optim"),
    "strategy": (True, "base formats deepspeed offload cluster device comm state precision optim checkpoint parallel"),
    "loggers": (False, "base formats"),
    "profilers": (False, "base formats"),
    "fabric": (True, "base formats deepspeed cluster launch device comm state metrics precision data optim checkpoint parallel strategy loggers profilers"),
    "train": (True, "base formats deepspeed cluster launch device comm state metrics precision data optim checkpoint parallel strategy loggers profilers report fabric"),
    "cli": (True, "base formats deepspeed cluster launch device comm state metrics precision data optim checkpoint parallel strategy loggers profilers fabric train"),
    "testing": (True, "base formats deepspeed cluster launch device comm state metrics precision data optim checkpoint parallel strategy loggers profilers fabric train cli"),
    "report": (False, "base formats profilers"),
}
# Folders within a module, from the lowest up: each may include itself, the headers in the module's own folder, which
# include no folder, and those in its row. Sources in the module's own folder may include all.
FOLDERS = {
    "comm": {
        "transport": "",
        "algorithms": "transport",
        "collectives": "transport algorithms",
        "group": "transport algorithms collectives",
        "join": "transport algorithms collectives group",
    },
}
# c10d itself; all others take it from comm/c10d.h, which these may include, too.
C10D_ALLOWED = re.compile(r"^src/comm/(c10d\.h|compat\.h|transport/gloo/|join/)")
C10D_VIA_HEADER = re.compile(r"^src/(comm|parallel/ddp)/")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]')


def module_of(path):
    parts = path.parts
    return parts[2] if parts[0] == "include" else parts[1]


def included_module(header):
    parts = header.split("/")
    if parts[0] == "lockstep" and len(parts) > 2:
        return parts[1]
    return parts[0] if parts[0] in LAYERS and len(parts) > 1 else None


def folder_of(module, parts):
    """The folder of MODULE that a path below it is in; "" for the module's own."""
    return parts[0] if len(parts) > 1 and parts[0] in FOLDERS.get(module, {}) else ""


def folder_problem(module, path, header):
    """Why PATH, a file of MODULE, may not include HEADER of the same module; None if it may."""
    table = FOLDERS.get(module)
    if table is None or path.parts[0] != "src":
        return None
    own = folder_of(module, path.parts[2:])
    other = folder_of(module, header.split("/")[1:])
    if not other or other == own or (not own and path.suffix == ".cpp"):
        return None
    if not own:
        return f"headers in src/{module} itself may not include its folder '{other}'"
    if other not in table[own].split():
        return f"'{module}/{own}' may not include '{module}/{other}' (it may include: {table[own] or 'nothing'})"
    return None


def problems(root):
    files = sorted(p for d in ("include/lockstep", "src") for p in (root / d).rglob("*") if p.suffix in (".h", ".cpp"))
    for file in files:
        path = file.relative_to(root)
        module = module_of(path)
        if module not in LAYERS:
            if path.parts[0] == "src":
                yield path, 1, f"'{module}' is not in the table of modules"
            continue
        sees_torch, allowed = LAYERS[module]
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if "getenv(" in line and str(path) != "src/base/env.cpp":
                yield path, number, "getenv belongs in src/base/env.cpp"
            match = INCLUDE.match(line)
            if not match:
                continue
            header = match.group(1)
            other = included_module(header)
            if other and other != module and other not in allowed.split():
                yield path, number, f"'{module}' may not include '{other}' (it may include: {allowed or 'nothing'})"
            if other == module and (problem := folder_problem(module, path, header)):
                yield path, number, problem
            if "/c10d/" in header and not C10D_ALLOWED.match(str(path)):
                yield path, number, "c10d belongs in src/comm/{transport/gloo,join}; others take it from comm/c10d.h"
            if header == "comm/c10d.h" and not C10D_VIA_HEADER.match(str(path)):
                yield path, number, "comm/c10d.h is for src/comm and src/parallel/ddp"
            if not sees_torch and re.match(r"(torch|ATen|c10)/|lockstep/torch.h", header):
                yield path, number, f"'{module}' is torch-free"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    found = list(problems(root))
    for path, number, rule in found:
        print(f"{path}:{number}: {rule}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
