#!/usr/bin/env python3
"""The strategies single_xla and xla: the demo beside the same under single_device and ddp on the CPU, what is refused, and
lost ranks."""
import json
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from digits_runs import BUILD, PLUGIN, SOURCE, DigitsRuns

sys.path.append(str(pathlib.Path(__file__).parents[1] / "programs"))
from harness import free_port  # noqa: E402


class StrategyTest(DigitsRuns):
    def setUp(self):
        super().setUp()
        self.cache = BUILD / "tests" / "xla" / "programs"  # the same programs from test to test

    def assert_refused(self, result, *words):
        self.assertEqual(result.returncode, 2, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)


XLA = ("--trainer.strategy", "xla", "--trainer.devices", 2, "--trainer.strategy.pjrt_plugin", PLUGIN)
DDP = ("--trainer.strategy", "ddp", "--trainer.accelerator", "cpu", "--trainer.devices", 2)
SINGLE_XLA = ("--trainer.strategy", "single_xla", "--trainer.devices", 1, "--trainer.strategy.pjrt_plugin", PLUGIN)
TWO_EACH = ("--trainer.strategy.devices_per_process", 2)
ON_HOST = ("--trainer.strategy.reduce_in_program", "false")


class TestSingleXla(StrategyTest):
    def test_has_the_losses_of_the_cpu_and_chooses_the_accelerator(self):
        steps = ("--trainer.max_steps", 50)
        expected = self.losses("cpu", *steps, "--trainer.accelerator", "cpu", "--trainer.devices", 1)
        self.assert_equal_losses(self.losses("xla", *steps, *SINGLE_XLA), expected)
        self.assertIn('"single_xla"', (self.folder / "xla/summary.json").read_text())

    def test_takes_its_options_from_a_file(self):
        file, cache = self.folder / "options.yaml", self.folder / "cache"
        file.write_text("trainer:\n  devices: 1\n  max_steps: 2\n  strategy: {name: single_xla, fallback: cpu, "
                        f"pjrt_plugin: {PLUGIN}, compile_cache: {cache}}}\n")
        result = self.start("file", "--config", file)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(any(cache.iterdir()))
        self.assertIn("fallback: cpu", (self.folder / "file/config.yaml").read_text())

    def test_keeps_no_programs_where_the_cache_is_off(self):
        result = self.start("off", *SINGLE_XLA, "--trainer.max_steps", 1, "--trainer.strategy.compile_cache", "off",
                            XDG_CACHE_HOME=self.folder / "home")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertFalse((self.folder / "home").exists())


    def test_trains_on_several_devices_as_on_one(self):
        steps = ("--trainer.max_steps", 50)
        expected = self.losses("one", *steps, *SINGLE_XLA)
        self.assert_equal_losses(self.losses("two", *steps, *SINGLE_XLA, *TWO_EACH), expected)
        self.assert_equal_losses(self.losses("captured", *steps, *SINGLE_XLA, *TWO_EACH, "--trainer.cuda_graphs", "true"),
                                 expected)

    def test_says_which_batches_its_devices_cannot_share(self):
        result = self.start("odd", *SINGLE_XLA, *TWO_EACH, "--data.batch_size", 33, "--trainer.max_steps", 2,
                            "--trainer.num_sanity_val_steps", 0)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr.count("each of the process's 2 devices computes all of a batch of 33 rows"), 1)

    def test_refuses_more_devices_than_there_are(self):
        result = self.start("many", *SINGLE_XLA, "--trainer.strategy.devices_per_process", 3,
                            LOCKSTEP_PJRT_OPTIONS="cpu_device_count=2")
        self.assert_refused(result, "fewer devices than devices_per_process says", "at most 2", "got 3")


