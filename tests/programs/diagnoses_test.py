"""Programs that really have a problem, and what they say of it."""
import re
import unittest

from harness import BINARY, ProgramTest, data_limit

CASE = BINARY / "bin" / "diagnoses_case"
COMMAND = BINARY / "bin" / "lockstep"


def mib(text):
    number, unit = re.match(r"([\d.]+) (KiB|MiB|GiB|B)", text).groups()
    return float(number) * {"B": 2**-20, "KiB": 2**-10, "MiB": 1, "GiB": 2**10}[unit]


class Diagnoses(ProgramTest):
    def fit(self, *flags, launcher=(), limit_mib=None, **environment):
        limit = None if limit_mib is None else data_limit(limit_mib)
        process = self.start(*launcher, CASE, "fit", "--run_dir", self.folder / "run", "--trainer.logger", "false", *flags,
                             preexec_fn=limit, **environment)
        return self.finish(process)

    def assert_says_once(self, result, text, times=1):
        self.assertEqual(result.err.count(text), times, result)


class OutOfMemory(Diagnoses):
    def test_says_what_was_asked_for_where_memory_is_and_what_makes_room(self):
        result = self.fit("--case.eats", 64, "--case.batches", 100, "--trainer.devices", 2, limit_mib=1024)
        self.assert_refused(result, 1, "rank ", "has not enough memory", "it asked for 64.0 MiB", "limit 1.00 GiB (ulimit -d)")
        line = next(line for line in result.err.splitlines() if "has not enough memory" in line)
        parts = dict(re.findall(r"(peak so far|parameters|gradients|optimizer|activations and buffers) ([\d.]+ \w+)", line))
        layer = 4 * 257 * 4096 / 2**20  # MiB
        self.assertAlmostEqual(mib(parts["parameters"]), layer, delta=0.02, msg=line)
        self.assertAlmostEqual(mib(parts["gradients"]), layer, delta=0.02, msg=line)
        self.assertAlmostEqual(mib(parts["optimizer"]), 2 * layer, delta=0.02, msg=line)
        self.assertGreater(mib(parts["activations and buffers"]), 256, line)
        self.assertGreater(mib(parts["peak so far"]), mib(parts["activations and buffers"]), line)
        ways = ("a batch_size below 4", "--trainer.accumulate_grad_batches", "--trainer.strategy fsdp;", "ls::apply_activation_checkpointing",
                "--trainer.precision bf16-mixed", "--trainer.strategy fsdp_cpu_offload", "lockstep advise")
        places = [line.find(way) for way in ways]
        self.assertNotIn(-1, places, line)
        self.assertEqual(places, sorted(places), line)

    def test_names_only_what_is_not_done_yet(self):
        result = self.fit("--case.eats", 64, "--case.batches", 100, "--trainer.devices", 2, "--trainer.strategy", "fsdp",
                          "--trainer.precision", "bf16-mixed", limit_mib=1024)
        self.assert_refused(result, 1, "what makes room", "--trainer.strategy.activation_checkpointing true", "fsdp_cpu_offload")
        self.assertNotIn("bf16-mixed;", result.err)
        self.assertNotIn("--trainer.strategy fsdp;", result.err)

    def test_takes_strategies_for_what_they_are(self):
        (self.folder / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}')
        in_file = ("--trainer.strategy", "deepspeed", "--trainer.strategy.config", self.folder / "ds.json")
        unsharded = ("--trainer.strategy", "fsdp", "--trainer.strategy.sharding_strategy", "NO_SHARD")
        for strategy, ways in ((in_file, "--trainer.strategy fsdp_cpu_offload"), (unsharded, "--trainer.strategy fsdp with sharding_strategy FULL_SHARD;")):
            with self.subTest(strategy):
                result = self.fit("--case.eats", 64, "--case.batches", 100, "--trainer.devices", 2, *strategy, limit_mib=1024)
                self.assert_refused(result, 1, "what makes room", ways)
                self.assertNotIn("optimizer 0 B", result.err)

    def test_may_be_switched_off(self):
        result = self.fit("--case.eats", 64, "--case.batches", 100, limit_mib=1024, LOCKSTEP_DIAGNOSES="none")
        self.assert_refused(result, 1, "has not enough memory")
        self.assertNotIn("peak so far", result.err)


