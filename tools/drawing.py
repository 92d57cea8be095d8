"""Pictures of docs/ as SVG: boxes, texts and arrows in one style, readable on light and dark pages, of which nothing is cut off."""
from html import escape

MARGIN = 16  # pixels, as all numbers here
LINE = 18
STYLE = """text { font: 14px system-ui, "DejaVu Sans", sans-serif; fill: #1f2328; }
.code { font: 12px ui-monospace, "DejaVu Sans Mono", monospace; }
.small { font-size: 12px; fill: #57606a; }
.middle { text-anchor: middle; }
.end { text-anchor: end; }
.strong { font-weight: 600; }
rect { rx: 6px; stroke: #57606a; fill: #ffffff; }
.a { fill: #ddf4ff; }
.b { fill: #fff1c2; }
.c { fill: #dafbe1; }
.empty { fill: none; stroke-dasharray: 3 3; }
.frame { fill: none; stroke: #8c959f; }
.ground { fill: #ffffff; stroke: none; rx: 0; }
path { fill: none; stroke: #57606a; stroke-width: 1.5; }
path.head { fill: #57606a; stroke: none; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.small { fill: #9198a1; }
rect { stroke: #9198a1; fill: #161b22; }
.a { fill: #0c3a5f; }
.b { fill: #4d3800; }
.c { fill: #0f3d20; }
.empty, .frame { fill: none; }
.ground { fill: #0d1117; stroke: none; }
path { stroke: #9198a1; }
path.head { fill: #9198a1; }
}"""


def width_of(text, kind=""):
    """At most so wide is a text, whatever the font: of those with equal letters nearly exactly."""
    return len(text) * (7.3 if "code" in kind else 7.0 if "small" in kind else 8.2)


class Drawing:
    """Grows with what is put on it."""

    def __init__(self, title):
        self.title, self.parts, self.right, self.bottom = title, [], 0.0, 0.0

    def reach(self, x, y):
        self.right, self.bottom = max(self.right, x), max(self.bottom, y)

    def box(self, x, y, width, height, kind=""):
        self.reach(x + width, y + height)
        attribute = f' class="{kind}"' if kind else ""
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"{attribute}/>')

    def text(self, x, y, text, kind=""):
        wide = width_of(text, kind)
        self.reach(x + (wide / 2 if "middle" in kind else 0 if "end" in kind else wide), y + 4)
        attribute = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}"{attribute}>{escape(str(text))}</text>')

    def arrow(self, *points):
        """A line through points (x, y), with a head at the last one, which is reached in one direction of the page."""
        (x0, y0), (x, y) = points[-2:]
        dx, dy = (x > x0) - (x < x0), (y > y0) - (y < y0)
        ends = [*points[:-1], (x - 5 * dx, y - 5 * dy)]
        self.reach(max(p[0] for p in points), max(p[1] for p in points))
        self.parts.append(f'<path d="M{" L".join(f"{a:g} {b:g}" for a, b in ends)}"/>')
        left, right = (x - 8 * dx - 4 * dy, y - 8 * dy - 4 * dx), (x - 8 * dx + 4 * dy, y - 8 * dy + 4 * dx)
        self.parts.append(f'<path class="head" d="M{x:g} {y:g} L{left[0]:g} {left[1]:g} L{right[0]:g} {right[1]:g} Z"/>')

    def svg(self):
        width, height = round(self.right) + MARGIN, round(self.bottom) + MARGIN
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
        ground = f'<rect class="ground" width="{width}" height="{height}"/>'
        return "\n".join([head, f"<title>{escape(self.title)}</title>", f"<style>{STYLE}</style>", ground, *self.parts, "</svg>"]) + "\n"
