"""The site of the documentation in a browser, and its links; `make docs` makes the site, tools/browser.sh fetches a browser."""
import functools
import html.parser
import http.server
import posixpath
import threading
import time
import unittest
import urllib.parse

import browser
from harness import SOURCE

SITE = SOURCE / "build" / "docs" / "html"
DRAWINGS = {"docs/architecture": "levels", "docs/callbacks": "hooks", "docs/communication": "ddp-buckets", "docs/fsdp": "sharding-states",
            "docs/checkpoint-format": "checkpoint-layout"}
WIDE_AND_NARROW = ("index", "README", "docs/quickstart", "docs/deepspeed", "docs/files", "docs/tutorials/003-distributed-training", "command",
                   "api/index", "api/train/trainer", "api/base/option_visitor", "code/src/train/loops/fit_loop.cpp", "search")


class Links(html.parser.HTMLParser):
    """The addresses, and the places that addresses may name, of one page."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.addresses, self.resources, self.places = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if values.get("id"):
            self.places.add(values["id"])
        if tag == "a" and values.get("href"):
            self.addresses.add(values["href"])
        elif tag in ("link", "script", "img") and (values.get("href") or values.get("src")):
            self.resources.add(values.get("href") or values.get("src"))


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not (SITE / "index.html").is_file():
            raise FileNotFoundError(f"{SITE}: `make docs` makes it")
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
        cls.address = f"http://127.0.0.1:{cls.server.server_port}/"
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.page = browser.Page(cls.address + "index.html", width=1280, height=900, deadline_s=600)

    @classmethod
    def tearDownClass(cls):
        cls.page.close()
        cls.server.shutdown()
        cls.server.server_close()

    def show(self, name, width=1280):
        self.page.resize(width, 900)
        self.page.go(f"{self.address}{name}.html")

    def wait_for(self, expression, seconds=60):
        end = time.monotonic() + seconds
        while not (value := self.page.evaluate(expression)):
            self.assertLess(time.monotonic(), end, expression)
            time.sleep(0.1)
        return value

    def tearDown(self):
        self.assertEqual([a for a in self.page.requests if not a.startswith((self.address, "data:", "about:", "file:"))], [])
        self.assertEqual(self.page.errors, [])

    def test_opens_and_leads_to_the_pages(self):
        self.show("index")
        self.assertEqual(self.page.evaluate("document.querySelector('article h1').firstChild.textContent"), "lockstep")
        self.page.evaluate("[...document.querySelectorAll('.sidebar-tree a')].find(a => a.textContent == 'API reference').click()")
        self.wait_for("location.pathname == '/api/index.html' && document.readyState == 'complete'")
        self.assertEqual(self.page.evaluate("document.querySelector('.sidebar-tree a.current[href=\"#\"]').textContent"), "API reference")

    def found(self):
        self.wait_for("document.querySelectorAll('#search-results li a').length > 1")
        return self.page.evaluate("[...document.querySelectorAll('#search-results li a')].map(a => a.getAttribute('href'))")

    def test_search_finds(self):
        self.page.go(f"{self.address}search.html?q=SyncBatchNorm")
        found = self.found()
        self.assertTrue(any(link.startswith("api/parallel/sync_batch_norm.html#") for link in found), found)
        self.wait_for("[...document.querySelectorAll('#search-results li a')].some(a => a.href.includes('docs/sync_batch_norm.html'))")

    def test_search_works_without_a_server(self):
        self.page.go(f"{(SITE / 'search.html').as_uri()}?q=SyncBatchNorm")
        found = self.found()
        self.assertTrue(any("api/parallel/sync_batch_norm.html" in link for link in found), found)

    def test_reference_shows_documented_members(self):
        self.show("api/train/trainer")
        entry = "[...document.querySelectorAll('dl.function')].find(e => e.querySelector('dt').textContent.includes('save_checkpoint'))"
        text = self.page.evaluate(f"{entry}.innerText")
        self.assertIn("const std::filesystem::path", text)
        self.assertIn("Writes the run as fit left it", text)
        self.assertIn("Throws", text)
        self.show("api/parallel/ddp/ddp")
        option = "[...document.querySelectorAll('dl.cpp dl.cpp')].find(e => e.querySelector('dt').textContent.includes('bucket_cap_mb'))"
        self.assertIn("gradients reduced at once, in MiB", self.page.evaluate(f"{option}.innerText"))

    def test_shows_the_drawings(self):
        for name, picture in DRAWINGS.items():
            self.show(name)
            image = f"document.querySelector('article img[src$=\"{picture}.svg\"]')"
            self.wait_for(f"{image}.complete")
            self.assertGreater(self.page.evaluate(f"{image}.naturalWidth"), 300, picture)
            box = self.page.evaluate(f"(b => [b.width, b.height])({image}.getBoundingClientRect())")
            self.assertGreater(min(box), 100, picture)

    def test_nothing_of_the_drawings_is_cut_off(self):
        outside = """(() => { const box = document.documentElement.viewBox.baseVal;
            return [...document.querySelectorAll('text, rect')].filter(part => { const b = part.getBBox();
                return b.x < 0 || b.y < 0 || b.x + b.width > box.width || b.y + b.height > box.height; }).map(p => p.textContent); })()"""
        for picture in DRAWINGS.values():
            self.page.go(f"{self.address}_images/{picture}.svg")
            self.assertEqual(self.page.evaluate(outside), [], picture)

    def test_fits_wide_and_narrow_windows(self):
        for name in WIDE_AND_NARROW:
            for width in (1280, 400):
                self.show(name, width)
                self.assertLessEqual(self.page.evaluate("document.documentElement.scrollWidth"), width, f"{name} at {width}")

    def test_all_links_lead_somewhere(self):
        pages = {file.relative_to(SITE).as_posix(): Links(file.read_text()) for file in SITE.rglob("*.html")}
        self.assertGreater(len(pages), 200)
        broken = []
        for name, page in pages.items():
            for address in page.addresses | page.resources:
                parts = urllib.parse.urlsplit(address)
                if parts.scheme or parts.netloc:
                    if address in page.resources and parts.scheme != "data":
                        broken.append(f"{name}: {address} is not of the site")
                    continue
                path = urllib.parse.unquote(parts.path)
                target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
                place = urllib.parse.unquote(parts.fragment)
                if not (SITE / target).is_file():
                    broken.append(f"{name}: {address}: no such page")
                elif place and target in pages and place not in pages[target].places:
                    broken.append(f"{name}: {address}: no such place")
        self.assertEqual(broken, [])

    def test_every_page_is_in_the_tree(self):
        tree = Links((SITE / "index.html").read_text()).addresses
        for file in sorted((SOURCE / "docs").glob("*.md")):
            self.assertIn(f"docs/{file.stem}.html", tree)


if __name__ == "__main__":
    unittest.main()
