"""Every ls:: name of README and docs/*.md is declared in a header that lockstep/lockstep.h includes, or that the page names, or
is a target of CMake."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
include = root / "include"


def reached(header, seen):
    """The headers behind `header`, itself among them."""
    if header in seen or not (include / header).exists():
        return seen
    seen.add(header)
    for name in re.findall(r"#include <(lockstep/[^>]+)>", (include / header).read_text()):
        reached(name, seen)
    return seen


def words(headers):
    texts = ((include / header).read_text() for header in headers)
    return {word for text in texts for word in re.findall(r"\w+", re.sub(r"//.*|/\*.*?\*/", "", text))}


targets = set(re.findall(r"add_library\(lockstep::(\w+)", (root / "src/CMakeLists.txt").read_text()))
umbrella = words(reached("lockstep/lockstep.h", set())) | targets
problems = []
for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
    text = page.read_text()
    own = set()
    for header in re.findall(r"[<`\"](lockstep/[\w/]+\.h)[>`\"]", text):
        reached(header, own)
    known = umbrella | words(own)
    for name in sorted(set(re.findall(r"(?<![\w:])(?:ls|lockstep)::(\w+(?:::\w+)*)", text))):
        missing = [part for part in name.split("::") if part not in known]
        if missing:
            problems.append(f"{page.relative_to(root)}: ls::{name}: no header that lockstep/lockstep.h includes declares {missing[0]}")
sys.exit("\n".join(problems) or 0)
