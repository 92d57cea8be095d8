"""Ranks that have different things to do: what they may, and how the rest is refused, without a hang."""
import json
import unittest

from harness import BINARY, ProgramTest

CASE = BINARY / "bin" / "uneven_case"
DDP = ["--trainer.strategy", "ddp", "--trainer.devices", 2]


class Uneven(ProgramTest):
    def run_case(self, *flags):
        return self.run_program(CASE, "fit", "--run_dir", self.folder / "run", *flags)

    def seen(self, *flags):
        result = self.run_case(*flags)
        self.assertEqual(result.code, 0, result)
        return json.loads(next(line for line in result.out.splitlines() if line.startswith("{")))

    def test_every_loader_has_its_own_values_whatever_the_number_of_ranks(self):
        one = self.seen()
        two = self.seen(*DDP)
        for seen in (one, two):
            self.assertEqual(seen["fit"], {"mean/dataloader_idx_0": 2, "count/dataloader_idx_0": 5,
                                           "mean/dataloader_idx_1": 100, "count/dataloader_idx_1": 1,
                                           "mean/dataloader_idx_2": 14, "count/dataloader_idx_2": 9})
            self.assertEqual(seen["results"], [{"mean/dataloader_idx_0": 2, "count/dataloader_idx_0": 5},
                                               {"mean/dataloader_idx_1": 100, "count/dataloader_idx_1": 1}])
            self.assertEqual(seen["validate"], seen["results"][0] | seen["results"][1])

    def test_all_ranks_may_skip_an_epoch(self):
        self.assertEqual(self.seen(*DDP, "--case.skip_on", -2)["steps"], 2)

    def test_one_rank_may_leave_out_a_batch_where_it_is_alone(self):
        self.assertEqual(self.seen("--case.no_loss_on", 0)["steps"], 16)
        self.assertEqual(self.seen("--case.empty_on", 0)["steps"], 14)

    def test_several_ranks_may_not_leave_out_a_batch(self):
        for flag, text in (("no_loss_on", "training_step gave no loss"), ("empty_on", "the loader gave no batch")):
            for rank, place in ((1, "rank 1, epoch 0, batch 1"), (-2, "epoch 0, batch 1")):
                with self.subTest(flag, rank=rank):
                    result = self.run_case(*DDP, f"--case.{flag}", rank)
                    self.assert_refused(result, 2, text, place, "a loss of weight 0")

    def test_one_of_several_ranks_may_not_skip(self):
        result = self.run_case(*DDP, "--case.skip_on", 1)
        self.assertNotEqual(result.code, 0, result)
        self.assertIn("rank", result.err)


if __name__ == "__main__":
    unittest.main()
