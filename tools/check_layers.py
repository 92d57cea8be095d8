#!/usr/bin/env python3
"""Checks that modules include only what the table below allows.

Usage: tools/check_layers.py [ROOT]. Prints file:line and the broken rule; exit status 1 if any. A module may include itself
and the modules that the table names, all of which it must use. The folders of one module may not include each other in a
circle. What asks for the kind of a tensor's device, or for its address, is in modules that docs/accelerators.md names.
"""
import graphlib
import pathlib
import re
import sys

LEVELS = [  # from the bottom; each module with the modules it may include, all of them of lower levels
    {"base": ""},
    {"formats": "base", "offload": "base", "cluster": "base", "rendezvous": "base", "device": "base", "profilers": "base"},
    {"advice": "base formats", "deepspeed": "base formats", "launch": "base cluster rendezvous", "state": "base formats device",
     "loggers": "base formats", "report": "base formats profilers", "cuda": "device", "xla": "base device"},
    {"doctor": "base cluster rendezvous launch", "comm": "base cluster rendezvous device launch", "data": "base formats state",
     "optim": "base device offload deepspeed state"},
    {"metrics": "base device state comm", "precision": "base device state optim", "checkpoint": "base formats state comm",
     "parallel": "base offload cluster device state comm optim"},
    {"strategy": "base cluster device deepspeed state comm optim precision checkpoint parallel", "testing": "base launch comm"},
    {"fabric": "base formats cluster device deepspeed launch state loggers comm data optim metrics precision checkpoint parallel "
               "strategy"},
    {"train": "base formats cluster device profilers deepspeed launch state loggers report comm data optim metrics precision "
              "checkpoint parallel strategy fabric"},
    {"cli": "base cluster device launch strategy fabric train"},
]
LAYERS = {module: allowed.split() for level in LEVELS for module, allowed in level.items()}
TORCH_FREE = "base formats advice offload cluster rendezvous profilers deepspeed launch loggers report doctor".split()
# c10d itself; all others take it from comm/c10d.h, which these may include, too.
C10D_ALLOWED = re.compile(r"^src/(comm/(c10d\.h|compat\.h|transport/gloo/|join/)|cuda/)")
C10D_VIA_HEADER = re.compile(r"^src/comm/")
DEVICE_PAGE = "docs/accelerators.md"
DEVICE_TABLE = re.compile(r"^## Where the code asks for the kind of device$(.*?)^## ", re.M | re.S)
KIND_OF_DEVICE = re.compile(r"\bis_cpu\(|\bkCPU\b|data_ptr\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]')


def module_of(path):
    parts = path.parts
    return parts[2] if parts[0] == "include" else parts[1]


def included_module(header):
    parts = header.split("/")
    if parts[0] == "lockstep" and len(parts) > 2:
        return parts[1]
    return parts[0] if parts[0] in LAYERS and len(parts) > 1 else None


def folder_in_module(path):
    """("parallel", "ddp") for src/parallel/ddp/x.h; None for files right in the module."""
    inner = path.parts[2:-1] if path.parts[0] == "include" else path.parts[1:-1]
    return inner[:2] if len(inner) > 1 else None


def problems_of_table():
    seen = set()
    for level in LEVELS:
        for module, allowed in level.items():
            for other in allowed.split():
                if other not in seen:
                    yield "tools/check_layers.py", 1, f"'{other}' is not below '{module}'"
        seen |= set(level)


def problems_of_folders(graph):
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        folders = ["/".join(folder) for folder in reversed(error.args[1])]
        yield "src/" + folders[0], 1, f"folders include each other in a circle: {' -> '.join(folders)}"


def problems(root):
    yield from problems_of_table()
    used, folders = set(), {}
    files = sorted(p for d in ("include/lockstep", "src") for p in (root / d).rglob("*") if p.suffix in (".h", ".cpp"))
    for file in files:
        path = file.relative_to(root)
        module = module_of(path)
        if module not in LAYERS:
            if path.parts[0] == "src":
                yield path, 1, f"'{module}' is not in the table of modules"
            continue
        allowed, sees_torch = LAYERS[module], module not in TORCH_FREE
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if "getenv(" in line and str(path) != "src/base/env.cpp":
                yield path, number, "getenv belongs in src/base/env.cpp"
            match = INCLUDE.match(line)
            if not match:
                continue
            header = match.group(1)
            other = included_module(header)
            used.add((module, other))
            if other and other != module and other not in allowed:
                yield path, number, f"'{module}' may not include '{other}' (it may include: {' '.join(allowed) or 'nothing'})"
            from_folder, to_folder = folder_in_module(path), folder_in_module(pathlib.Path("src", header.removeprefix("lockstep/")))
            if other == module and from_folder and to_folder and from_folder != to_folder:
                folders.setdefault(from_folder, set()).add(to_folder)
            if "/c10d/" in header and not C10D_ALLOWED.match(str(path)):
                yield path, number, "c10d belongs in src/comm/{transport/gloo,join}; others take it from comm/c10d.h"
            if header == "comm/c10d.h" and not C10D_VIA_HEADER.match(str(path)):
                yield path, number, "comm/c10d.h is for src/comm and src/parallel/ddp"
            if not sees_torch and re.match(r"(torch|ATen|c10)/|lockstep/torch.h", header):
                yield path, number, f"'{module}' is torch-free"
    for module, allowed in LAYERS.items():
        for other in allowed:
            if (module, other) not in used:
                yield "tools/check_layers.py", 1, f"'{module}' does not use '{other}', which its row names"
    yield from problems_of_folders(folders)


def problems_of_devices(root):
    """Code of modules without a row on the page, and rows of modules without such code."""
    table = DEVICE_TABLE.search((root / DEVICE_PAGE).read_text()).group(1)
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    used = set()
    for path in sorted(p for d in ("include/lockstep", "src") for p in (root / d).rglob("*") if p.suffix in (".h", ".cpp")):
        path = path.relative_to(root)
        module = module_of(path)
        for number, line in enumerate((root / path).read_text().splitlines(), 1):
            if not KIND_OF_DEVICE.search(re.sub(r"//.*", "", line)):
                continue
            used.add(module)
            if module not in named:
                yield path, number, f"{module} asks for the kind of a device, or an address, and {DEVICE_PAGE} does not say why"
    for module in sorted(named - used):
        yield DEVICE_PAGE, 1, f"{module} has a row and does not ask for the kind of a device"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    found = [*problems(root), *problems_of_devices(root)]
    for path, number, rule in found:
        print(f"{path}:{number}: {rule}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