class DataBound(Diagnoses):
    WARNING = "this rank waits for data"

    def test_a_rank_that_waits_says_so_once(self):
        result = self.fit("--case.reads", "100ms", "--case.works", "5ms", "--case.batches", 60)
        self.assertEqual(result.code, 0, result)
        self.assert_says_once(result, self.WARNING)
        found = re.search(r"waits for data (\d+) % of the time: ([\d.]+) s of ([\d.]+) s in (\d+) batches; one of 4 samples .* num_workers", result.err)
        self.assertIsNotNone(found, result)
        share, waited, of_all, batches = (float(group) for group in found.groups())
        self.assertAlmostEqual(share, 100 * waited / of_all, delta=1)
        self.assertGreaterEqual(waited, batches * 0.1)
        self.assertGreater(share, 20)

    def test_one_whose_batches_are_made_ahead_does_not(self):
        result = self.fit("--case.reads", "20ms", "--case.works", "200ms", "--case.batches", 40, "--case.num_workers", 4)
        self.assertEqual(result.code, 0, result)
        self.assertNotIn(self.WARNING, result.err)

    def test_may_be_switched_off(self):
        result = self.fit("--case.reads", "40ms", "--case.batches", 100, LOCKSTEP_DIAGNOSES="memory,waits")
        self.assertEqual(result.code, 0, result)
        self.assertNotIn(self.WARNING, result.err)


class Stuck(Diagnoses):
    LINE = "rank 0 has waited for rank 1 for"

    def test_the_launcher_names_the_rank_that_the_others_wait_for(self):
        run = (COMMAND, "run", "--nproc-per-node", 2)
        for launcher, flags in (((), ("--trainer.devices", 2)), (run, ()), ((*run, "--redirects", 3, "--log-dir", self.folder / "logs"), ())):
            with self.subTest(launcher):
                result = self.fit("--case.stuck", "5s", *flags, launcher=launcher, LOCKSTEP_DIAGNOSES="waits=1.5")
                self.assertEqual(result.code, 0, result)
                self.assert_says_once(result, self.LINE)
                line = next(line for line in result.err.splitlines() if self.LINE in line)
                self.assertRegex(line, r"^lockstep: rank 0 has waited for rank 1 for 2 s, in all_reduce.* seq \d+: rank 1 is outside of collectives, "
                                       r"after \w+ seq \d+, in training_step of step 2; ")

    def test_a_rank_that_does_not_join_is_named(self):
        for launcher, flags in (((), ("--trainer.devices", 2)), ((COMMAND, "run", "--nproc-per-node", 2), ())):
            with self.subTest(launcher):
                result = self.fit("--case.late", "6s", *flags, launcher=launcher, LOCKSTEP_DIAGNOSES="waits=2")
                self.assertEqual(result.code, 0, result)
                self.assert_says_once(result, "lockstep: rank 0 has waited for rank 1 to join for 2 s: rank 1 is before its first collective\n")

    def test_may_be_switched_off(self):
        result = self.fit("--case.stuck", "5s", "--trainer.devices", 2, LOCKSTEP_DIAGNOSES="none")
        self.assertEqual(result.code, 0, result)
        self.assertNotIn("has waited", result.err)

    def test_a_wrong_word_is_named(self):
        result = self.fit("--trainer.devices", 2, LOCKSTEP_DIAGNOSES="memory,weights")
        self.assert_refused(result, 2, "LOCKSTEP_DIAGNOSES", "waits=SECONDS", '"weights"')


class InconsistentResults(Diagnoses):
    def test_a_report_says_which_runs_were_not_seeded(self):
        for name, flags in (("a", ("--seed_everything", 1)), ("b", ()), ("c", ("--seed_everything", 1))):
            result = self.run_program(CASE, "fit", "--run_dir", self.folder / name, *flags)
            self.assertEqual(result.code, 0, result)
        for other, is_said in (("b", True), ("c", False)):
            shown = self.run_program(COMMAND, "report", self.folder / "a", self.folder / other, "--plot", COLUMNS="200").out
            self.assertEqual("Not seeded: b: what differs" in shown, is_said, shown)
        page = self.folder / "page.html"
        self.assertEqual(self.run_program(COMMAND, "report", self.folder / "a", self.folder / "b", "-o", page).code, 0)
        self.assertIn("Not seeded: b", page.read_text())
        self.assertEqual(self.run_program(COMMAND, "report", self.folder / "a", self.folder / "b", "-o", page, "--no-notes").code, 0)
        self.assertNotIn("Not seeded", page.read_text())


if __name__ == "__main__":
    unittest.main()
