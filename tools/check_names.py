#!/usr/bin/env python3
"""Checks that names in anonymous namespaces differ within a folder, and within a library's folders of few files, which are
compiled together (docs/decisions/005), and those of types and inline functions elsewhere within a program: two of a name,
which no file sees together, would pass for one.

Usage: tools/check_names.py [ROOT]. Prints file:line and the other place; exit status 1 if any. Reads what clang-format
has laid out: definitions at namespace scope start in the first column. Overloads of a function may share its name,
unless defaults make them alike.
"""
import functools
import pathlib
import re
import sys

ANONYMOUS = "{}"
NAMESPACE = re.compile(r"(?:inline )?namespace\s*([\w:]*)\s*\{$")
ALIAS = re.compile(r"using\s+(?:(\w+)\s*=|[\w:]*::(\w+);)")
TYPE = re.compile(r"(?:struct|class|enum class|enum|union)\s+(\w+)(?!\w|::)[^;()]*(?:\{.*|;)$|(?:TEST|TEST_F|TEST_P)\((\w+, \w+)\)")
MODULE = re.compile(r"TORCH_MODULE(?:_IMPL)?\((\w+)")  # which defines a class of that name
CONSTANT = re.compile(r"(?:inline |static |thread_local )*(?:constexpr|const|auto|[\w:]+(?:<.*>)?)\s[\w:<>,\s*&]*?\b(\w+)(?:\[.*?\])?(?:\s*=|\{|;)")
INNER_CONSTANT = re.compile(r"\s+(?:static )?constexpr\s.*?\b(k[A-Z]\w*)(?:\[.*?\])?(?:\s*=|\{)")
FUNCTION = re.compile(r"[\w:<>,&*\s\[\]\"().]*?\b(\w+)\((.*)\)[^()]*\{")


def lines_of(text):
    """Numbered lines without comments, those of an unfinished definition joined to its first."""
    pending, start = "", 0
    lines = [re.sub(r"\s*//.*", "", line).rstrip() for line in text.splitlines()]
    for number, (line, following) in enumerate(zip(lines, lines[1:] + [""]), 1):
        if pending:
            pending += " " + line.strip()
        elif line and not line[0].isspace() and line[0] != "#":
            pending, start = line, number
        is_begun = pending.endswith(")") and re.match(r"\s+\S", following)  # a constructor, before what it initializes
        if pending and pending[-1] in "{;})" and pending.count("(") <= pending.count(")") and not is_begun:
            yield start, pending
            pending = ""


def parameter_types(parameters):
    """As text, those with a default behind a "?"."""
    parameters = re.sub(r"\b\w+::", "", parameters)
    return ", ".join(re.sub(r"\s*\b\w+(\s*=.*)?$", r"", each) + "?" * ("=" in each) for each in parameters.split(", "))


def is_clash(first, second):
    """Of two things of one name: each its alias, and the parameters if it is a function."""
    if len(first) == len(second) == 2:
        return may_be_called_alike(first[1], second[1])
    if first[0] == second[0]:
        return first[0] is None
    return len(first) == len(second)  # a using-declaration may bring functions to which others are added


def may_be_called_alike(first, second):
    """Whether there is a number of arguments that both take, of the same types."""
    one, two = ([each for each in text.split(", ") if each] for text in (first, second))
    least = max(sum(not each.endswith("?") for each in types) for types in (one, two))
    return any([each.rstrip("?") for each in one[:count]] == [each.rstrip("?") for each in two[:count]]
               for count in range(least, min(len(one), len(two)) + 1))


@functools.cache
def names(file):
    """For each definition its line, its name with the namespaces around it, and, where it may be repeated, its text.

    Outside of anonymous namespaces types, and functions that several files may define.
    """
    return [*names_of(file.read_text())]


def names_of(text):
    spaces = []  # None: a definition
    for number, line in lines_of(text):
        line = re.sub(r"<([^()<>]*)\(([^()]*)\)>", r"<\1 of \2>", line)  # a std::function, whose "(" begins no parameters
        opened = NAMESPACE.match(line)
        if opened:
            spaces.append(opened.group(1) or ANONYMOUS)
            continue
        if line.startswith("} catch"):
            continue  # of a function that is a try block
        if re.match("TORCH_LIBRARY|INSTANTIATE_TEST_SUITE_P", line):
            line.endswith("{") and spaces.append(None)  # a macro that makes a name of its own each time
            continue
        if line.startswith("}"):
            spaces and spaces.pop()
            continue
        if None not in spaces and ANONYMOUS not in spaces:
            definition = re.sub(r"^template <.*?>\s+(?=\w)", "", line).replace("LOCKSTEP_API ", "")
            where = "::".join(spaces)
            is_specialized = "<" in definition.split("{")[0].split("(")[0].split(":")[0]
            if found := MODULE.match(line):
                yield number, (where, found.group(1)), None
            elif "{" in line and not is_specialized and (found := TYPE.match(definition)):
                yield number, (where, next(filter(None, found.groups()))), None
            elif re.match("(template|inline|constexpr)", line) and (found := FUNCTION.match(definition)):
                yield number, (where, found.group(1), parameter_types(found.group(2))), None
        elif None not in spaces and not re.match("using namespace |namespace ", line):
            where = "::".join(spaces)
            definition = re.sub(r"^template <.*?>\s+(?=\w)", "", line)
            if found := MODULE.match(line):
                yield number, (where, found.group(1)), None
            elif found := ALIAS.match(definition):
                yield number, (where, found.group(1) or found.group(2)), re.sub(r"\w+::|using|\w+ =| ", "", line)
            elif found := TYPE.match(definition):
                yield number, (where, next(filter(None, found.groups()))), None
            elif found := FUNCTION.match(definition):
                yield number, (where, found.group(1), parameter_types(found.group(2))), None
            elif found := CONSTANT.match(definition):
                yield number, (where, found.group(1)), None
        if line.endswith("{"):
            spaces.append(None)


