"""The README shows the very program that examples/01_trainer builds, and no page links to, or names, a file that is not there.

Pages of docs/site/ are for the site alone, whose builder checks their links."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
shown = re.search(r"```cpp\n(.*?)```", (root / "README.md").read_text(), re.S).group(1)
built = (root / "examples" / "01_trainer" / "main.cpp").read_text().split("\n", 1)[1]
problems = [] if shown == built else ["README.md and examples/01_trainer/main.cpp differ"]
pages = [root / "README.md", root / "CONTRIBUTING.md", *(page for page in root.glob("docs/**/*.md") if page.parent.name != "site"), root / "tests" / "parity" / "README.md"]
for page in pages:
    for path in re.findall(r"\b(?:apps|examples|include|src|tests|tools)/[\w/]+\.(?:h|cpp|py|sh)\b", page.read_text()):
        if "NAME" not in path and not (root / path).exists():
            problems.append(f"{page.relative_to(root)}: no file {path}")
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.S)):
        if not (page.parent / link).exists():
            problems.append(f"{page.relative_to(root)}: no file {link}")
sys.exit("\n".join(problems) or 0)
