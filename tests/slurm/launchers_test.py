"""Our program, unchanged, as the ranks of other launchers: torchrun, Open MPI's mpirun and MPICH's."""
import pathlib
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "programs"))

from harness import BINARY, PEERS_PYTHON, ProgramTest  # noqa: E402

CASE = BINARY / "bin" / "signal_case"
TWO_RANKS = ("--trainer.devices", 2, "--trainer.strategy", "ddp")


class Launchers(ProgramTest):
    def case(self, name):
        return [CASE, *TWO_RANKS, "--seed_everything", 3, "--run_dir", self.folder / name,
                "--save_weights", self.folder / f"{name}.safetensors"]

    def trains_as_alone(self, *launcher):
        self.assertTrue(pathlib.Path(launcher[0]).exists() or shutil.which(launcher[0]), f"{launcher[0]} is missing: tools/system.sh")
        result = self.run_program(*launcher, *self.case("launched"))
        self.assertEqual(result.code, 0, result)
        alone = self.run_program(*self.case("alone"))
        self.assertEqual(alone.code, 0, alone)
        self.assertEqual((self.folder / "launched.safetensors").read_bytes(), (self.folder / "alone.safetensors").read_bytes())

    def test_torchrun(self):
        self.trains_as_alone(PEERS_PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, "--no-python")

    def test_open_mpi(self):
        self.trains_as_alone("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", 2)

    def test_mpich(self):
        self.trains_as_alone("mpirun.mpich", "-np", 2)


if __name__ == "__main__":
    unittest.main()
