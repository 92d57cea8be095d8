"""Sphinx's configuration of the site. tools/docs.sh lays out the pages and calls Sphinx."""
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "docs"
sys.path.insert(0, str(HERE))

project = "lockstep"
release = re.search(r"project\(lockstep VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
version = release
copyright = "the authors of lockstep. Apache-2.0"
language = "en"

extensions = ["myst_parser", "breathe", "repository_files", "navigation", "untitled_groups"]
root_doc = "index"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_heading_anchors = 6
myst_enable_extensions = []
suppress_warnings = ["myst.header"]  # a page of GitHub's may begin with a heading of a lower level

breathe_projects = json.loads((BUILD / "projects.json").read_text())
breathe_domain_by_extension = {"h": "cpp"}
primary_domain = "cpp"
highlight_language = "text"
toc_object_entries_show_parents = "hide"
cpp_maximum_signature_line_length = 90

html_theme = "furo"
html_title = f"lockstep {release}"
html_static_path = [str(HERE / "static")]
html_css_files = ["site.css"]
html_js_files = ["offline.js"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "monokai"
