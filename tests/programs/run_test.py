"""What runs leave behind, and that flags change what happens."""
import csv
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from harness import BINARY, DIGITS, PEERS_PYTHON, SOURCE, ProgramTest, free_port


class Run(ProgramTest):
    def summary(self):
        return json.loads((self.folder / "run" / "summary.json").read_text())

    def metrics(self):
        with open(self.folder / "run" / "metrics.csv") as file:
            return list(csv.DictReader(file))

    def succeed(self, *flags, **environment):
        result = self.digits(*flags, **environment)
        self.assertEqual(result.code, 0, result)
        return result

    def test_run_directory_of_two_ranks(self):
        self.succeed("--trainer.devices", 2, "--trainer.strategy", "ddp", "--trainer.max_epochs", 2)
        run = self.folder / "run"
        summary = self.summary()
        self.assertEqual({"status": "success", "strategy": "ddp", "world_size": 2, "epochs": 2, "steps": 46,
                          "comm_backend": "sockets"}, {k: summary[k] for k in ("status", "strategy", "world_size", "epochs", "steps", "comm_backend")})
        self.assertEqual(summary["samples"], 2 * 1438)
        self.assertEqual(len(summary["peak_rss_bytes_per_rank"]), 2)
        self.assertGreater(summary["bytes_sent_per_step"], 1000)
        self.assertGreater(summary["start_to_first_collective_s"], 0)
        self.assertLess(summary["metrics"]["val_loss"], 2)
        self.assertEqual(set(summary["versions"]), {"lockstep", "libtorch"})
        self.assertEqual(set(json.loads((run / "ranks.json").read_text())), {"0", "1"})
        self.assertTrue((run / "logs" / "rank_1.log").exists())
        self.assertEqual(list(self.metrics()[0])[:2], ["epoch", "step"])

    def test_a_run_that_goes_on_tells_its_legs_apart(self):
        self.succeed("--trainer.max_epochs", 1)
        first = self.summary()
        self.assertEqual(first["this_leg"], {name: first[name] for name in ("steps", "samples", "seconds", "samples_per_second")})
        self.succeed("--trainer.max_epochs", 3, "--ckpt_path", "last")
        both = self.summary()
        self.assertEqual((both["steps"], both["samples"]), (3 * first["steps"], 3 * first["samples"]))
        leg = both["this_leg"]
        self.assertEqual((leg["steps"], leg["samples"]), (2 * first["steps"], 2 * first["samples"]))
        self.assertGreater(leg["seconds"], 0)
        self.assertGreater(both["seconds"], leg["seconds"])
        self.assertLess(both["seconds"], leg["seconds"] + first["seconds"] + 1e-9)
        self.assertAlmostEqual(both["samples_per_second"], both["samples"] / both["seconds"], places=3)

    def test_what_concerns_the_run_is_said_once(self):
        result = self.succeed("--trainer.devices", 2, "--trainer.fast_dev_run", "true", "--trainer.precision", "bf16",
                              "--trainer.benchmark", "true", "--trainer.deterministic", "true", "--trainer.use_distributed_sampler", "false")
        for text in ("fast_dev_run: 1 batch", "is an old name", "benchmark = true with deterministic",
                     "2 ranks train on the same samples", f"run directory: {self.folder / 'run'}"):
            self.assertEqual(result.err.count(text), 1, (text, result))
        self.assertNotIn("the same samples", self.succeed("--trainer.devices", 2, "--trainer.fast_dev_run", "true").err)

    def test_validation_counts_every_sample_once(self):
        self.succeed("--trainer.devices", 2, "--trainer.max_epochs", 1, "--seed_everything", 1, "--save_weights", self.folder / "w.safetensors")
        two_ranks = self.summary()["metrics"]
        self.succeed("validate", "--init_weights", self.folder / "w.safetensors")
        one_rank = self.summary()["metrics"]
        self.assertAlmostEqual(two_ranks["val_accuracy"], one_rank["val_accuracy"], places=6)
        self.assertAlmostEqual(two_ranks["val_loss"], one_rank["val_loss"], places=5)

    def test_validate_shows_its_results(self):
        result = self.succeed("validate")
        self.assertRegex(result.out, r"Validate metric[^$]*val_accuracy\s+0\.\d+")

    def test_python_reads_the_checkpoint(self):
        self.succeed("--trainer.max_epochs", 1, "--model.hidden", "16,8")
        checkpoint = self.folder / "run" / "checkpoints" / "last.ckpt"
        manifest = json.loads((checkpoint / "manifest.json").read_text())
        self.assertEqual(manifest["global_step"], 45)
        script = ("import sys, safetensors.torch as s; t = s.load_file(sys.argv[1]); "
                  "print(sorted((k, tuple(v.shape)) for k, v in t.items()))")
        out = subprocess.run([PEERS_PYTHON, "-c", script, checkpoint / "model.safetensors"], check=True, capture_output=True, text=True).stdout
        self.assertEqual(eval(out), [("net.0.bias", (16,)), ("net.0.weight", (16, 64)), ("net.2.bias", (8,)), ("net.2.weight", (8, 16)), ("net.4.bias", (10,)), ("net.4.weight", (10, 8))])
        self.assertEqual(manifest["tensors"]["model/net.0.weight"]["shape"], [16, 64])

    def test_same_bits_twice(self):
        for name in ("a", "b"):
            self.succeed("--trainer.devices", 2, "--trainer.max_epochs", 1, "--seed_everything", 7, "--save_weights", self.folder / name)
        self.assertEqual((self.folder / "a").read_bytes(), (self.folder / "b").read_bytes())
        self.succeed("--trainer.devices", 2, "--trainer.max_epochs", 1, "--seed_everything", 8, "--save_weights", self.folder / "c")
        self.assertNotEqual((self.folder / "a").read_bytes(), (self.folder / "c").read_bytes())

    def test_printed_config_repeats_the_run(self):
        flags = ["--trainer.devices", "2", "--trainer.max_epochs", 1, "--optimizer.name", "sgd", "--optimizer.lr", "0.1", "--model.hidden", "32", "--seed_everything", 3]
        printed = self.succeed(*flags, "--print_config").out
        config = self.folder / "printed.yaml"
        config.write_text(printed)
        self.succeed(*flags, "--save_weights", self.folder / "a")
        self.succeed("-c", config, "--save_weights", self.folder / "b")
        self.assertEqual((self.folder / "a").read_bytes(), (self.folder / "b").read_bytes())
        self.assertIn("trainer:", (self.folder / "run" / "config.yaml").read_text())

    def test_flags_win_over_environment_over_yaml(self):
        config = self.folder / "run.yaml"
        config.write_text("trainer:\n  max_epochs: 1\n  limit_train_batches: 2\n  limit_val_batches: 1\n")
        self.succeed("-c", config)
        self.assertEqual((self.summary()["epochs"], self.summary()["steps"]), (1, 2))
        self.succeed("-c", config, LOCKSTEP_TRAINER_MAX_EPOCHS="2")
        self.assertEqual(self.summary()["epochs"], 2)
        self.succeed("-c", config, "--trainer.max_epochs", 3, LOCKSTEP_TRAINER_MAX_EPOCHS="2")
        self.assertEqual(self.summary()["epochs"], 3)

    def test_accumulation_and_max_steps(self):
        self.succeed("--trainer.accumulate_grad_batches", 4, "--trainer.max_epochs", 1)
        self.assertEqual(self.summary()["steps"], 12)
        self.succeed("--trainer.max_steps", 7)
        self.assertEqual(self.summary()["steps"], 7)

    def test_log_every_n_steps(self):
        self.succeed("--trainer.max_epochs", 1, "--trainer.log_every_n_steps", 10)
        steps = [int(row["step"]) for row in self.metrics() if row["train_loss_step"]]
        self.assertEqual(steps, [9, 19, 29, 39])

    def test_a_resumed_run_keeps_its_rate_and_records_it(self):
        first, second, third = (self.folder / name for name in ("first", "second", "third"))
        sgd = ["--optimizer.name", "sgd"]
        self.succeed("--run_dir", first, "--trainer.max_epochs", 1, *sgd, "--optimizer.lr", 0.01)
        last = ["--ckpt_path", first / "checkpoints" / "last.ckpt", "--trainer.max_epochs", 2]
        result = self.digits("--run_dir", second, *last, *sgd, "--optimizer.lr", 0.5, "--trainer.devices", 2,
                             "--trainer.strategy", "ddp")
        self.assertEqual(result.code, 0, result)
        said = [line for line in result.err.splitlines() if "lr 0.01, not 0.5" in line]
        self.assertEqual(len(said), 1, result)
        self.assertIn("warning: ", said[0])
        for record in ("config.yaml", "hparams.yaml"):
            self.assertRegex((second / record).read_text(), r"\n  lr: 0.01\n", record)
        quiet = self.digits("--run_dir", third, *last, "-c", second / "config.yaml", "--trainer.max_epochs", 3)
        self.assertEqual(quiet.code, 0, quiet)
        self.assertNotIn("settings of its checkpoint", quiet.err)

    def test_versions_of_the_run_directory(self):
        for _ in range(2):
            result = self.run_program(DIGITS, "--trainer.max_epochs", 0, "--data.file", SOURCE / "data" / "digits.csv.gz")
            self.assertEqual(result.code, 0, result)
        self.assertEqual(sorted(os.listdir(self.folder / "runs" / "digits")), ["version_0", "version_1"])

    def test_a_run_directory_has_one_run_at_a_time(self):
        """Until that run ends, however it ends; its files stay as they are."""
        run, data = self.folder / "run", ("--data.file", SOURCE / "data" / "digits.csv.gz")
        for ranks in ((), ("--trainer.devices", 2, "--trainer.strategy", "ddp")):
            hanging = self.start(DIGITS, *ranks, "--fault.kind", "hang", "--fault.rank", 0, "--fault.step", 2, *data, "--run_dir", run)
            self.wait_for("run/run.json", "run/ranks.json", "run/hparams.yaml")
            files = lambda: {name: os.stat(run / name).st_ino for name in os.listdir(run) if not name.startswith(".")}
            before = files()
            for second in (("fit", *ranks), ("fit", "--trainer.devices", 2, "--trainer.strategy", "ddp"), ("test", "--ckpt_path", "last")):
                result = self.digits(*second)
                self.assert_refused(result, 2, f"run directory {run} is in use", "another process", "--run_dir")
            self.assertEqual(files(), before)
            hanging.kill()
            self.finish(hanging)
            self.succeed(*ranks, "--trainer.max_epochs", 1)
            for name in os.listdir(run):
                if (run / name).is_file():
                    (run / name).unlink()

    def test_two_nodes(self):
        port = str(free_port())
        nodes = [self.start(DIGITS, *["--trainer.max_epochs", 1, "--seed_everything", 7, "--trainer.strategy", "ddp", "--trainer.devices", 2,
                                      "--trainer.num_nodes", 2, "--trainer.strategy.timeout", "60s", "--run_dir", self.folder / f"node{node}",
                                      "--data.file", SOURCE / "data" / "digits.csv.gz", "--save_weights", self.folder / "two_nodes"],
                            MASTER_ADDR="127.0.0.1", MASTER_PORT=port, NODE_RANK=str(node)) for node in (0, 1)]
        for node in nodes:
            result = self.finish(node)
            self.assertEqual(result.code, 0, result)
        summary = json.loads((self.folder / "node0" / "summary.json").read_text())
        self.assertEqual((summary["world_size"], summary["steps"]), (4, 12))
        self.succeed("--trainer.devices", 4, "--trainer.max_epochs", 1, "--seed_everything", 7, "--save_weights", self.folder / "one_node")
        self.assertEqual((self.folder / "two_nodes").read_bytes(), (self.folder / "one_node").read_bytes())

    def test_workers_do_not_change_the_result(self):
        for workers in (0, 2):
            self.succeed("--trainer.max_epochs", 1, "--seed_everything", 5, "--data.num_workers", workers, "--save_weights", self.folder / str(workers))
        self.assertEqual((self.folder / "0").read_bytes(), (self.folder / "2").read_bytes())

    def test_torchrun_joins(self):
        script = "import sys; from torch.distributed.run import main; main()"
        command = [PEERS_PYTHON, "-c", script, "--no-python", "--nproc-per-node", 2, "--master-port", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0",
                   DIGITS, "--trainer.max_epochs", 1, "--trainer.strategy", "ddp", "--seed_everything", 7, "--data.file", SOURCE / "data" / "digits.csv.gz",
                   "--run_dir", self.folder / "run", "--save_weights", self.folder / "torchrun"]
        result = self.run_program(*command)
        self.assertEqual(result.code, 0, result)
        self.assertEqual(self.summary()["world_size"], 2)
        self.assertEqual(set(json.loads((self.folder / "run" / "ranks.json").read_text())), {"0", "1"})
        self.succeed("--trainer.devices", 2, "--trainer.max_epochs", 1, "--seed_everything", 7, "--save_weights", self.folder / "own")
        self.assertEqual((self.folder / "torchrun").read_bytes(), (self.folder / "own").read_bytes())


