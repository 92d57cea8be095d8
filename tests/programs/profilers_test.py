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

    def test_a_table_has_their_times(self):
        result = self.digits("fit", "--trainer.devices", "2", "--trainer.max_epochs", "1", "--trainer.profiler", "simple")
        self.assertEqual(result.code, 0, result)
        self.assertIn("[Communicator].all_reduce", result.out + result.err)


if __name__ == "__main__":
    unittest.main()
