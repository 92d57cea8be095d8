"""Makes links to files of the repository that are no pages of the site work: each such file gets a page that shows it."""
import pathlib
import posixpath

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxRole

ROOT = pathlib.Path(__file__).resolve().parents[2]
LANGUAGES = {".h": "cpp", ".cpp": "cpp", ".py": "python", ".sh": "bash", ".cmake": "cmake", ".yaml": "yaml", ".json": "json"}


def page_of(path):
    return f"code/{path}"


def path_in_repository(document, target):
    """The path of what a page's link means; nothing where the repository has no such file."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(document), target.split("#")[0]))
    return path if target and not path.startswith("..") and (ROOT / path).exists() else None


class RepositoryFile(SphinxRole):
    """:repository-file:`PATH`, from the root of the repository."""

    def run(self):
        if not (ROOT / self.text).exists():
            raise ValueError(f"{self.text}: no such file")
        target = posixpath.relpath(self.text, posixpath.dirname(self.env.docname) or ".")
        node = addnodes.pending_xref(self.rawtext, refdomain=None, reftype="myst", reftarget=target, refdoc=self.env.docname,
                                     refexplicit=True)
        node += nodes.literal("", self.text)
        return [node], []


def links_to_files(doctree, document):
    for node in doctree.findall(addnodes.pending_xref):
        if node["reftype"] == "myst" and node.get("refdomain") != "doc":
            path = path_in_repository(node.get("refdoc", document), node["reftarget"])
            if path:
                yield node, path


class LinkToFiles(SphinxPostTransform):
    """Comes before MyST resolves what it knows."""
    default_priority = 5

    def run(self):
        for node, path in list(links_to_files(self.document, self.env.docname)):
            readme = posixpath.join(path, "README") if (ROOT / path).is_dir() else None
            target = readme if readme in self.env.all_docs else page_of(path)
            uri = self.app.builder.get_relative_uri(self.env.docname, target)
            reference = nodes.reference("", "", *node.children, refuri=uri, internal=True)
            node.replace_self(reference)


def remember(app, doctree):
    linked = getattr(app.env, "repository_files", {})
    linked[app.env.docname] = sorted({path for _, path in links_to_files(doctree, app.env.docname)})
    app.env.repository_files = linked


def forget(app, env, document):
    getattr(env, "repository_files", {}).pop(document, None)


def merge(app, env, documents, other):
    mine, theirs = getattr(env, "repository_files", {}), getattr(other, "repository_files", {})
    env.repository_files = mine | {document: theirs[document] for document in documents if document in theirs}


def all_paths(env):
    """The files that are linked, and those of the folders that are."""
    for path in sorted({path for paths in getattr(env, "repository_files", {}).values() for path in paths}):
        yield path
        if (ROOT / path).is_dir():
            yield from (f"{path}/{file.name}" for file in sorted((ROOT / path).iterdir()) if file.is_file())


def body_of(app, path):
    file = ROOT / path
    if file.is_dir():
        names = [entry.name for entry in sorted(file.iterdir()) if entry.is_file()]
        links = (f'<li><a href="{file.name}/{name}.html"><code>{name}</code></a></li>' for name in names)
        return f"<h1>{path}</h1><ul>{''.join(links)}</ul>"
    language = LANGUAGES.get(file.suffix, "cmake" if file.name == "CMakeLists.txt" else "text")
    return f"<h1>{path}</h1>{app.builder.highlighter.highlight_block(file.read_text(), language)}"


def pages(app):
    for path in sorted(set(all_paths(app.env))):
        yield page_of(path), {"title": path, "body": body_of(app, path)}, "page.html"


def setup(app):
    app.add_role("repository-file", RepositoryFile())
    app.add_post_transform(LinkToFiles)
    app.connect("doctree-read", remember)
    app.connect("env-purge-doc", forget)
    app.connect("env-merge-info", merge)
    app.connect("html-collect-pages", pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": 1}
