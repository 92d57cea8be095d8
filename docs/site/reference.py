"""Writes the pages of the API reference: one a public header, for which Breathe gets a small project of its own (it reads all files of
a project for each of its directives, which takes minutes for one project of all headers)."""
import copy
import pathlib
import re
import shutil
import sys
import xml.etree.ElementTree as ElementTree

import symbols
from symbols import element

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from check_layers import LEVELS  # noqa: E402
from list_files import first_sentence  # noqa: E402


def write_if_new(path, text):
    """Leaves the file, and thus its time, alone where it has the text, so that Sphinx reads again only what changed."""
    if path.is_file() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def project_of(header):
    """Name of Breathe's project for a header such as lockstep/comm/init.h."""
    return header.removesuffix(".h").replace("/", ".")


def page_of(header):
    """Name of its page, below api/."""
    return header.removeprefix("lockstep/").removesuffix(".h")


class Reference:
    """All that is public, by header."""

    def __init__(self, compounds):
        self.compounds = compounds
        self.parts = {}  # header -> [(line, kind, node)]
        for compound in compounds.values():
            scope, kind = compound.findtext("compoundname"), compound.get("kind")
            if not symbols.is_within(scope) or kind not in symbols.COMPOUNDS:
                continue
            if kind == "namespace":
                for member in symbols.join_overloads([copy.deepcopy(member) for member in symbols.members(compound)]):
                    self._add(member, "member", scope)
            elif not self._outer(scope):
                self._add(compound, "class" if kind != "concept" else "concept")

    def _add(self, node, kind, scope=""):
        file, line = symbols.location(node)
        if kind == "member":
            node.find("name").text = f"{scope}::{node.findtext('name')}"
        self.parts.setdefault(file, []).append((line, kind, node))

    def _outer(self, scope):
        """Whether the class is one of another class."""
        parent = re.sub(r"::[^:<>]*(<.*>)?$", "", scope)
        return any(c.get("kind") in ("class", "struct") and c.findtext("compoundname") == parent for c in self.compounds.values())

    def write(self, header, projects):
        """Breathe's project of a header; returns the lines of its page that show it."""
        folder, names, lines = projects / project_of(header), [], []
        for line, kind, node in sorted(self.parts.get(header, []), key=lambda part: part[0]):
            if kind == "concept":
                lines += concept(node)
                continue
            name = f"part{len(names)}.h"
            names.append(name)
            lines += [f".. doxygenfile:: {name}", f"   :project: {project_of(header)}", ""]
            self._write_part(folder, name, kind, node)
        index = element("doxygenindex", *(element("compound", element("name", text=name), refid=name[:-2], kind="file") for name in names))
        write_if_new(folder / "index.xml", as_text(index))
        return lines

    def _write_part(self, folder, name, kind, node):
        file = element("compounddef", element("compoundname", text=name), id=name[:-2], kind="file")
        if kind == "member":
            section = element("sectiondef", node, kind="user-defined")
            wrapper = element("compounddef", section)
            symbols.make_readable(wrapper)
            file.append(section)
            place(node, name)
        else:
            file.append(element("innerclass", text=node.findtext("compoundname"), refid=node.get("id"), prot="public"))
            self._write_class(folder, name, node)
        file.extend([element("briefdescription"), element("detaileddescription"), element("location", file=name)])
        write_if_new(folder / f"{name[:-2]}.xml", as_text(element("doxygen", file)))

    def _write_class(self, folder, name, node):
        made = copy.deepcopy(node)
        for tag in ("includes", "inheritancegraph", "collaborationgraph", "listofallmembers"):
            for child in made.findall(tag):
                made.remove(child)
        symbols.make_readable(made)
        place(made, name)
        write_if_new(folder / f"{node.get('id')}.xml", as_text(element("doxygen", made)))
        for inner in node.findall("innerclass"):
            if inner.get("prot") != "private" and inner.get("refid") in self.compounds:
                self._write_class(folder, name, self.compounds[inner.get("refid")])


def place(node, name):
    for part in node.iter("location"):
        part.set("file", name)
        part.attrib.pop("bodyfile", None)


def as_text(node):
    return "<?xml version='1.0' encoding='UTF-8'?>\n" + ElementTree.tostring(node, encoding="unicode") + "\n"


