"""Bad input: every refusal has its exit code, and names what was wrong, where and what to do."""
import gzip
import os
import socket
import subprocess
import unittest

from harness import BINARY, DIGITS, SOURCE, ProgramTest, free_port

LOCKSTEP = BINARY / "bin" / "lockstep"


class BadInput(ProgramTest):
    def test_unknown_flag_names_the_nearest(self):
        self.assert_refused(self.digits("--trainer.max_epoch", 3), 2, "--trainer.max_epoch", "trainer.max_epochs")

    def test_unknown_yaml_key_names_file_line_and_column(self):
        config = self.folder / "run.yaml"
        config.write_text("trainer:\n  devices: 1\n  max_epoch: 3\n")
        self.assert_refused(self.digits("-c", config), 2, f"{config}:3:3", "trainer.max_epoch", "trainer.max_epochs")

    def test_a_full_disk_behind_stdout(self):
        for command in ([LOCKSTEP, "slurm-script", "./train"], [LOCKSTEP, "--version"], [DIGITS, "fit", "--print_config"]):
            with open("/dev/full", "w") as full:
                process = subprocess.run([str(word) for word in command], cwd=self.folder, env=self.environment(), stdout=full,
                                         stderr=subprocess.PIPE, text=True, timeout=100)
            self.assertEqual(process.returncode, 1, command)
            self.assertIn("standard output cannot be written", process.stderr)

    def test_wrong_type(self):
        self.assert_refused(self.digits("--trainer.max_epochs", "many"), 2, "trainer.max_epochs", "many", "integer")

    def test_out_of_range(self):
        self.assert_refused(self.digits("--data.batch_size", 0), 2, "data.batch_size", "0", ">= 1")
        self.assert_refused(self.digits("--optimizer.lr", -1), 2, "optimizer.lr", "-1", "> 0")

    def test_unknown_environment_variable(self):
        self.assert_refused(self.digits(LOCKSTEP_TRAINER_MAX_EPOCH="3"), 2, "LOCKSTEP_TRAINER_MAX_EPOCH;", "LOCKSTEP_TRAINER_MAX_EPOCHS")

    def test_missing_data_file(self):
        self.assert_refused(self.digits("--data.file", "nowhere.csv"), 1, "nowhere.csv")

    def test_missing_data_file_on_two_ranks_is_said_once(self):
        result = self.digits("--data.file", "nowhere.csv", "--trainer.devices", 2)
        self.assert_refused(result, 1, "nowhere.csv", "rank")
        self.assertEqual(result.err.count("nowhere.csv"), 1, result)

    def test_malformed_csv_row_names_file_and_line(self):
        rows = gzip.decompress((SOURCE / "data" / "digits.csv.gz").read_bytes()).decode().splitlines()
        rows[41] = rows[41].replace(",", ",x", 1)
        data = self.folder / "bad.csv"
        data.write_text("\n".join(rows) + "\n")
        self.assert_refused(self.digits("--data.file", data), 1, f"{data}:42")
        rows[41] = "1,2,3"
        data.write_text("\n".join(rows) + "\n")
        self.assert_refused(self.digits("--data.file", data), 1, f"{data}:42", "65")

    def test_devices(self):
        for devices in ("0", "-2", "abc"):
            self.assert_refused(self.digits("--trainer.devices", devices), 2, "devices", devices)

    def test_unknown_strategy(self):
        self.assert_refused(self.digits("--trainer.strategy", "dpd"), 2, "trainer.strategy", "dpd", "ddp")

    def test_strategy_that_is_known_but_not_built(self):
        self.assert_refused(self.digits("--trainer.strategy", "xla_fsdp"), 2, "xla_fsdp", "docs/status.md")

    def test_taken_port(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            result = self.digits("--trainer.strategy", "ddp", "--trainer.devices", 2, "--trainer.strategy.timeout", "20s",
                                 MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        self.assert_refused(result, 1, str(port))

    def test_rank_that_never_arrives(self):
        environment = dict(TORCHELASTIC_RUN_ID="none", RANK="0", LOCAL_RANK="0", WORLD_SIZE="3", LOCAL_WORLD_SIZE="3",
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
        flags = [DIGITS, "--trainer.strategy", "ddp", "--trainer.strategy.timeout", "4s", "--data.file",
                 SOURCE / "data" / "digits.csv.gz", "--run_dir", self.folder / "run"]
        ranks = [self.start(*flags, **(environment | {"RANK": str(r), "LOCAL_RANK": str(r)})) for r in (0, 1)]
        for process in ranks:
            self.assert_refused(self.finish(process), 1, "missing", "2", "4s")

    def test_ranks_that_name_different_run_directories(self):
        ranks = dict(TORCHELASTIC_RUN_ID="none", WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                     MASTER_PORT=str(free_port()))
        flags = [DIGITS, "--trainer.strategy", "ddp", "--trainer.strategy.timeout", "60s", "--data.file",
                 SOURCE / "data" / "digits.csv.gz", "--run_dir"]
        processes = [self.start(*flags, self.folder / f"run{r}", **ranks, RANK=str(r), LOCAL_RANK=str(r)) for r in (0, 1)]
        for process in processes:
            self.assert_refused(self.finish(process), 2, "different run directories", self.folder / "run0",
                                self.folder / "run1", "rank 1", "--run_dir")

    def test_unwritable_run_directory(self):
        (self.folder / "file").write_text("")
        self.assert_refused(self.digits("--run_dir", self.folder / "file" / "run"), 2, self.folder / "file" / "run", "--run_dir")

    def test_data_set_smaller_than_the_world(self):
        data = self.folder / "tiny.csv"
        data.write_text("\n".join(",".join(["1"] * 65) for _ in range(3)) + "\n")
        result = self.digits("--data.file", data, "--data.val_fraction", 0.5, "--trainer.devices", 3)
        self.assert_refused(result, 1, "3")

    def test_nan_loss_with_detect_anomaly(self):
        result = self.digits("--trainer.detect_anomaly", "true", "--optimizer.name", "sgd", "--optimizer.lr", 1e30)
        self.assert_refused(result, 1, "detect_anomaly", "rank 0", "batch")

    def test_missing_initial_weights(self):
        self.assert_refused(self.digits("--init_weights", "nowhere.safetensors"), 1, "nowhere.safetensors")

    def test_initial_weights_of_another_kind_of_file(self):
        (self.folder / "run.yaml").write_text("seed_everything: 7\ntrainer: {max_epochs: 1}\n")
        self.assert_refused(self.digits("--init_weights", "run.yaml"), 1, "init_weights", "run.yaml", "safetensors", ".pt", ".pth", ".ckpt", "folder")

    def test_single_device_on_two_ranks(self):
        self.assert_refused(self.digits("--trainer.strategy", "single_device", "--trainer.devices", 2), 2, "single_device", "2")

    def test_weights_that_cannot_be_saved_are_noticed_at_the_start(self):
        self.assert_refused(self.digits("--save_weights", "nowhere/w.safetensors"), 2, "save_weights", "nowhere")
        result = self.digits("--save_weights", "/proc/w.safetensors")
        self.assert_refused(result, 2, "--save_weights", "/proc/w.safetensors", "can be written")
        self.assertFalse((self.folder / "run/checkpoints/last.ckpt").exists())
        os.mkfifo(self.folder / "pipe")
        for name, reason in (("pipe", "a device, pipe or socket"), ("/dev/null", "a device, pipe or socket"), ("n" * 300, "File name too long")):
            with self.subTest(name):
                self.assert_refused(self.digits("--save_weights", name), 2, "save_weights", name[:80], reason)
        for name in ("w.ckpt", "w.pkl", "w.npz", "w.onnx"):
            with self.subTest(name):
                self.assert_refused(self.digits("--save_weights", name), 2, "save_weights", name, ".safetensors", ".pt")

    def test_a_name_that_no_checkpoint_may_take_is_noticed_at_the_start(self):
        last = self.folder / "run/checkpoints/last.ckpt"
        last.parent.mkdir(parents=True)
        last.write_text("mine")
        result = self.digits("--trainer.max_epochs", 1, "--trainer.devices", 2)
        self.assert_refused(result, 1, str(last), "a checkpoint, an empty folder, or nothing", "got a file")
        self.assertEqual((last.read_text(), os.listdir(last.parent)), ("mine", ["last.ckpt"]))

    def test_other_libraries_errors_are_one_line(self):
        data = self.folder / "labels.csv"
        data.write_text("\n".join(",".join(["1"] * 64 + ["99"]) for _ in range(20)) + "\n")
        result = self.digits("--data.file", data)
        said = [line for line in result.err.splitlines() if not line.startswith("run directory: ")]
        self.assertEqual((result.code, len(said)), (1, 1), result)

    def test_fewer_validation_rows_than_ranks(self):
        result = self.digits("--data.val_fraction", 0.0006, "--trainer.devices", 2, "--trainer.max_epochs", 1)
        self.assertEqual(result.code, 0, result)

    def test_unknown_verb(self):
        self.assert_refused(self.digits("fitt"), 2, "fitt", "fit")


if __name__ == "__main__":
    unittest.main()
