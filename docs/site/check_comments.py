#!/usr/bin/env python3
"""Lists the public symbols that nothing documents. Usage: docs/site/check_comments.py, after `make docs`; exit status 1 if there are any."""
import pathlib
import sys

import symbols

ROOT = pathlib.Path(__file__).resolve().parents[2]


def sources(root):
    files = [f for folder in ("src", "include") for f in sorted((root / folder).rglob("*")) if f.suffix in (".h", ".cpp")]
    return [f.read_text() for f in files]


def main():
    compounds = symbols.read(ROOT / "build" / "docs" / "doxygen" / "xml")
    symbols.complete(compounds, sources(ROOT))
    found = sorted(set(symbols.symbols(compounds)))
    missing = [(file, line, name) for file, line, name, documented in found if not documented]
    for file, line, name in missing:
        print(f"include/{file}:{line}: {name} has no comment")
    print(f"{len(found)} public symbols, {len(missing)} without a comment")
    return 1 if missing or not found else 0


if __name__ == "__main__":
    sys.exit(main())
