"""What a profiled run shows of its collectives."""
import json
import unittest

from harness import BINARY, ProgramTest


class ProfilersTest(ProgramTest):
    def test_a_trace_has_the_collectives_of_every_rank(self):
        result = self.digits("fit", "--trainer.devices", "2", "--trainer.max_epochs", "1", "--trainer.profiler", "trace")
        self.assertEqual(result.code, 0, result)
        files = sorted((self.folder / "run").rglob("fit-trace-*.json"))
        self.assertEqual(len(files), 2, files)
        for file in files:
            events = [e for e in json.loads(file.read_text())["traceEvents"] if e.get("cat") == "collective"]
            names = [e["name"] for e in events]
            # 23 steps, each with a reduction of gradients at least.
            self.assertGreaterEqual(names.count("[Communicator].all_reduce"), 23)
            self.assertTrue(all(e["dur"] >= 0 for e in events))
        page = self.folder / "page.html"
        result = self.run_program(BINARY / "bin" / "lockstep", "report", self.folder / "run", "--output", page)
        self.assertEqual(result.code, 0, result)
        self.assertNotIn("No trace in this run", page.read_text())

    def test_libtorchs_profiler_is_on_the_time_line_of_all_ranks(self):
        result = self.digits("fit", "--trainer.devices", "2", "--trainer.max_epochs", "1", "--trainer.profiler", "pytorch")
        self.assertEqual(result.code, 0, result)
        self.assertNotIn("profiler_start", result.err)
        merged = list((self.folder / "run").rglob("fit-trace.json"))
        self.assertEqual(len(merged), 1, merged)
        events = json.loads(merged[0].read_text())["traceEvents"]
        tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
        for rank in (0, 1):
            own = [e for e in events if e["ph"] == "X" and e["pid"] == rank]
            steps = [e for e in own if e["name"].endswith(".training_step")]
            operators = [e for e in own if e["cat"] == "libtorch"]
            self.assertEqual(len(steps), 23)
            names = {e["name"] for e in operators}
            self.assertTrue({"aten::linear", "aten::addmm"} & names and any("Backward" in name for name in names), names)
            self.assertTrue(all(tracks[rank, e["tid"]].startswith("LibTorch, thread ") for e in operators))
            # Those of three steps, on the clock of the actions: behind the fifth step, and none behind the eighth.
            begin, end = steps[4]["ts"] + steps[4]["dur"], steps[7]["ts"] + steps[7]["dur"]
            slack = 2000  # us
            self.assertGreater(min(e["ts"] for e in operators), begin - slack)
            self.assertLess(max(e["ts"] + e["dur"] for e in operators), end + slack)
            self.assertTrue(any(e["cat"] == "collective" for e in own))
            inside = [e for e in operators if steps[5]["ts"] - slack <= e["ts"] <= steps[5]["ts"] + steps[5]["dur"] + slack]
            self.assertTrue(inside)

    def test_a_table_has_their_times(self):
        result = self.digits("fit", "--trainer.devices", "2", "--trainer.max_epochs", "1", "--trainer.profiler", "simple")
        self.assertEqual(result.code, 0, result)
        self.assertIn("[Communicator].all_reduce", result.out + result.err)


if __name__ == "__main__":
    unittest.main()