class TestXla(StrategyTest):
    def test_has_the_losses_of_ddp(self):
        steps = ("--trainer.max_steps", 50)
        expected = self.losses("ddp", *steps, *DDP)
        self.assertGreaterEqual(len(expected), 50)
        self.assert_equal_losses(self.losses("in_program", *steps, *XLA), expected)
        self.assert_equal_losses(self.losses("on_host", *steps, *XLA, *ON_HOST), expected)
        self.assert_equal_losses(self.losses("two_each", *steps, *XLA, *TWO_EACH), expected)

    def programs_of(self, name, *flags):
        cache = self.folder / (name + "_programs")
        result = self.start(name, *flags, "--trainer.max_steps", 6, "--trainer.limit_val_batches", 0, "--trainer.log_every_n_steps", 0,
                            "--trainer.strategy.compile_cache", cache)
        self.assertEqual(result.returncode, 0, result.stderr)
        return len(list(cache.iterdir()))

    def test_has_as_many_programs_as_one_rank_has_unless_the_host_averages(self):
        alone = self.programs_of("alone", *SINGLE_XLA)
        self.assertEqual(self.programs_of("in_program", *XLA), alone)
        self.assertGreater(self.programs_of("on_host", *XLA, *ON_HOST), alone)

    def captured(self, name, *flags):
        losses = self.losses(name, *flags, "--trainer.cuda_graphs", "true")
        return losses, json.loads((self.folder / name / "summary.json").read_text())["xla"]

    def test_captures_steps_in_which_ranks_meet(self):
        steps = ("--trainer.max_steps", 50)
        expected = self.losses("traced", *steps, *XLA)
        got, counts = self.captured("captured", *steps, *XLA)
        self.assert_equal_losses(got, expected)
        self.assertGreaterEqual(counts["steps_replayed"], 40)

    def test_compiles_nothing_once_steps_are_captured(self):
        made = []
        for steps in (50, 75):  # behind the first epoch, and its short last batch
            _, counts = self.captured(str(steps), "--trainer.max_steps", steps, "--trainer.limit_val_batches", 0, *XLA)
            made.append(counts["programs_compiled"] + counts["programs_from_files"])
        self.assertEqual(made[1], made[0])

    def test_captures_windows_and_clipping(self):
        steps = ("--trainer.max_steps", 20, "--trainer.accumulate_grad_batches", 2, "--trainer.gradient_clip_val", 0.05, *XLA)
        got, counts = self.captured("captured", *steps)
        self.assert_equal_losses(got, self.losses("traced", *steps))
        self.assertGreaterEqual(counts["steps_replayed"], 25)

    def test_is_what_auto_means_for_several_ranks(self):
        result = self.start("auto", "--trainer.accelerator", "tpu", "--trainer.devices", 2, "--trainer.max_steps", 1,
                            LOCKSTEP_PJRT_PLUGIN=PLUGIN)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn('"xla"', (self.folder / "auto/summary.json").read_text())

    def test_accumulates_clips_and_computes_in_bf16(self):
        for name, relative, flags in (("accumulate", 1e-5, ("--trainer.accumulate_grad_batches", 3)),
                                      ("clip", 1e-5, ("--trainer.gradient_clip_val", 0.05)),
                                      ("bf16", 2e-2, ("--trainer.precision", "bf16-true")),
                                      ("autocast", 2e-2, ("--trainer.precision", "bf16-mixed"))):
            with self.subTest(name):
                steps = ("--trainer.max_steps", 12, *flags)
                expected = self.losses(name + "_ddp", *steps, *DDP)
                self.assert_equal_losses(self.losses(name + "_in_program", *steps, *XLA), expected, relative)
                self.assert_equal_losses(self.losses(name + "_on_host", *steps, *XLA, *ON_HOST), expected, relative)

    def test_goes_on_from_checkpoints_of_other_strategies(self):
        expected = self.losses("whole", "--trainer.max_steps", 20, *DDP)
        for first, second in ((DDP, XLA), (XLA, DDP), (XLA, XLA)):
            name = "_".join((first[1], second[1]))
            with self.subTest(name):
                self.losses(name + "_first", "--trainer.max_steps", 10, *first)
                got = self.losses(name + "_then", "--trainer.max_steps", 20, *second, "--ckpt_path",
                                  self.folder / (name + "_first") / "checkpoints/last.ckpt")
                self.assertGreaterEqual(len(got), 10)
                self.assert_equal_losses(got, {key: value for key, value in expected.items() if key in got})
        # One rank goes on where two have stopped.
        result = self.start("one", *SINGLE_XLA, "--trainer.max_steps", 12, "--ckpt_path",
                            self.folder / "xla_xla_first/checkpoints/last.ckpt")
        self.assertEqual(result.returncode, 0, result.stderr)


class TestFabric(StrategyTest):
    """Strategies that code names, in a loop of one's own with windows that accumulate."""

    def run_case(self, strategy, devices, **variables):
        return subprocess.run([BUILD / "bin/xla_fabric_case", strategy, str(devices)], cwd=self.folder, capture_output=True, text=True,
                              timeout=120, env=self.environment(**variables))

    def losses_of_case(self, *arguments, **variables):
        result = self.run_case(*arguments, **variables)
        self.assertEqual(result.returncode, 0, result.stderr)
        losses = [float(line) for line in result.stdout.split()]
        self.assertEqual(len(losses), 12)
        return losses

    def test_has_the_losses_of_the_cpu(self):
        for devices, here, others in ((1, "single_device", ("single_xla",)), (2, "ddp", ("xla", "on_host"))):
            expected = self.losses_of_case(here, devices)
            for strategy in others:
                with self.subTest(strategy):
                    for got, value in zip(self.losses_of_case(strategy, devices, LOCKSTEP_PJRT_PLUGIN=PLUGIN), expected):
                        self.assertAlmostEqual(got, value, delta=1e-5 * abs(value))

    def test_an_operator_without_lowering_is_an_error_where_fallback_says_so(self):
        self.assert_refused(self.run_case("strict", 1, LOCKSTEP_PJRT_PLUGIN=PLUGIN, LOCKSTEP_XLA_FALLBACK="cpu"), "erfinv", "no lowering to XLA")


