"""The tuner in programs: on several ranks, under a real limit of memory, and as the verb `tune`."""
import json
import re
import unittest
import xml.etree.ElementTree

from harness import BINARY, DIGITS, SOURCE, ProgramTest, data_limit

CASE = BINARY / "bin" / "tuner_case"


class Searches(ProgramTest):
    def case(self, verb, *flags, ranks=1, preexec_fn=None):
        run_dir = self.folder / f"{verb}{ranks}"
        devices = ["--trainer.devices", ranks] if ranks > 1 else []
        process = self.start(CASE, verb, "--run_dir", run_dir, *devices, *flags, preexec_fn=preexec_fn)
        result = self.finish(process, deadline_s=200)
        self.assertEqual(result.code, 0, result)
        self.err = result.err
        return [json.loads((run_dir / f"rank_{rank}.json").read_text()) for rank in range(ranks)]

    def test_ranks_agree_when_one_of_them_runs_out_of_memory(self):
        for place in ("forward", "backward", "validation"):
            with self.subTest(place):
                found = self.case("tune", "--case.place", place, "--case.fits", 11, "--case.rank", 1, ranks=2)
                self.assertEqual([rank["batch_size"] for rank in found], [11, 11])
                self.assertEqual(found[0], found[1])
                self.assertEqual(len(found[0]["lr"]), 30)

    def test_a_run_goes_on_with_the_bits_of_one_that_knew(self):
        for ranks in (1, 2):
            with self.subTest(ranks):
                found = self.case("fit", "--case.fits", 8, "--case.rank", ranks - 1, "--case.rows", 128, ranks=ranks)
                known = self.case("plain", "--case.batch_size", 8, "--case.rows", 128, ranks=ranks)
                self.assertEqual([rank["batch_size"] for rank in found], [8] * ranks)
                for one, other in zip(found, known):
                    self.assertEqual((one["weights"], one["steps"]), (other["weights"], other["steps"]))

    def test_memory_that_is_really_short(self):
        """Each row takes 16 MiB, twice over: what the sum's gradient is made of stays until backward. There is room for 40 rows."""
        empty_mib = self.peak_data_mib(self.start(CASE, "plain", "--run_dir", self.folder / "empty"))
        found = self.case("tune", "--case.eats", 16 * 1024, "--case.rows", 4096, preexec_fn=data_limit(empty_mib + 1280))[0]
        self.assertGreaterEqual(found["batch_size"], 4)
        self.assertLess(found["batch_size"], 100)
        self.assertIn("failed, trying batch size", self.err)


class Verb(ProgramTest):
    FLAGS = ["--seed_everything", 1, "--tune.scale_batch_size.max_val", 64, "--tune.lr_find.num_training", 40]

    def test_what_is_found_is_printed_and_kept_for_fit(self):
        result = self.digits("tune", *self.FLAGS)
        self.assertEqual(result.code, 0, result)
        table = dict(re.findall(r"^--(\S+)\s+(\S+)$", result.out, re.M))
        self.assertEqual(table["data.batch_size"], "64")
        lr = float(table["optimizer.lr"])
        self.assertTrue(1e-8 < lr < 1)
        run = self.folder / "run"
        config = (run / "config.yaml").read_text()
        self.assertIn("batch_size: 64\n", config)
        self.assertEqual(float(re.search(r"^optimizer:\n(?:  .*\n)*?  lr: (\S+)$", config, re.M).group(1)), lr)
        summary = json.loads((run / "summary.json").read_text())
        self.assertEqual((summary["status"], summary["steps"], summary["tuned"]), ("success", 0, {"batch_size": 64, "lr": lr}))
        picture = xml.etree.ElementTree.parse(run / "lr_find.svg").getroot()
        self.assertEqual(len(picture.find("{http://www.w3.org/2000/svg}polyline").get("points").split()), 40)
        self.assertFalse(any((run / "checkpoints").iterdir()))

        fit = self.run_program(DIGITS, "fit", "-c", run / "config.yaml", "--run_dir", self.folder / "fit", "--trainer.max_epochs", 1)
        self.assertEqual(fit.code, 0, fit)
        fitted = json.loads((self.folder / "fit" / "summary.json").read_text())
        self.assertEqual((fitted["steps"], fitted["status"]), (23, "success"))

    def test_one_of_them_on_two_ranks(self):
        result = self.digits("tune", *self.FLAGS, "--tune.lr", "false", "--trainer.devices", 2)
        self.assertEqual(result.code, 0, result)
        self.assertEqual(result.out.count("data.batch_size"), 1)
        self.assertNotIn("optimizer.lr ", result.out)
        self.assertIn("batch_size: 64\n", (self.folder / "run" / "config.yaml").read_text())
        self.assertFalse((self.folder / "run" / "lr_find.svg").exists())

    def test_a_search_that_finds_nothing_says_so_in_the_end(self):
        result = self.digits("tune", *self.FLAGS[:-1], 5)
        self.assert_refused(result, 1, "no learning rate was found for --optimizer.lr", "5 steps", "num_training")
        self.assertIn("data.batch_size          64", result.out)
        self.assertTrue((self.folder / "run" / "lr_find.svg").exists())
        self.assertIn("batch_size: 64\n", (self.folder / "run" / "config.yaml").read_text())
        result = self.digits("tune", *self.FLAGS, "--trainer.limit_train_batches", 0)
        self.assert_refused(result, 2, "limit_train_batches above 0", "got 0")

    def test_wrong_flags_are_named(self):
        self.assert_refused(self.digits("tune", "--tune.scale_batch_size.mode", "linear"), 2, "tune.scale_batch_size.mode", "power, binsearch")
        self.assert_refused(self.digits("tune", "--tune.batch_size", "false", "--tune.lr_find.min_lr", 2), 2, "max_lr", "2")


if __name__ == "__main__":
    unittest.main()
