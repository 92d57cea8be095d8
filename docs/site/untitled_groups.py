"""Leaves out the titles that Breathe gives to functions and types outside of classes, which stand in the order of their header."""
from docutils import nodes


def leave_out(app, doctree):
    for title in list(doctree.findall(nodes.rubric)):
        if "breathe-section-title-unnamed-group" in title["ids"]:
            title.parent.remove(title)


def setup(app):
    app.connect("doctree-read", leave_out)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}