def concept(node):
    text = "".join(part for tag in symbols.DESCRIPTIONS for part in (node.find(tag).itertext() if node.find(tag) is not None else ()))
    parameters = ", ".join("".join(p.itertext()).strip() for p in node.iterfind("templateparamlist/param/type"))
    return [f".. cpp:concept:: template<{parameters}> {node.findtext('compoundname')}", "", f"   {' '.join(text.split())}", ""]


def title(text, line):
    return [text, line * len(text), ""]


def comment_at_top(path):
    """What a header begins with, as paragraphs."""
    lines = []
    for line in path.read_text().splitlines():
        if not line.startswith("//"):
            break
        lines.append(line.removeprefix("//").removeprefix(" "))
    paragraphs, code = [], []
    for line in [*lines, ""]:
        if line.startswith("  ") and line.strip():
            code.append(line)
            continue
        if code:
            paragraphs += ["", ".. code-block:: cpp", "", *(f" {row}" for row in code), ""]
            code = []
        paragraphs.append(rst(line))
    return "\n".join(paragraphs)


def modules(root):
    """What each module is, from the table in docs/architecture.md."""
    rows = re.findall(r"^\| \d \| `(\w+)` \| (.*) \|$", (root / "docs" / "architecture.md").read_text(), re.M)
    return {module: rst(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)) for module, text in rows}


def write_pages(root, compounds, out, projects):
    """Pages of all headers and modules below out/api. Returns Breathe's projects."""
    reference, found, wanted = Reference(compounds), {}, set()
    public = root / "include"
    overview = [*title("API reference", "="),
                "Every public header, by module, from the lowest level up (:doc:`docs/architecture </docs/architecture>`). A program",
                "includes ``<lockstep/lockstep.h>``, which includes all that a training needs.", "", ".. list-table::", "   :widths: 15 85", ""]
    said, tree_of_modules = modules(root), [".. toctree::", "   :hidden:", ""]
    for module in [m for level in LEVELS for m in level if (public / "lockstep" / m).is_dir()]:
        page = title(module, "=")
        table = [".. list-table::", "   :widths: 40 60", ""]
        tree = [".. toctree::", "   :hidden:", ""]
        for file in sorted((public / "lockstep" / module).rglob("*.h")):
            header = file.relative_to(public).as_posix()
            if "formerly" in first_sentence(file) or "former name" in first_sentence(file):
                table += [f"   * - ``{header.removeprefix(f'lockstep/{module}/')}``", f"     - {rst(first_sentence(file))}"]
                continue
            table += [f"   * - :doc:`{header.removeprefix(f'lockstep/{module}/')} </api/{page_of(header)}>`", f"     - {rst(first_sentence(file))}"]
            tree.append(f"   {header.removeprefix(f'lockstep/{module}/')} </api/{page_of(header)}>")
            lines = reference.write(header, projects)
            text = [*title(header.removeprefix("lockstep/"), "="), f"``#include <{header}>`` (:repository-file:`include/{header}`)", "",
                    comment_at_top(file), "", *lines]
            write_if_new(out / "api" / f"{page_of(header)}.rst", "\n".join(text))
            wanted.add(out / "api" / f"{page_of(header)}.rst")
            found[project_of(header)] = str(projects / project_of(header))
        write_if_new(out / "api" / f"{module}.rst", "\n".join([*page, *table, "", *tree, ""]))
        wanted.add(out / "api" / f"{module}.rst")
        overview += [f"   * - :doc:`{module} </api/{module}>`", f"     - {said.get(module, '')}"]
        tree_of_modules.append(f"   {module} </api/{module}>")
    write_if_new(out / "api" / "index.rst", "\n".join([*overview, "", *tree_of_modules, ""]))
    wanted.add(out / "api" / "index.rst")
    for old in set((out / "api").rglob("*.rst")) - wanted:
        old.unlink()
    for old in [p for p in projects.iterdir() if p.name not in found]:
        shutil.rmtree(old)
    return found


def rst(text):
    """Text of a comment as reStructuredText, in which code is marked by two backticks."""
    text = text.replace("\\|", "|").replace("&lt;", "<")
    pieces = re.split(r"(`[^`]+`)", text)
    return "".join(f"`{piece}`" if piece.startswith("`") else re.sub(r"([*|_\\])", r"\\\1", piece) for piece in pieces)
