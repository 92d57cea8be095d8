#!/usr/bin/env python3
"""Lays the pages of the site out in build/docs/source, under the paths that they have in the repository, so that the links between
them hold: those written by hand, those of the API reference and that of the command's help.

Usage: docs/site/pages.py [--command FILE]. FILE is the program `lockstep`, whose help gets a page; without it there is none.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import textwrap

import check_comments
import reference
import symbols

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "docs"
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**/*.md", "examples/*/README.md")
PICTURES = ("docs/**/*.svg",)


def copy_pages(out):
    """The pages that are written by hand, and their pictures."""
    kept = set()
    for pattern in (*PAGES, *PICTURES):
        for file in sorted(ROOT.glob(pattern)):
            name = file.relative_to(ROOT)
            if name.parts[:2] == ("docs", "site"):
                continue
            target = out / name
            kept.add(target)
            if not target.is_file() or target.read_bytes() != file.read_bytes():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
    for old in [f for f in out.rglob("*") if f.suffix in (".md", ".svg") and f not in kept and f.name not in ("index.md", "command.md", "decisions.md")]:
        old.unlink()
    reference.write_if_new(out / "index.md", index(out))
    reference.write_if_new(out / "decisions.md", "# Decisions\n\nWhy some things are as they are.\n\n" + toctree(["docs/decisions/*"], ":glob:"))


def toctree(pages, *options):
    return "\n".join(["```{toctree}", *options, "", *pages, "```", ""])


def index(out):
    """The first page. Pages that it does not name come last, so that none is without a place."""
    text = (ROOT / "docs" / "site" / "index.md").read_text()
    pages = [f.relative_to(out).with_suffix("").as_posix() for f in sorted(out.rglob("*.md"))]
    placed = {line.rpartition("<")[2].rstrip(">") for line in text.splitlines()} | {"index", "decisions", "command"}
    more = [page for page in pages if page not in placed and not page.startswith(("docs/decisions/", "docs/tutorials/", "examples/"))]
    examples = [page for page in pages if page.startswith("examples/")]
    rest = (("Examples", examples), ("More", more))
    return text + "".join("\n" + toctree(named, ":hidden:", f":caption: {caption}") for caption, named in rest if named)


def help_of(command, *verb):
    done = subprocess.run([command, *verb, "--help"], capture_output=True, text=True, timeout=60)
    return (done.stdout or done.stderr).rstrip()


def verbs_of(text):
    """The verbs that the help of the command lists: lines of two spaces and a word."""
    listed = text.partition("Subcommands:")[2].splitlines()
    return [line.split()[0].rstrip(",") for line in listed if line.startswith("  ") and line[2:3].isalpha()]


def write_command_page(out, command):
    main = help_of(command)
    parts = ["# The command lockstep", "", "What `lockstep --help` and the help of its verbs say.", "", fenced(main)]
    for verb in verbs_of(main):
        parts += [f"## lockstep {verb}", "", fenced(help_of(command, verb))]
    reference.write_if_new(out / "command.md", "\n".join(parts))


def fenced(text):
    return f"```text\n{textwrap.dedent(text)}\n```\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--command", type=pathlib.Path, help="The program lockstep.")
    given = parser.parse_args()
    out, projects = BUILD / "source", BUILD / "projects"
    for folder in (out, projects):
        folder.mkdir(parents=True, exist_ok=True)
    copy_pages(out)
    if given.command and given.command.is_file():
        write_command_page(out, given.command)
    elif not (out / "command.md").is_file():
        text = "# The command lockstep\n\n`lockstep --help` says what it does; this site was made without the program.\n"
        reference.write_if_new(out / "command.md", text)
    compounds = symbols.read(BUILD / "doxygen" / "xml")
    symbols.complete(compounds, check_comments.sources(ROOT))
    found = reference.write_pages(ROOT, compounds, out, projects)
    reference.write_if_new(BUILD / "projects.json", json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