class RanksAskedForInCode(ProgramTest):
    def run_in_code(self, how):
        return self.run_program(BINARY / "bin" / "in_code", *([how] if how else []))

    def test_a_trainer_starts_copies_of_its_program(self):
        result = self.run_in_code("trainer")
        self.assertEqual((result.code, result.out.count("world size 2")), (0, 1), result)
        summary = json.loads((self.folder / "runs" / "lockstep" / "version_0" / "summary.json").read_text())
        self.assertEqual(summary["world_size"], 2)

    def test_a_trainer_within_run_does_so_too(self):
        result = self.run_in_code("")
        self.assertEqual((result.code, result.out.count("world size 2")), (0, 1), result)

    def test_one_rank_may_stop_all(self):
        result = self.run_in_code("stop")
        self.assertEqual((result.code, result.out.count("world size 2, epochs 1")), (0, 1), result)

    def test_a_late_failure_of_another_rank_is_the_runs(self):
        for hook in ("fit_end", "teardown"):
            with self.subTest(hook):
                run = self.folder / hook
                result = self.run_program(BINARY / "bin" / "in_code", hook, "--trainer.devices", 2, "--run_dir", run)
                self.assert_refused(result, 1, "the upload was refused", "rank 1")
                summary = run / "summary.json"  # not there, if rank 0 was stopped before it had heard
                self.assertTrue(not summary.exists() or json.loads(summary.read_text())["status"] == "failed")
                failure = json.loads((run / "failure.json").read_text())
                self.assertEqual((failure["rank"], "the upload was refused" in failure["message"]), (1, True), failure)

    def test_two_trainers_one_after_the_other(self):
        result = self.run_in_code("twice")
        self.assertEqual((result.code, result.out.count("world size 2, epochs 1")), (0, 2), result)

    def test_ddp_fork_says_why_it_cannot(self):
        result = self.run_in_code("fork")
        self.assertNotEqual(result.code, 0, result)
        self.assertIn("ddp_fork", result.err)

    def test_devices_other_than_the_launchers_name_both(self):
        ranks = dict(TORCHELASTIC_RUN_ID="none", RANK="0", LOCAL_RANK="0", WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
        result = self.digits("--trainer.devices", 3, **ranks)
        self.assert_refused(result, 2, "3", "2", "WORLD_SIZE")
        result = self.digits("--trainer.devices", 1, **ranks)
        self.assert_refused(result, 2, "1", "2", "WORLD_SIZE")


class Failure(ProgramTest):
    def fail_with(self, kind, step=3, *flags):
        begin = time.monotonic()
        result = self.digits("--trainer.devices", 2, "--trainer.strategy", "ddp", "--fault.kind", kind, "--fault.rank", 1, "--fault.step", step, *flags)
        self.seconds = time.monotonic() - begin
        return result, json.loads((self.folder / "run" / "failure.json").read_text())

    def test_killed_rank_is_named(self):
        result, failure = self.fail_with("kill")
        self.assertEqual(result.code, 128 + signal.SIGKILL, result)
        self.assertRegex(result.err, r"lockstep: rank 1 \(node 0, pid \d+\) killed by SIGKILL (in|after) all_reduce seq \d+")
        self.assertEqual(failure["rank"], 1)

    def test_exit_code_is_passed_on(self):
        result, failure = self.fail_with("exit")
        self.assertEqual(result.code, failure["exit_code"], result)
        self.assertIn("rank 1", result.err)

    def test_thrown_error_is_the_cause_not_its_echo(self):
        result, _ = self.fail_with("throw")
        self.assertEqual(result.code, 1, result)
        self.assertEqual(len([line for line in result.err.splitlines() if line.startswith("lockstep:")]), 1, result)
        self.assertIn("rank 1", result.err)

    def test_abort(self):
        result, _ = self.fail_with("abort")
        self.assertEqual(result.code, 128 + signal.SIGABRT, result)

    def test_stopped_rank_ends_in_the_deadline(self):
        result, _ = self.fail_with("stop", 3, "--trainer.strategy.timeout", "3s")
        self.assertNotEqual(result.code, 0, result)

    def test_nobody_survives_the_parent(self):
        process = self.start(DIGITS, "--trainer.devices", 2, "--trainer.strategy", "ddp", "--fault.kind", "hang", "--fault.rank", 1, "--fault.step", 2,
                             "--data.file", SOURCE / "data" / "digits.csv.gz", "--run_dir", self.folder / "run")
        ranks_file = self.folder / "run" / "ranks.json"
        deadline = time.monotonic() + 60
        while not ranks_file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        pids = list(json.loads(ranks_file.read_text()).values())
        names = lambda: {pathlib.Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids}
        while names() != {"rank-0", "rank-1"} and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(names(), {"rank-0", "rank-1"})
        process.kill()
        self.finish(process)
        self.assert_ended(pids)

    def test_ctrl_c_and_sigterm(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = self.start(DIGITS, "--trainer.devices", 2, "--trainer.strategy", "ddp", "--fault.kind", "hang", "--fault.rank", 1, "--fault.step", 2,
                                 "--data.file", SOURCE / "data" / "digits.csv.gz", "--run_dir", self.folder / str(code))
            ranks_file = self.folder / str(code) / "ranks.json"
            deadline = time.monotonic() + 60
            while not ranks_file.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(1)
            process.send_signal(number)
            self.assertEqual(self.finish(process).code, code)


if __name__ == "__main__":
    unittest.main()
