"""How a browser shows the page of `lockstep report`; tools/browser.sh fetches one."""
import re
import unittest

import browser
from report_test import HOSTILE, ReportTest, columns_of


class InABrowser(ReportTest):
    """The page in Chromium."""

    def setUp(self):
        super().setUp()
        self.file = self.folder / "page.html"
        self.report(self.first, self.second, self.killed, "-o", self.file)

    def show(self, **options):
        page = browser.Page(self.file.as_uri(), **options)
        self.addCleanup(page.close)
        self.assertEqual(page.evaluate("document.readyState"), "complete")
        return page

    def colours_of(self, page, name):
        text = page.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('--{name}')").strip()
        digits = text[1:] if len(text) == 7 else "".join(2 * digit for digit in text[1:])
        return tuple(bytes.fromhex(digits))

    def test_is_drawn_in_light_and_dark(self):
        for dark in (False, True):
            page = self.show(width=1100, height=900, dark=dark)
            page.evaluate("document.querySelector('figure.chart').scrollIntoView()")
            found = browser.colours(page.screenshot())
            self.assertEqual(page.errors, [])
            self.assertGreater(len(found), 50)
            for name, least in (("page", 50_000), ("card", 50_000), ("c0", 60), ("c1", 60), ("c2", 20)):
                self.assertGreater(found.get(self.colours_of(page, name), 0), least, name)
            self.assertEqual(sum(self.colours_of(page, "page")) < 200, dark)

    def test_shows_values_where_the_pointer_is(self):
        page = self.show()
        page.evaluate("document.querySelector('figure.chart').scrollIntoView({block: 'center'})")
        box = page.evaluate("(b => [b.x, b.y, b.width, b.height])(document.querySelector('figure.chart svg').getBoundingClientRect())")
        page.point_at(box[0] + 0.96 * box[2], box[1] + 0.5 * box[3])
        tip = page.evaluate("document.querySelector('.tip').innerText")
        name = page.evaluate("document.querySelector('figure.chart figcaption').innerText")
        self.assertIn("first", tip)
        self.assertIn(HOSTILE, tip)
        for folder in (self.first, self.second):
            value = columns_of(folder / "metrics.csv")[name][-1][1]
            self.assertIn(re.sub(r"\.?0+$", "", f"{value:.6g}"), tip)
        self.assertEqual(page.errors, [])
        page.point_at(2, 2)
        self.assertTrue(page.evaluate("document.querySelector('.tip').hidden"))

    def test_switches_work(self):
        page = self.show()
        shown = lambda what: page.evaluate(f"getComputedStyle(document.querySelector('{what}')).display") != "none"
        self.assertTrue(shown(".by-step") and not shown(".by-epoch") and not shown(".smooth") and shown("path.raw"))
        page.evaluate("document.getElementById('axis-epoch').click()")
        self.assertTrue(shown(".by-epoch") and not shown(".by-step"))
        page.evaluate("document.getElementById('smoothing').click()")
        self.assertTrue(shown(".smooth"))
        page.evaluate("document.getElementById('run-0').click()")
        self.assertFalse(shown("g.run.r0") or shown("tr.run.r0"))
        self.assertTrue(shown("g.run.r1"))
        self.assertEqual(page.errors, [])

    def test_fits_a_narrow_window(self):
        page = self.show(width=420, height=800)
        self.assertEqual(page.evaluate("document.documentElement.scrollWidth"), 420)


if __name__ == "__main__":
    unittest.main()