def listed(root, command, folders=("src", "tests")):
    """Files that the CMakeLists.txt of the folders give to `command`, a pattern."""
    for cmake in sorted(f for d in folders for f in (root / d).glob("*/CMakeLists.txt")):
        for files in re.findall(command + r" SOURCES([^)]*)", cmake.read_text()):
            yield from (cmake.parent / name for name in files.split() if (cmake.parent / name).is_file() and name.endswith(".cpp"))


def united(root):
    """Files that are compiled together with others of their folder."""
    yield from (file for folder in ("apps/lockstep", "tests/fuzz") for file in sorted((root / folder).glob("*.cpp")))
    yield from listed(root, r"lockstep_(?:module\(\w+(?: TORCH_FREE)?|tests\(\w+)")


FEW = 12  # half of LOCKSTEP_FILES_AT_ONCE
LIBRARIES = [("src", r"lockstep_module\(\w+ TORCH_FREE"), ("src", r"lockstep_module\(\w+"),
             ("tests", r"lockstep_tests\(core"), ("tests", r"lockstep_tests\(torch")]


def compiled_together(root):
    """Lists of files that share a unit, or would with one file more or less."""
    folders = {}
    for file in united(root):
        folders.setdefault(file.relative_to(root).parts[:2], []).append(file)
    yield from folders.values()
    for folder, command in LIBRARIES:
        of_library = {}
        for file in listed(root, command, [folder]):
            of_library.setdefault(file.relative_to(root).parts[1], []).append(file)
        yield [file for files in of_library.values() if len(files) <= FEW for file in files]


def programs(root):
    """The library's files with those of each program of tests; what else is in a folder counts as one program."""
    library = [f for d in ("src", "include") for f in (root / d).glob("**/*") if f.suffix in (".h", ".cpp")]
    headers = [*root.glob("tests/*/*.h")]
    tests = [set(listed(root, rf"lockstep_tests\({kind}")) for kind in ("core", "torch")]
    rest = [set(folder.glob("*.cpp")).difference(*tests) for folder in (root / "tests").iterdir()]
    return [library] + [library + headers + [*files] for files in tests] + [library + [*files] for files in rest]


def definitions_of_one_name(root):
    for files in programs(root):
        seen = {}
        for file in sorted(files):
            for number, name, _ in names(file):
                other = seen.setdefault(name, (file, number))
                if ANONYMOUS not in name[0] and other[0] != file:
                    yield f"{file.relative_to(root)}:{number}: {name[1]} is also in {other[0].relative_to(root)}:{other[1]}"


@functools.cache
def includes(root, file):
    """The headers of ours that `file` names itself."""
    found = re.findall(r'^#include [<"](.*?)[">]', file.read_text(), re.M)
    return [path for name in found for folder in ("src", "include", "tests", file.parent) if (path := root / folder / name).is_file()]


def reached(root, files):
    seen, left = set(), [*files]
    while left:
        new = set(includes(root, left.pop())) - seen
        seen |= new
        left += new
    return seen


def hidden_types(root):
    """Names in anonymous namespaces that others of the folder would take for a type of a header, or the other way round."""
    folders = {}
    for file in united(root):
        folders.setdefault(file.parent, []).append(file)
    for files in folders.values():
        types = {name: (header, number) for header in reached(root, files) for number, name, _ in names(header)
                 if len(name) == 2 and ANONYMOUS not in name[0]}
        for file in files:
            for number, name, alias in names(file):
                spaces = name[0].split("::")
                if ANONYMOUS not in spaces or len(name) != 2 or alias is not None:
                    continue
                for outer in range(1, len(spaces)):
                    if other := types.get(("::".join(spaces[:outer]), name[1])):
                        yield f"{file.relative_to(root)}:{number}: {name[1]} is also in {other[0].relative_to(root)}:{other[1]}"


def clashes(root, files):
    seen, inner = {}, []
    for file in files:
        for number, name, alias in names(file):
            if ANONYMOUS not in name[0]:
                continue
            others = seen.setdefault(name[:2], [])
            other = next((other for other in others if other[0] != file and is_clash(other[2:], (alias, *name[2:]))), None)
            others.append((file, number, alias, *name[2:]))
            if other:
                yield f"{file.relative_to(root)}:{number}: {name[1]} is also in {other[0].relative_to(root)}:{other[1]}"
        inner += [(file, number, found.group(1)) for number, line in enumerate(file.read_text().splitlines(), 1)
                  if (found := INNER_CONSTANT.match(line))]
    outer = {name: places[0] for (_, name), places in seen.items()}
    for file, number, name in inner:
        other = outer.get(name, (file,))
        if other[0] != file:
            yield f"{file.relative_to(root)}:{number}: {name} hides that of {other[0].relative_to(root)}:{other[1]}"


def problems(root):
    yield from sorted(set(definitions_of_one_name(root)))
    yield from hidden_types(root)
    yield from dict.fromkeys(found for files in compiled_together(root) for found in clashes(root, files))


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    found = list(problems(root))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
