"""Checkpoints in the memory of nodes, which are launchers with folders of their own: what becomes of them when ranks, or nodes, are lost."""
import csv
import functools
import os
import pathlib
import re
import resource
import signal
import time
import unittest

from elastic_test import QUICK
from harness import BINARY, DIGITS, SOURCE, ProgramTest, free_port

LOCKSTEP = BINARY / "bin" / "lockstep"
CASE = BINARY / "bin" / "resume_case"
SAVE_CASE = BINARY / "bin" / "save_case"
SIGNAL_CASE = BINARY / "bin" / "signal_case"
STEPS = 33  # of resume_case: 3 epochs of 11 batches, with two ranks
DEFAULT_FOLDER = pathlib.Path("/dev/shm") / f"lockstep-{os.geteuid()}"
KILL_EVERY = int(os.environ.get("LOCKSTEP_LOCAL_KILL_EVERY", "5"))  # of the calls that write; 1: at each of them
NO_DISK = ("--trainer.enable_checkpointing", "false")


class LocalCheckpoint(ProgramTest):
    def command(self, name, *flags, resume=("--resume", "auto"), local="1"):
        local = ["--trainer.local_checkpoint.every_n_train_steps", local] if local else []
        return [CASE, "fit", *resume, "--run_dir", self.folder / name, "--save_weights", self.folder / f"{name}.safetensors",
                "--seed_everything", 5, "--trainer.strategy", "ddp", "--trainer.log_every_n_steps", 1, *local, *flags]

    def fault(self, step, rank=1):
        return ["--fault.kind", "kill", "--fault.rank", rank, "--fault.step", step]

    def weights(self, name):
        return (self.folder / f"{name}.safetensors").read_bytes()

    def train(self, name, *flags, ranks=2, **how):
        """On one node."""
        result = self.run_program(LOCKSTEP, "run", "--nproc-per-node", ranks, "--max-restarts", 1,
                                  *self.command(name, *flags, *NO_DISK, **how))
        self.assertEqual(result.code, 0, result)
        return self.weights(name), result

    def script(self, rank, *lines):
        """Runs a program as a rank of node `rank`, with the memory of that."""
        script = self.folder / f"node{rank}.sh"
        text = [f"#!/bin/sh\nHERE={self.memory(rank)}", *lines, 'exec "$@" --trainer.local_checkpoint.folder $HERE\n']
        script.write_text("\n".join(text))
        script.chmod(0o755)
        return script

    def node(self, rank, command, before="", nodes=2):
        """One of several launchers of one rank; in its second life a rank runs `before` first."""
        script = self.script(rank, f'[ $LOCKSTEP_ROUND = 1 ] && {{ {before or ":"}\n}}')
        return self.start(LOCKSTEP, "run", "--nnodes", nodes, "--node-rank", rank, "--master-port", self.port, "--max-restarts", 1,
                          "--rdzv-conf", QUICK, script, *command)

    def memory(self, rank):
        return self.folder / f"memory{rank}"

    def train_on_nodes(self, name, *flags, nodes=2, before=None, **how):
        self.port = free_port()
        processes = [self.node(rank, self.command(name, *flags, **how), (before or {}).get(rank, ""), nodes) for rank in range(nodes)]
        results = [self.finish(process) for process in processes]
        for result in results:
            self.assertEqual(result.code, 0, "\n".join(map(str, results)))
        return self.weights(name), "\n".join(result.err for result in results)

    def assert_went_on(self, err, steps):
        """From a local checkpoint of one of these steps."""
        found = re.search(r"going on from (\S+)/step=(\d+), epoch", err)
        self.assertIsNotNone(found, err)
        self.assertIn(int(found[2]), steps, err)
        return pathlib.Path(found[1]), int(found[2])

    def steps_logged(self, name):
        with open(self.folder / name) as file:
            return [int(row["step"]) for row in csv.DictReader(file) if row.get("train_loss_step")]

    def test_a_killed_rank_goes_on_from_memory(self):
        undisturbed, _ = self.train("undisturbed", local=None)
        for every, steps in ((1, (14, 15)), (4, (8, 12))):
            with self.subTest(every_n_train_steps=every):
                name = f"every_{every}"
                weights, result = self.train(name, *self.fault(15), local=every)
                self.assertEqual(weights, undisturbed)
                folder, step = self.assert_went_on(result.err, steps)
                self.assertEqual(folder.parent, DEFAULT_FOLDER)
                self.assertFalse(folder.exists(), "a fit that ends well removes them")
                self.assertEqual(self.steps_logged(f"{name}/metrics.csv"), list(range(step - 1, STEPS)))
                self.assertEqual(os.listdir(self.folder / name / "checkpoints"), [])

    def test_it_needs_no_flag_to_go_on_within_a_job(self):
        undisturbed, _ = self.train("undisturbed", local=None)
        weights, result = self.train("run", *self.fault(15), resume=())
        self.assertEqual(weights, undisturbed)
        self.assert_went_on(result.err, (14, 15))

    def test_one_rank(self):
        flags = ["--case.batch_size", 8]
        undisturbed, _ = self.train("undisturbed", *flags, ranks=1, local=None)
        weights, result = self.train("run", *flags, *self.fault(15, rank=0), ranks=1)
        self.assertEqual(weights, undisturbed)
        self.assert_went_on(result.err, (14, 15))

    def test_shards(self):
        sharded = ["--trainer.strategy", "fsdp", "--trainer.strategy.auto_wrap_policy", "Linear", "--trainer.accumulate_grad_batches", 2]
        undisturbed, _ = self.train("undisturbed", *sharded, local=None)
        weights, result = self.train("run", *sharded, *self.fault(8))
        self.assertEqual(weights, undisturbed)
        self.assert_went_on(result.err, (7, 8))

    def test_a_node_that_lost_its_memory_gets_it_from_its_neighbour(self):
        undisturbed, _ = self.train_on_nodes("undisturbed", *NO_DISK)
        for lost in (0, 1):
            with self.subTest(lost=lost):
                weights, err = self.train_on_nodes(f"lost_{lost}", *NO_DISK, *self.fault(15), before={lost: 'rm -r "$HERE"'})
                self.assertEqual(weights, undisturbed)
                self.assert_went_on(err, (14, 15))
                self.assertEqual(os.listdir(self.memory(0)) + os.listdir(self.memory(1)), [])

    def test_three_nodes(self):
        flags = ["--case.num_samples", 132]  # as many steps
        undisturbed, _ = self.train_on_nodes("undisturbed", *flags, *NO_DISK, nodes=3)
        wiped = {1: 'rm -r "$HERE"', 2: 'rm -r "$HERE"'}
        with self.subTest("one lost, two copies"):
            weights, err = self.train_on_nodes("one", *flags, *NO_DISK, *self.fault(15), nodes=3, before={1: wiped[1]})
            self.assertEqual(weights, undisturbed)
            self.assert_went_on(err, (14, 15))
        with self.subTest("two lost, three copies"):
            weights, err = self.train_on_nodes("two", *flags, *NO_DISK, *self.fault(15), "--trainer.local_checkpoint.replication_factor", 3,
                                               nodes=3, before=wiped)
            self.assertEqual(weights, undisturbed)
            self.assert_went_on(err, (14, 15))
        with self.subTest("two lost, two copies: from the disk"):
            weights, err = self.train_on_nodes("disk", *flags, *self.fault(15), "--case.every_n_train_steps", 10, nodes=3, before=wiped)
            self.assertEqual(weights, undisturbed)
            self.assertRegex(err, r"not resuming from local checkpoint \S+/step=1[45].*not whole.*rank_1.safetensors")
            self.assertRegex(err, r"going on from \S+step=10")

    def test_a_damaged_one_is_refused_and_the_disk_is_used(self):
        undisturbed, _ = self.train_on_nodes("undisturbed", *NO_DISK)
        damage = 'for f in $HERE/*/step=*/rank_1.safetensors; do printf x | dd of=$f bs=1 seek=100 conv=notrunc 2>&-; done'
        flags = ["--case.every_n_train_steps", 10]
        weights, err = self.train_on_nodes("run", *flags, *self.fault(15), before={0: damage, 1: damage})
        self.assertEqual(weights, undisturbed)
        self.assertRegex(err, r"not resuming from local checkpoint .*rank_1.safetensors.*damaged")
        self.assertRegex(err, r"going on from \S+/checkpoints/\S+step=10.ckpt")

    def test_the_disk_of_this_job_is_used_without_a_flag_too(self):
        undisturbed, _ = self.train_on_nodes("undisturbed", *NO_DISK)
        flags = ["--case.every_n_train_steps", 10]
        damage = "for f in $HERE/*/step=*/manifest.json; do echo > $f; done"
        for name, spoil in (("damaged", damage), ("lost", 'rm -r "$HERE"')):
            with self.subTest(name):
                weights, err = self.train_on_nodes(name, *flags, *self.fault(15), before={0: spoil, 1: spoil}, resume=())
                self.assertEqual(weights, undisturbed)
                self.assertRegex(err, r"going on from \S+/checkpoints/\S+step=10.ckpt")

    def test_a_launcher_that_has_just_come_is_told_of_the_lives_before(self):
        """As one of torchrun's agents, each of which counts for itself."""
        undisturbed, _ = self.train_on_nodes("undisturbed", *NO_DISK)
        weights, err = self.train_on_nodes("run", *NO_DISK, *self.fault(15, rank=0), resume=(),
                                           before={1: "export LOCKSTEP_ROUND=0 TORCHELASTIC_RESTART_COUNT=0"})
        self.assertEqual(weights, undisturbed)
        self.assert_went_on(err, (14, 15))

    def test_a_node_that_is_killed_and_comes_back(self):
        undisturbed, _ = self.train_on_nodes("undisturbed", *NO_DISK)
        self.port = free_port()
        hang = ["--fault.kind", "hang", "--fault.rank", 1, "--fault.step", 15]
        first = '[ $LOCKSTEP_ROUND = 0 ] && set -- "$@" ' + " ".join(map(str, hang))
        command = self.command("run", *NO_DISK, resume=())
        scripts = [self.script(rank, first) for rank in range(2)]
        start = lambda rank: self.start(LOCKSTEP, "run", "--nnodes", 2, "--node-rank", rank, "--master-port", self.port, "--max-restarts", 1,
                                        "--rdzv-conf", QUICK, scripts[rank], *command)
        nodes = [start(0), start(1)]
        self.addCleanup(lambda: [node.kill() for node in nodes if node.poll() is None])
        self.wait_for_local(14, 15)
        nodes[1].kill()
        nodes[1].communicate()
        nodes[1] = start(1)
        results = [self.finish(node) for node in nodes]
        for result in results:
            self.assertEqual(result.code, 0, "\n".join(map(str, results)))
        self.assert_went_on("\n".join(result.err for result in results), (14, 15))
        self.assertEqual(self.weights("run"), undisturbed)

    def wait_for_local(self, *steps):
        """Until both nodes have a checkpoint of one of these steps."""
        deadline = time.monotonic() + 60
        wanted = {f"step={step}" for step in steps}
        while not all(wanted & {path.name for path in self.memory(rank).glob("*/step=*")} for rank in range(2)):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def test_what_another_job_has_left_is_not_this_ones(self):
        place = ["--trainer.local_checkpoint.folder", self.memory(0)]
        self.run_program(LOCKSTEP, "run", *self.command("run", *NO_DISK, *self.fault(15, rank=0), *place))
        self.assertNotEqual(list(self.memory(0).glob("*/step=*")), [])
        script = self.script(0, "[ $LOCKSTEP_ROUND = 0 ] && exit 9")  # before it could forget them
        result = self.run_program(LOCKSTEP, "run", "--max-restarts", 1, script, *self.command("run", *NO_DISK, resume=()))
        self.assertEqual(result.code, 0, result)
        self.assertIn("restart 1 of 1", result.err)
        self.assertNotIn("going on from", result.err)
        self.assertEqual(self.steps_logged("run/metrics.csv")[0], 0)

    def slow(self, name, rank, *flags):
        """One of two nodes of a run of 32 steps that takes its time."""
        return self.start(LOCKSTEP, "run", "--nnodes", 2, "--node-rank", rank, "--master-port", self.port, "--rdzv-conf", QUICK, SIGNAL_CASE,
                          "--run_dir", self.folder / name, "--case.step_time", "50ms", "--trainer.local_checkpoint.every_n_train_steps", 1,
                          "--trainer.local_checkpoint.folder", self.memory(rank), *flags)

    def test_all_nodes_keep_theirs_where_one_file_is_missing_in_the_end(self):
        self.port = free_port()
        weights = self.folder / "weights.safetensors"
        nodes = [self.slow("run", rank, "--save_weights", weights) for rank in range(2)]
        self.wait_for_local(*range(1, 33))
        (weights / "in the way").mkdir(parents=True)
        results = [self.finish(node) for node in nodes]
        self.assertNotEqual([result.code for result in results], [0, 0], "\n".join(map(str, results)))
        for rank in range(2):
            self.assertEqual([path.name for path in self.memory(rank).glob("*/step=*")], ["step=32"])

    def test_a_run_that_was_asked_to_end_leaves_the_disks_only(self):
        for disk, left in (((), 0), (NO_DISK, 1)):
            with self.subTest(disk=disk):
                self.port = free_port()
                name = "without" if disk else "with"
                nodes = [self.slow(name, rank, *disk) for rank in range(2)]
                self.wait_for_local(*range(1, 33))
                for node in nodes:
                    node.terminate()
                results = [self.finish(node) for node in nodes]
                self.assertEqual([result.code for result in results], [143, 143], "\n".join(map(str, results)))
                self.assertEqual((self.folder / name / "checkpoints" / "last.ckpt").exists(), not disk)
                for rank in range(2):
                    self.assertEqual(len(list(self.memory(rank).glob("*/step=*"))), left)

    def test_the_disk_is_used_where_it_is_newer(self):
        undisturbed, _ = self.train_on_nodes("undisturbed", *NO_DISK)
        for resume in (("--resume", "auto"), ()):
            with self.subTest(resume=resume):
                weights, err = self.train_on_nodes("run" + "".join(resume), "--case.every_n_train_steps", 5, *self.fault(16), local=7,
                                                   resume=resume)
                self.assertEqual(weights, undisturbed)
                self.assertRegex(err, r"going on from \S+/checkpoints/\S+step=15.ckpt")

    def test_the_disk_is_used_on_another_number_of_ranks(self):
        fallen = self.run_program(LOCKSTEP, "run", "--nproc-per-node", 2, *self.command(
            "run", *self.fault(15), "--case.every_n_train_steps", 10, "--trainer.local_checkpoint.folder", self.memory(0)))
        self.assertNotEqual(fallen.code, 0)
        result = self.run_program(*self.command("run", "--case.batch_size", 8, "--trainer.local_checkpoint.folder", self.memory(0)))
        self.assertEqual(result.code, 0, result)
        self.assertRegex(result.err, r"another number of ranks; expected 1; got 2")
        self.assertRegex(result.err, r"going on from \S+/checkpoints/\S+step=10.ckpt")

    def test_a_run_that_begins_anew_forgets_what_was_there(self):
        place = ["--trainer.local_checkpoint.folder", self.memory(0)]
        self.run_program(LOCKSTEP, "run", "--nproc-per-node", 2, *self.command("run", *NO_DISK, *self.fault(15), *place))
        self.assertNotEqual(list(self.memory(0).glob("*/step=*")), [])
        self.run_program(LOCKSTEP, "run", "--nproc-per-node", 2,
                         *self.command("run", *NO_DISK, *self.fault(3), *place, resume=(), local=4))
        self.assertEqual(list(self.memory(0).glob("*/step=*")), [])

    def test_without_room_training_goes_on(self):
        limit = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (1 << 18, 1 << 18))
        process = self.start(DIGITS, "--run_dir", self.folder / "run", "--data.file", SOURCE / "data" / "digits.csv.gz", *NO_DISK,
                             "--trainer.max_steps", 20, "--model.hidden", 2048, "--trainer.devices", 2,
                             "--trainer.local_checkpoint.every_n_train_steps", 5, "--trainer.local_checkpoint.folder", self.memory(0),
                             preexec_fn=limit)
        result = self.finish(process)
        self.assertEqual(result.code, 0, result)
        self.assertIn("File too large", result.err)
        self.assertIn("training goes on", result.err)
        self.assertEqual(os.listdir(self.memory(0)), [])

    def test_foreign_folders_are_refused(self):
        for name, make in (("link", lambda path: path.symlink_to(self.folder)), ("open", lambda path: (path.mkdir(), path.chmod(0o777))),
                           ("file", lambda path: path.touch())):
            with self.subTest(name):
                path = self.folder / name
                make(path)
                result = self.digits("--trainer.local_checkpoint.every_n_train_steps", 5, "--trainer.local_checkpoint.folder", path)
                self.assert_refused(result, 2, path, "local_checkpoint")

    def test_killed_in_any_call_that_writes_one_is_whole(self):
        numbers = []
        for call in range(0, 1000, KILL_EVERY):
            folder = self.folder / str(call)
            folder.mkdir()
            killed = self.run_program(SAVE_CASE, f"local_killed:{call}", folder)
            checked = self.run_program(SAVE_CASE, "local_check", folder)
            self.assertEqual(checked.code, 0, checked)
            numbers.append(int(checked.out))
            if killed.code == 0:
                break
            self.assertEqual(killed.code, -signal.SIGKILL, killed)
        self.assertGreater(len(numbers) * KILL_EVERY, 60)
        self.assertEqual(set(numbers), {1, 2}, numbers)
        self.assertEqual(numbers[0], 1)

    def test_each_call_that_writes_may_fail(self):
        folder = self.folder / "x"
        result = self.finish(self.start(SAVE_CASE, "local_faults", folder), deadline_s=300)
        self.assertEqual(result.code, 0, result)
        self.assertGreater(int(result.out.split()[0]), 15, result)


if __name__ == "__main__":
    unittest.main()
