#!/usr/bin/env python3
"""Reports how the library is divided into files: their sizes, and what makes it hard to find the way among them.

Usage: tools/check_house.py [ROOT] [--before REV] [--modules NAME,NAME] [--journey NAME=FILE,FILE...]
       [--journey-before NAME=FILE,FILE...]

It is a report and not a gate: the exit status is 0 whatever it finds. Files are those of src and include/lockstep. A file
pair is a .cpp with the header of the same name, private or public, and counts as one node of a cycle. A private header's
includers are the files besides its own .cpp, tests among them. A journey is the list of files that, say, a gradient passes;
its hops are the files of the list that exist. With --before, the totals are printed beside
those of the revision REV of git.
"""
import argparse
import collections
import io
import pathlib
import re
import statistics
import subprocess
import tarfile

SHORT_FILE, SHORT_PAIR = 30, 60  # lines
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.M)
CLASS = re.compile(r"^\s*(?:class|struct) (?:LOCKSTEP_API )?(\w+)(?: final)?(?:\s*:\s*([^{;]*))?\s*\{", re.M)
MUTABLE_STATE = re.compile(r"(?<!const )\b(?:RunState|TrainerState)\s*&(?!&)")  # RunState: in revisions before it was divided


def read_tree(root):
    files = [p for d in ("src", "include/lockstep", "tests") for p in (root / d).rglob("*") if p.suffix in (".h", ".cpp")]
    return {str(p.relative_to(root)): p.read_text() for p in files}


def read_revision(root, revision):
    packed = subprocess.run(["git", "-C", str(root), "archive", revision, "src", "include", "tests"], check=True, capture_output=True)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as tar:
        return {m.name: tar.extractfile(m).read().decode() for m in tar if m.isfile() and m.name.endswith((".h", ".cpp"))}


def inner_path(path):
    """The path below src or include/lockstep, which a public and a private file may share."""
    return re.sub(r"^(src|include/lockstep)/", "", path)


def module_of(path):
    inner = inner_path(path)
    return inner.split("/")[0] if "/" in inner else "lockstep"


def node_of(path):
    return inner_path(path).rsplit(".", 1)[0]


def folder_of(path):
    """The subfolder of a module that the file is in; None where it is in the module's own folder."""
    parts = inner_path(path).split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else None


def includes_of(tree):
    """For each file, which files of the tree it includes."""
    found = {}
    for path, text in tree.items():
        folder = path.rsplit("/", 1)[0]
        choices = [(f"src/{h}", f"include/{h}", f"{folder}/{h}") for h in INCLUDE.findall(text)]
        found[path] = {c for names in choices for c in names if c in tree}
    return found