class TestRefusals(StrategyTest):
    def test_contradictions_are_named(self):
        named = ("--trainer.accelerator", "xla")
        for flags, words in (((*SINGLE_XLA, "--trainer.accelerator", "cpu"), ("strategies xla and single_xla", "auto, xla or tpu", '"cpu"')),
                             ((*XLA, "--trainer.accelerator", "gpu"), ("strategies xla and single_xla", '"gpu"')),
                             ((*SINGLE_XLA, "--trainer.devices", 2), ("strategy single_xla", "one rank", "2 ranks", "use strategy xla")),
                             ((*named, "--trainer.strategy", "ddp", "--trainer.devices", 2), ("does not train on devices of XLA", "use strategy xla")),
                             ((*named, "--trainer.strategy", "fsdp", "--trainer.devices", 1), ("does not train on devices of XLA", "use strategy xla")),
                             (("--trainer.strategy", "single_xla"), ("no PJRT plug-in is named", "LOCKSTEP_PJRT_PLUGIN", "PJRT_DEVICE")),
                             (("--trainer.strategy", "xla_debug"), ("xla_debug is not available", "use xla")),
                             (("--trainer.strategy", "xla_fsdp"), ("xla_fsdp is not available", "fsdp on CPUs")),
                             ((*SINGLE_XLA, "--trainer.strategy.fallback", "gpu"), ("fallback", "auto, cpu, error"))):
            with self.subTest(flags):
                plugin = {"LOCKSTEP_PJRT_PLUGIN": PLUGIN} if flags[:2] == named else {}
                self.assert_refused(self.start("refused", *flags, **plugin), *words)

    def test_two_plugins_are_named(self):
        self.assert_refused(self.start("two", *SINGLE_XLA, LOCKSTEP_PJRT_PLUGIN="/other.so"), "two PJRT plug-ins are named", PLUGIN, "/other.so")

    def test_fewer_devices_than_were_declared(self):
        self.assert_refused(self.start("few", *XLA, LOCKSTEP_PJRT_DEVICES=1), "not all of these are there", "1 visible xla device")


class TestLostRank(StrategyTest):
    """Ranks that nobody watches: each has to find out by itself."""

    def start_ranks(self, name, world, *flags):
        port = free_port()
        ranks = []
        for rank in range(world):
            place = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world, "GROUP_RANK": 0,
                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "lost"}
            log = open(self.folder / f"{name}_{rank}.txt", "w")
            self.addCleanup(log.close)
            ranks.append(subprocess.Popen(self.command(name, *flags), cwd=SOURCE, stdout=log, stderr=log, env=self.environment(**place)))
        for rank in ranks:
            self.addCleanup(lambda rank=rank: rank.poll() is None and rank.kill())
        return ranks

    def rows(self, name):
        file = self.folder / name / "metrics.csv"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def test_is_named_on_every_rank_within_a_second(self):
        world = 3
        for name, flags in (("in_program", ()), ("on_host", ON_HOST), ("captured", ("--trainer.cuda_graphs", "true"))):
            with self.subTest(name):
                ranks = self.start_ranks(name, world, *XLA, "--trainer.devices", world, "--trainer.max_epochs", -1, "--trainer.max_steps", -1,
                                         "--trainer.log_every_n_steps", 1, *flags)
                deadline = time.monotonic() + 120
                while self.rows(name) < 20 and time.monotonic() < deadline:
                    self.assertTrue(all(rank.poll() is None for rank in ranks), (self.folder / f"{name}_0.txt").read_text())
                    time.sleep(0.05)
                ranks[1].send_signal(signal.SIGKILL)
                lost = time.monotonic()
                for rank in (0, 2):
                    self.assertNotEqual(ranks[rank].wait(timeout=30), 0)
                took = time.monotonic() - lost
                for rank in (0, 2):
                    text = (self.folder / f"{name}_{rank}.txt").read_text()
                    self.assertIn("rank 1", text)
                    self.assertNotIn("PJRT plug-in failed", text)
                self.assertLess(took, 3)  # a second at most, and what a busy machine takes to end processes


if __name__ == "__main__":
    unittest.main()
