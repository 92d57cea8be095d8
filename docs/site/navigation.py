"""The tree of pages beside each page, resolved once: Sphinx does it anew for each page, which takes minutes with hundreds of them."""
import re

ENTRY = re.compile(r'<li class="toctree-l(\d+)"><a class="reference internal" href="([^"]*)">')


class Navigation:
    """The tree as the first page has it. `way` tells for each of its links which links lead there."""

    def __init__(self, builder, root, options):
        self.html = builder._get_local_toctree(root, **options)
        self.html = re.sub(r'<li class="toctree-l(\d+) current">', r'<li class="toctree-l\1">', self.html)
        self.way, open_entries = {}, []
        for level, link in ENTRY.findall(self.html):
            open_entries = [*open_entries[:int(level) - 1], link]
            self.way.setdefault(link, list(open_entries))

    def seen_from(self, page, link):
        """The tree with the links of `page`, whose own link is `link`."""
        up, way = "../" * page.count("/"), set(self.way.get(link, ()))

        def entry(match):
            level, target = match.groups()
            current = " current" if target in way else ""
            href = "#" if target == link else up + target
            return f'<li class="toctree-l{level}{current}"><a class="{current.strip()} reference internal" href="{href}">'
        return ENTRY.sub(entry, self.html)


def give(app, page, template, context, doctree):
    known = {}

    def toctree(**options):
        key = tuple(sorted(options.items()))
        cache = app.builder.__dict__.setdefault("lockstep_navigation", known)
        if key not in cache:
            cache[key] = Navigation(app.builder, app.config.root_doc, options)
        return cache[key].seen_from(page, app.builder.get_target_uri(page))

    if "toctree" in context:
        context["toctree"] = toctree


def setup(app):
    app.connect("html-page-context", give, priority=100)  # before the theme asks for the tree
    return {"parallel_read_safe": True, "parallel_write_safe": True}
