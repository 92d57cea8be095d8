"""Cluster environments of a program's own: how ranks that they tell their place are joined, and how they end."""
import unittest

from harness import BINARY, ProgramTest, free_port

CASE = BINARY / "bin" / "cluster_case"


class OwnEnvironment(ProgramTest):
    def scheduled(self, *flags, ranks=2):
        """The results of ranks that a scheduler of the program's own has started."""
        port = str(free_port())
        processes = [self.start(CASE, *flags, MY_RANK=str(rank), MY_SIZE=str(ranks), MY_PORT=port) for rank in range(ranks)]
        return [self.finish(process) for process in processes]

    def assert_torn_down(self, processes):
        """Each of that many processes has called teardown(), once."""
        files = list(self.folder.glob("torn_down.*"))
        said = [file.read_text() for file in files]
        for file in files:
            file.unlink()
        self.assertEqual(said, ["once\n"] * processes)

    def test_is_torn_down_once_in_each_process(self):
        for entry in ("run", "run_known", "run_fabric", "run_rank", "trainer", "fabric"):
            with self.subTest(entry):
                for result in self.scheduled(entry):
                    self.assertEqual(result.code, 0, result)
                self.assert_torn_down(2)
        for entry in ("spawn", "own_ranks"):
            with self.subTest(entry):
                self.assertEqual(self.run_program(CASE, entry).code, 0)
                self.assert_torn_down(2)

    def test_is_torn_down_after_a_failure(self):
        for entry in ("run", "run_known", "run_rank", "trainer", "fabric"):
            with self.subTest(entry):
                results = self.scheduled(entry, "fail")
                for result in results:
                    self.assertNotEqual(result.code, 0, result)
                if entry.startswith("run"):
                    self.assertIn("the disk is full; in training_step of step 0 (epoch 0, batch 0)", results[1].err)
                self.assert_torn_down(2)
        self.assertNotEqual(self.run_program(CASE, "spawn", "fail").code, 0)

    def test_devices_that_agree_start_nothing(self):
        for entry in ("run", "run_known"):
            for devices in ([], ["--trainer.devices", 2]):
                with self.subTest(entry, devices=devices):
                    results = self.scheduled(entry, *devices)
                    for result in results:
                        self.assertEqual(result.code, 0, result)
                    self.assertEqual([line for result in results for line in result.out.splitlines() if "world" in line], ["world of 2"])
                    self.assert_torn_down(2)
        runs = list((self.folder / "runs" / "case").iterdir())
        self.assertEqual(len(runs), 4, runs)
        for run in runs:
            self.assertTrue((run / "summary.json").exists(), run)

    def test_ranks_of_a_fabric_share_the_folder_of_rank_0(self):
        results = self.scheduled("run_fabric")
        for result in results:
            self.assertEqual(result.code, 0, result)
        run, = (self.folder / "runs" / "case").iterdir()
        self.assertEqual([result.out for result in results], [f"folder {run}\n"] * 2)
        self.assert_torn_down(2)

    def test_devices_that_disagree_are_refused_with_both_sides(self):
        for entry in ("run", "run_known"):
            with self.subTest(entry):
                for result in self.scheduled(entry, "--trainer.devices", 3):
                    self.assert_refused(result, 2, "my scheduler", "devices=3", "devices * num_nodes = 2")
                    self.assertNotIn("LOCAL_WORLD_SIZE", result.err)
                self.assert_torn_down(2)

    def test_is_torn_down_where_a_flag_is_refused(self):
        for result in self.scheduled("run_known", "--trainer.max_steps", "x"):
            self.assert_refused(result, 2, "trainer.max_steps")
        self.assert_torn_down(2)

    def test_one_that_reads_the_variables_of_forked_ranks_lets_them_be(self):
        result = self.run_program(CASE, "run", "--trainer.devices", 2)
        self.assertEqual(result.code, 0, result)
        self.assertIn("world of 2", result.out)
        self.assert_torn_down(2)


if __name__ == "__main__":
    unittest.main()
