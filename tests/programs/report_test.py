"""`lockstep report` on folders that runs left: the page's numbers."""
import csv
import html.parser
import json
import re
import shutil
import time
import unittest

from harness import BINARY, ProgramTest

COMMAND = BINARY / "bin" / "lockstep"
HOSTILE = "<img src=x onerror=alert(1)>'\"&"  # a folder may have this name


class ParsedPage(html.parser.HTMLParser):
    """Elements in order, as (tag, attributes, text that they begin with); and the points beside each chart."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.charts, self.open, self.at_begin = [], {}, [], False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append([tag, dict(attributes), ""])
        self.at_begin = True
        if tag not in ("meta", "link", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        self.at_begin = False
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        if not self.at_begin:
            return
        self.elements[-1][2] += data
        if self.elements[-1][0] == "script" and self.elements[-1][1].get("class") == "points":
            chart = json.loads(data)
            self.charts[chart["name"]] = {series["run"]: series for series in chart["series"]}

    def texts(self, tag, part=""):
        return [text for name, attributes, text in self.elements if name == tag and part in attributes.get("class", "")]


def columns_of(*files):
    """{metric: [(step, value), ...]} of metrics files whose steps follow each other."""
    columns = {}
    for file in files:
        for row in csv.DictReader(file.read_text().splitlines()):
            for name, value in row.items():
                if name not in ("epoch", "step") and value:
                    columns.setdefault(name, []).append((int(row["step"]), float(value)))
    return columns


def trace(rank, late_us):
    """Ten steps of 1000 us as TraceProfiler writes them: 100 for data, 300 for an all-reduce."""
    events = [{"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank} (host, process {40 + rank})"}}]
    for begin in range(0, 10_000, 1000):
        calls = (("fetch", "data", 0, 100), ("run_training_batch", "hook", 100, 900), ("all_reduce", "collective", 700 + late_us, 300 - late_us))
        events += [{"ph": "X", "pid": rank, "tid": 1, "ts": begin + at, "dur": duration, "name": name, "cat": category}
                   for name, category, at, duration in calls]
    # The loop around them, with what it does besides, is no phase.
    events.append({"ph": "X", "pid": rank, "tid": 1, "ts": 0, "dur": 12_000, "name": "run_training_epoch", "cat": "hook"})
    lines = ",\n".join(json.dumps(event) for event in events)
    return '{"traceEvents":[\n' + lines + '\n],"otherData":{"rank":%d,"dropped_events":0}}\n' % rank


class ReportTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        """Two runs that differ, with a trace in one; one that was killed; one that went on in its folder."""
        super().setUpClass()
        cls.runs = BINARY / "test_files" / "report_runs"
        shutil.rmtree(cls.runs, ignore_errors=True)
        cls.runs.mkdir(parents=True)
        cls.addClassCleanup(shutil.rmtree, cls.runs, ignore_errors=True)
        cls.first, cls.second, cls.killed, cls.resumed = (cls.runs / name for name in ("first", HOSTILE, "killed", "resumed"))
        two = ("--trainer.devices", 2, "--trainer.log_every_n_steps", 2)
        cls.train(cls.first, 0, *two, "--trainer.max_epochs", 3)
        cls.train(cls.second, 0, *two, "--trainer.max_epochs", 2, "--optimizer.lr", 0.01)
        cls.train(cls.killed, 137, *two, "--trainer.max_epochs", 3, "--fault.kind", "kill", "--fault.rank", 1, "--fault.step", 30)
        cls.train(cls.resumed, 0, "--trainer.max_epochs", 1)
        cls.train(cls.resumed, 0, "--trainer.max_epochs", 3, "--resume", "auto")
        (cls.first / "profiles").mkdir()
        for rank in (0, 1):
            (cls.first / "profiles" / f"fit-trace-{rank}.json").write_text(trace(rank, 50 * rank))

    @classmethod
    def train(cls, run_dir, code, *flags):
        runner = ProgramTest()
        runner.folder = cls.runs
        result = runner.digits("fit", "--run_dir", run_dir, *flags)
        runner.assertEqual(result.code, code, result)

    def report(self, *arguments, code=0, **environment):
        result = self.run_program(COMMAND, "report", *arguments, **environment)
        self.assertEqual(result.code, code, result)
        return result

    def page(self, *runs, flags=()):
        file = self.folder / "page.html"
        self.report(*runs, "--output", file, *flags)
        text = file.read_text()
        self.assertLess(len(text), 2_000_000)
        return ParsedPage(text)

    def assert_has_curves(self, page, run, columns):
        self.assertTrue(columns)
        for name, points in columns.items():
            series = page.charts[name][run]
            self.assertEqual(list(zip(series["step"], series["value"])), points, name)


class Report(ReportTest):
    """What stands in the page."""

    def test_has_every_value_of_every_run(self):
        page = self.page(self.first, self.second)
        self.assertEqual(page.open, [])
        for run, folder in enumerate((self.first, self.second)):
            self.assert_has_curves(page, run, columns_of(folder / "metrics.csv"))
        epochs = page.charts["val_loss"][0]["epoch"]
        self.assertEqual(epochs, [1, 2, 3])
        self.assertTrue(all(drawn.startswith("M") for tag, attributes, _ in page.elements if tag == "path"
                            for drawn in [attributes["d"]]))

    def test_shows_what_the_files_say(self):
        page = self.page(self.first, self.second, self.killed, flags=("--title", "Three & more"))
        self.assertEqual(page.texts("h1"), ["Three & more"])
        self.assertIn(HOSTILE, page.texts("span", "name"))
        self.assertFalse([element for element in page.elements if element[0] == "img"])
        summary = json.loads((self.first / "summary.json").read_text())
        cells = page.texts("td") + page.texts("th")
        for text in (summary["strategy"], str(summary["steps"]), summary["versions"]["libtorch"], "success", "failed"):
            self.assertIn(text, cells)
        for rank_bytes in summary["peak_rss_bytes_per_rank"]:
            self.assertIn(f"{rank_bytes / 2**20:.1f} MiB", cells)
        failure = json.loads((self.killed / "failure.json").read_text())
        self.assertEqual(page.texts("p", "message"), [failure["message"]])
        self.assertIn("SIGKILL", cells)

    def test_marks_options_that_differ(self):
        page = self.page(self.first, self.second)
        first_key = [i for i, element in enumerate(page.elements) if element[1].get("class") == "key"]
        differing = [page.elements[i][2] for i in first_key if page.elements[i - 1][1].get("class") == "differs"]
        self.assertEqual(set(differing), {"trainer.max_epochs", "optimizer.lr"})
        self.assertIn("All runs have the same options.", self.page(self.first, self.first).texts("p", "note"))

    def test_splits_the_time_of_traced_runs(self):
        page = self.page(self.first, self.second)
        titles = [attributes["title"] for _, attributes, _ in page.elements if "title" in attributes]
        for title in ("compute 6 ms, 60 %", "communication 3 ms, 30 %", "data 1 ms, 10 %", "compute 6.5 ms, 65 %"):
            self.assertIn(title, titles)
        notes = " ".join(page.texts("p", "note"))
        self.assertIn("Rank 1 computes longest, 8 % more than rank 0.", notes)
        self.assertIn("Ranks came to 10 collectives within 50 \u00b5s of each other", notes)
        self.assertIn("No trace in this run: train with --trainer.profiler trace", notes)  # the second

    def test_joins_the_parts_of_a_run_that_went_on(self):
        parts = self.resumed / "metrics.1.csv", self.resumed / "metrics.csv"
        page = self.page(self.resumed)
        self.assert_has_curves(page, 0, columns_of(*parts))
        self.assertEqual(len(page.charts["val_loss"][0]["step"]), 3)

    def test_writes_into_the_first_runs_folder_unless_told_otherwise(self):
        file = self.first / "report.html"
        self.addCleanup(file.unlink)
        self.assertEqual(self.report(self.first, self.killed).out, f"{file}\n")
        self.assertIn("first, killed", ParsedPage(file.read_text()).texts("title"))

    def test_draws_in_a_terminal(self):
        result = self.report(self.first, self.resumed, "--plot", "--metric", "val_loss", COLUMNS="64")
        lines = result.out.splitlines()
        self.assertEqual(lines[0].split(), ["val_loss", "first", f"{columns_of(self.first / 'metrics.csv')['val_loss'][-1][1]:.6g}"])
        self.assertTrue(all(len(line) <= 64 for line in lines), result)
        self.assertTrue(any("\u2800" < letter <= "\u28ff" for letter in result.out))
        self.assertNotIn("\033", result.out)
        self.assertFalse((self.first / "report.html").exists())
        self.report(self.first, "--plot", "-o", self.folder / "both.html")
        self.assertTrue((self.folder / "both.html").exists())

    def test_says_what_is_wrong(self):
        self.report(code=2)
        self.report(self.first, "--nonsense", code=2)
        self.assert_refused(self.report(self.folder, code=2), 2, "no run's folder", self.folder)
        refused = self.report(self.first, "--metric", "val_los", "-o", self.folder / "x.html", code=2)
        self.assert_refused(refused, 2, "'val_los'", "did you mean val_loss?")
        broken = self.folder / "broken"
        broken.mkdir()
        (broken / "metrics.csv").write_text("epoch,step,loss\n0,1,2\n0,2,two\n")
        self.assert_refused(self.report(broken, code=1), 1, f"{broken / 'metrics.csv'}:3", "'two'")
        (broken / "metrics.csv").unlink()
        (broken / "summary.json").write_text("{\n  \"status\":\n")
        self.assert_refused(self.report(broken, code=1), 1, f"{broken / 'summary.json'}:3", "no JSON")
        self.assertEqual([file.name for file in broken.iterdir()], ["summary.json"])
        self.assert_refused(self.report(self.first, "-o", self.folder / "none" / "x.html", code=1), 1, "x.html")

    def test_a_million_rows_make_a_small_page(self):
        big = self.folder / "big"
        big.mkdir()
        rows = (f"{step // 10_000},{step},{1 / (1 + step % 991)},{step}\n" for step in range(1_000_000))
        (big / "metrics.csv").write_text("epoch,step,loss,other\n" + "".join(rows))
        begin = time.monotonic()
        page = self.page(big)
        self.assertLess(time.monotonic() - begin, 60)  # two seconds on a machine that has nothing else to do
        self.assertLess((self.folder / "page.html").stat().st_size, 300_000)
        loss = page.charts["loss"][0]
        self.assertLess(len(loss["step"]), 1000)
        self.assertEqual((max(loss["value"]), min(loss["value"]), loss["step"][-1]), (1, 1 / 991, 999_999))


if __name__ == "__main__":
    unittest.main()
