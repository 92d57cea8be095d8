#!/usr/bin/env python3
"""Draws the modules by level, as tools/check_layers.py has them, into docs/levels.svg.

Usage: tools/draw_levels.py [--check]. With --check it writes nothing: exit status 1 if the picture is not that of the table.
"""
import pathlib
import sys

from check_layers import LEVELS, TORCH_FREE
from generated import write_or_check

PICTURE = pathlib.Path(__file__).parent.parent / "docs" / "levels.svg"
BOX_WIDTH, BOX_HEIGHT, GAP, MARGIN = 100, 34, 14, 16  # pixels

STYLE = """text { font: 14px system-ui, sans-serif; fill: #1f2328; text-anchor: middle; }
.level { fill: #656d76; font-size: 12px; text-anchor: start; }
rect { rx: 6px; stroke: #57606a; fill: #ddf4ff; }
rect.torch-free { fill: #ffffff; }
.ground { fill: #ffffff; stroke: none; rx: 0; }"""


def text_at(x, y, text, kind=""):
    attribute = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}"{attribute}>{text}</text>'


def box(module, x, y):
    kind = ' class="torch-free"' if module in TORCH_FREE else ""
    yield f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}"{kind}/>'
    yield text_at(x + BOX_WIDTH // 2, y + 22, module)


def picture():
    width = 2 * MARGIN + 24 + max(map(len, LEVELS)) * (BOX_WIDTH + GAP)
    height = 2 * MARGIN + len(LEVELS) * (BOX_HEIGHT + GAP) + 20
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    yield f"<style>{STYLE}</style>"
    yield f'<rect class="ground" width="{width}" height="{height}"/>'
    for number, level in enumerate(LEVELS, 1):
        y = MARGIN + (len(LEVELS) - number) * (BOX_HEIGHT + GAP)
        yield text_at(MARGIN, y + 22, number, "level")
        for place, module in enumerate(level):
            yield from box(module, MARGIN + 24 + place * (BOX_WIDTH + GAP), y)
    legend = "A module includes only modules of lower levels. White: does not include LibTorch."
    yield text_at(MARGIN, height - MARGIN, legend, "level")
    yield "</svg>"


if __name__ == "__main__":
    sys.exit(write_or_check(PICTURE, "\n".join(picture()) + "\n"))
