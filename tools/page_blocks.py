#!/usr/bin/env python3
"""The code blocks of a page, and the program that is made of them: page_blocks.py PAGE OUT.cpp

Each fenced block of a page says in the line above its fence what is to be done with it, <!-- block: KIND -->:

  from FILE        It is lines of FILE, a path from the root, as they stand there.
  top              It is declarations of the page's program.
  each             It is bodies of functions of the page's program; a blank line begins another one.
  each, then CODE  The same; each body ends with CODE. By default the page's train() is called for the Trainer or Fabric that it makes.
  shell            It is commands, one after the other.
  shell, together  It is a command that runs at the same time as those of the next block, if that says the same.
  shell, shown     It is commands that no test can run: the text around it says why.
  file NAME        It is a file NAME for the commands and bodies that follow.
  output           It is what the commands before it print; `...` stands for any text.

A block without such a line is an error."""
import dataclasses
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
KIND = re.compile(r"<!-- block: (from|top|each|shell|file|output)(?:,? (.*))? -->$")
TRIES = {"ls::Trainer trainer": "train(trainer);", "ls::Fabric fabric": "train(fabric);"}

# What runs where a machine has no GPUs, and in the time of a test: simulated devices (tests/sim), of which there are four, two
# ranks for many, two nodes of one rank for many nodes.
STAND_INS_IN_CODE = [
    (re.compile(r'"(?:gpu|cuda)"'), '"sim"'),
    (re.compile(r"\.devices = \d+(?=.*\.num_nodes = )", re.S), ".devices = 1"),
    (re.compile(r"\.devices = [3-9]\d*"), ".devices = 2"),
    (re.compile(r"\.num_nodes = \d+"), ".num_nodes = 2"),
]
STAND_INS_IN_COMMANDS = [
    (re.compile(r"(?<=accelerator )(?:gpu|cuda)\b"), "sim"),
    (re.compile(r"(?<=devices )\d+(?=.*num_nodes )"), "1"),
    (re.compile(r"(?<=devices )[3-9]\d*"), "2"),
    (re.compile(r"(?<=num_nodes )\d+"), "2"),
]


@dataclasses.dataclass
class Block:
    page: pathlib.Path
    line: int  # of its first line of code, from 1
    language: str
    kind: str
    rest: str
    text: str
    number: int  # in its page, from 1

    def place(self):
        return f"{self.page.name}:{self.line}"

    def bodies(self):
        """The alternatives of an `each` block: (line, text), without comments that begin no code."""
        found = []
        for match in re.finditer(r"(?:[^\n]+\n)+", self.text):
            if re.search(r"^\s*[^/\s]", match[0], re.M):
                found.append((self.line + self.text[: match.start()].count("\n"), match[0]))
        return found

    def commands(self):
        """The commands of a `shell` block; a line that ends with a backslash goes on."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


class PageError(Exception):
    pass


def blocks_of(page):
    """The blocks of a page, in order. Raises PageError for one that does not say what it is."""
    page = pathlib.Path(page)
    found, lines = [], page.read_text().splitlines()
    start = None
    for index, line in enumerate(lines):
        fence = re.match(r"\s*```(\w*)$", line)
        if fence is None:
            continue
        if start is None:
            start, language = index, fence[1]
            continue
        kind = KIND.match(lines[start - 1].strip()) if start else None
        if kind is None:
            raise PageError(f"{page.name}:{start + 1}: a block in no program; expected a line <!-- block: ... --> above it")
        text = "".join(code + "\n" for code in lines[start + 1 : index])
        found.append(Block(page, start + 2, language, kind[1], kind[2] or "", text, len(found) + 1))
        start = None
    return found


def with_stand_ins(text, table):
    for pattern, replacement in table:
        text = pattern.sub(replacement, text)
    return text


def variants(block):
    """The functions of an `each` block: (name, line, body). A name that ends with + has stand-ins."""
    for number, (line, text) in enumerate(block.bodies(), 1):
        tail = block.rest.removeprefix("then ") if block.rest.startswith("then ") else None
        if tail is None:
            tail = " ".join(code for made, code in TRIES.items() if made in text)
        body = text + f"  {tail}\n"
        yield f"{block.number}.{number}", line, body
        stand_in = with_stand_ins(body, STAND_INS_IN_CODE)
        if stand_in != body:
            yield f"{block.number}.{number}+", line, stand_in


def program_of(page):
    """The source of the page's program. Functions have the names of their blocks in its table."""
    where = pathlib.Path(page).resolve().relative_to(ROOT)
    source = [f"// Made of {where} by tools/page_blocks.py.", '#include "tutorials/page_program.h"', ""]
    table = []
    for block in blocks_of(page):
        if block.kind == "top":
            source += [f'#line {block.line} "{where}"', block.text]
        if block.kind != "each":
            continue
        for name, line, body in variants(block):
            function = "block_" + name.replace(".", "_").replace("+", "_with_stand_ins")
            source += [f"static void {function}() {{", f'#line {line} "{where}"', body + "}", ""]
            table.append(f'    {{"{name}", {function}}},')
    source += ["int main(int argc, char** argv) {", "  return run_page(argc, argv, {", *table, "  }, train);", "}", ""]
    return "\n".join(source)


if __name__ == "__main__":
    try:
        pathlib.Path(sys.argv[2]).write_text(program_of(sys.argv[1]))
    except PageError as error:
        sys.exit(str(error))