def components(graph):
    """Strongly connected components of more than one node (Tarjan)."""
    index, low, stack, on_stack, found = {}, {}, [], set(), []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on_stack.add(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on_stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = []
            while not component or component[-1] != node:
                component.append(stack.pop())
                on_stack.discard(component[-1])
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted(found, key=len, reverse=True)


def cycles(includes, key, is_inside=lambda a, b: True):
    """Cycles of what `key` makes of the files of the library, over the includes that `is_inside` keeps."""
    graph = collections.defaultdict(set)
    for path, others in includes.items():
        for other in others:
            if not path.startswith("tests/") and key(path) != key(other) and is_inside(path, other):
                graph[key(path)].add(key(other))
    return components(graph)


def bodies(text):
    """Name, bases and body of each class of the text."""
    for match in CLASS.finditer(text):
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        yield match.group(1), re.findall(r"(\w+)(?:<[^<>]*>)?\s*(?:,|$)", match.group(2) or ""), text[match.end():end]


def lone_subclasses(tree):
    """Classes with virtual functions of their own that exactly one class of the library derives from."""
    virtual, derived = {}, collections.Counter()
    for path, text in tree.items():
        for name, bases, body in bodies(re.sub(r"//.*", "", text)):
            derived.update(set(bases))
            if re.search(r"\bvirtual\b", body):
                virtual[name] = path
    return [f"{name} ({path})" for name, path in sorted(virtual.items()) if derived[name] == 1]


class Report:
    """What is measured of one tree."""

    def __init__(self, tree, modules):
        includes = includes_of(tree)
        library = {p: t for p, t in tree.items() if not p.startswith("tests/") and (not modules or module_of(p) in modules)}
        self.lines = {p: t.count("\n") for p, t in library.items()}
        includers = collections.Counter(other for path, others in includes.items() for other in others
                                        if node_of(path) != node_of(other))
        self.lone_headers = sorted(p for p in library if p.startswith("src/") and p.endswith(".h") and includers[p] <= 1)
        own_header = {p: [h for h in (p[:-3] + "h", f"include/lockstep/{inner_path(p)[:-3]}h") if h in library]
                      for p in library if p.endswith(".cpp")}
        pairs = {(p, h[0]): self.lines[p] + self.lines[h[0]] for p, h in own_header.items() if h}
        self.short_pairs = sorted((size, *pair) for pair, size in pairs.items() if size < SHORT_PAIR)
        self.file_cycles = [c for c in cycles(includes, node_of) if not modules or c[0].split("/")[0] in modules]
        in_one_module = lambda a, b: module_of(a) == module_of(b) and folder_of(a) and folder_of(b)
        in_module = cycles(includes, folder_of, in_one_module)
        self.folder_cycles = [c for c in in_module if not modules or c[0].split("/")[0] in modules]
        self.lone_subclasses = lone_subclasses(library)
        self.mutable_state = sum(len(MUTABLE_STATE.findall(t)) for t in library.values())

    def sizes(self, module=None):
        lines = sorted(n for p, n in self.lines.items() if module in (None, module_of(p)))
        if not lines:
            return (0, 0, 0, 0, 0)
        p90 = lines[min(len(lines) - 1, round(0.9 * len(lines)))]
        return (len(lines), sum(lines), round(statistics.median(lines)), p90, sum(n < SHORT_FILE for n in lines))

    def totals(self):
        sizes = self.sizes()
        return {"files": sizes[0], "lines": sizes[1], "median of lines": sizes[2], "p90 of lines": sizes[3],
                f"files below {SHORT_FILE} lines": sizes[4], "private headers with one includer": len(self.lone_headers),
                f"pairs below {SHORT_PAIR} lines": len(self.short_pairs), "cycles between files": len(self.file_cycles),
                "files in the largest cycle": max(map(len, self.file_cycles), default=0),
                "cycles between subfolders of a module": len(self.folder_cycles),
                "classes with one subclass": len(self.lone_subclasses), "mutable references to TrainerState": self.mutable_state}


def journeys(texts, tree):
    """Hops of each journey, by name."""
    named = dict(text.split("=", 1) for text in texts)
    return {f"hops of '{name}'": sum(f in tree for f in files.split(",")) for name, files in named.items()}


def print_list(title, rows):
    print(f"\n{title}: {len(rows)}")
    for row in rows:
        print(f"  {row}")


def print_report(report):
    print(f"{'module':12} {'files':>6} {'lines':>6} {'median':>6} {'p90':>6} {'<' + str(SHORT_FILE):>6}")
    for module in [*sorted({module_of(p) for p in report.lines}), None]:
        print(f"{module or 'total':12} " + " ".join(f"{n:6}" for n in report.sizes(module)))
    print_list("Private headers with one includer", report.lone_headers)
    print_list(f"Pairs below {SHORT_PAIR} lines", [f"{size:3} {header} {source}" for size, source, header in report.short_pairs])
    print_list("Cycles between files", [f"{len(c)}: {' '.join(c)}" for c in report.file_cycles])
    print_list("Cycles between subfolders of a module", [" ".join(c) for c in report.folder_cycles])
    print_list("Classes with virtual functions and one subclass", report.lone_subclasses)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent)
    parser.add_argument("--before", metavar="REV", help="Print the totals of this revision beside those of today.")
    parser.add_argument("--modules", default="", help="Modules to report on, separated by commas; all if empty.")
    parser.add_argument("--journey", action="append", default=[], metavar="NAME=FILES", help="Files that a thing passes.")
    parser.add_argument("--journey-before", action="append", default=[], metavar="NAME=FILES", help="The same at REV.")
    given = parser.parse_args()
    modules = set(filter(None, given.modules.split(",")))
    tree = read_tree(given.root)
    now = Report(tree, modules)
    totals = now.totals() | journeys(given.journey, tree)
    if not given.before:
        print_report(now)
        print("\n" + "\n".join(f"{name:40} {value:7}" for name, value in totals.items()))
        return
    old_tree = read_revision(given.root, given.before)
    old = Report(old_tree, modules).totals() | journeys(given.journey_before or given.journey, old_tree)
    print(f"{'':40} {'before':>7} {'after':>7}")
    for name, value in totals.items():
        print(f"{name:40} {old.get(name, ''):7} {value:7}")


if __name__ == "__main__":
    main()
