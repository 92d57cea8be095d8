"""Fabric on real ranks: every case of fabric_case on one, two and three of them, and the example."""
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "programs"))
from harness import BINARY, PEERS_PYTHON, SOURCE, ProgramTest

PROGRAM = BINARY / "bin" / "fabric_case"
EXAMPLE = BINARY / "bin" / "example_02_fabric"
TORCHRUN = [PEERS_PYTHON, "-c", "from torch.distributed.run import main; main()", "--no-python", "--nproc-per-node", 2,
            "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
CASES = re.findall(r"^void (\w+)\(ls::Fabric& fabric\);", (pathlib.Path(__file__).parent / "cases.h").read_text(), re.M)


# What these do is not what a sharded model does.
NOT_SHARDED = {
    "accumulation": "counts the bytes of ddp",
    "changed_models": "converts a model after setup",
    "clipping": "looks at the gradients of the model's own tensors",
    "lost_losses": "expects ddp's error for parameters without gradient",
    "released_amid_accumulation": "makes strategies of its own",
    "released_and_converted": "makes strategies of its own",
    "released_and_frozen": "makes strategies of its own",
    "released_with_state_on_disk": "makes strategies of its own",
    "several_models": "looks at the gradients of the model's own tensors",
    "towers": "lets ranks use models in different orders",
}


class Cases(ProgramTest):
    def hold(self, ranks, *flags, leaving_out=()):
        self.assertGreater(len(CASES), 10)
        self.assertLessEqual(set(leaving_out), set(CASES))
        for case in CASES:
            if case in leaving_out:
                continue
            with self.subTest(case):
                folder = self.folder / case
                folder.mkdir()
                process = self.start(PROGRAM, case, "--fabric.devices", ranks, *flags, cwd=folder)
                result = self.finish(process)
                self.assertEqual(result.code, 0, result)

    def test_one_rank(self):
        self.hold(1)

    def test_two_ranks(self):
        self.hold(2)

    def test_three_ranks(self):
        self.hold(3)

    def test_two_ranks_in_shards(self):
        self.hold(2, "--fabric.strategy", "fsdp", leaving_out=NOT_SHARDED)


class Launch(ProgramTest):
    def test_launch_starts_copies_of_the_program(self):
        result = self.run_program(PROGRAM, "in_code")
        self.assertEqual((result.code, result.out.count("world size 2")), (0, 1), result)

    def test_setup_needs_launch(self):
        result = self.run_program(PROGRAM, "before_launch")
        self.assertEqual(result.code, 0, result)

    def test_print_comes_from_rank_zero(self):
        result = self.run_program(PROGRAM, "properties", "--fabric.devices", 2)
        self.assertEqual((result.code, result.out.count("printed once")), (0, 1), result)

    def test_flags(self):
        printed = self.run_program(PROGRAM, "properties", "--fabric.devices", 2, "--fabric.strategy.bucket_cap_mb", 3, "--seed_everything", 4, "--print_config")
        self.assertEqual(printed.code, 0, printed)
        for line in ("seed_everything: 4", "devices: 2", "bucket_cap_mb: 3"):
            self.assertIn(line, printed.out.replace('"', "").replace("'", ""))
        self.assertNotIn("trainer", printed.out)
        self.assert_refused(self.run_program(PROGRAM, "--fabric.device", 2), 2, "fabric.devices")
        self.assert_refused(self.run_program(PROGRAM, "--trainer.devices", 2), 2, "trainer.devices")
        self.assert_refused(self.run_program(PROGRAM, LOCKSTEP_FABRIC_DEVICES="0"), 2, "devices")
        self.assert_refused(self.run_program(PROGRAM, "--fabric.strategy", "single_device", "--fabric.devices", 2), 2, "single_device")
        self.assert_refused(self.run_program(PROGRAM, "--fabric.accelerator", "tpu"), 2, "tpu")
        self.assert_refused(self.run_program(PROGRAM, "--fabric.num_nodes", 2), 2, "MASTER_PORT")
        self.assert_refused(self.run_program(PROGRAM, "--fabric.precision", "transformer-engine"), 2, "transformer-engine", "docs/status.md")

    def test_run_directory(self):
        result = self.run_program(PROGRAM, "properties", "--fabric.devices", 2, "--run_dir", "here")
        self.assertEqual(result.code, 0, result)
        self.assertTrue((self.folder / "here" / "ranks.json").exists())


class Example(ProgramTest):
    def weights(self, *command, seed=1):
        if not (self.folder / "data").exists():
            (self.folder / "data").symlink_to(SOURCE / "data")
        result = self.run_program(*command, "--seed_everything", seed)
        self.assertEqual(result.code, 0, result)
        self.assertEqual(len(re.findall(r"epoch \d, accuracy", result.out)), 3, result)
        self.assertGreater(float(re.search(r"epoch 2, accuracy (\S+)", result.out).group(1)), 0.7)
        return (self.folder / "net.ckpt" / "model.safetensors").read_bytes()

    def test_own_ranks_and_torchruns(self):
        alone = self.weights(EXAMPLE)
        own = self.weights(EXAMPLE, "--fabric.devices", 2)
        self.assertEqual(own, self.weights(*TORCHRUN, EXAMPLE))
        self.assertNotEqual(alone, own)
        self.assertNotEqual(alone, self.weights(EXAMPLE, seed=2))


if __name__ == "__main__":
    unittest.main()
