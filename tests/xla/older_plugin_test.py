#!/usr/bin/env python3
"""The strategy xla on a plug-in whose programs cannot call the host: they end behind backward. Run by
tools/check_xla_plugins.sh."""
import unittest

import strategies_test
from strategies_test import DDP, ON_HOST, SINGLE_XLA, XLA


class TestOlderPlugin(strategies_test.StrategyTest):
    programs_of = strategies_test.TestXla.programs_of
    captured = strategies_test.TestXla.captured

    def test_programs_end_behind_backward(self):
        steps = ("--trainer.max_steps", 50)
        self.assert_equal_losses(self.losses("older", *steps, *XLA), self.losses("ddp", *steps, *DDP))
        programs = self.programs_of("counted", *XLA)
        self.assertEqual(programs, self.programs_of("on_host", *XLA, *ON_HOST))
        self.assertGreater(programs, self.programs_of("alone", *SINGLE_XLA))

    def test_steps_in_which_the_host_averages_run_as_they_are(self):
        steps = ("--trainer.max_steps", 12)
        got, counts = self.captured("captured", *steps, *XLA)
        self.assert_equal_losses(got, self.losses("traced", *steps, *XLA))
        self.assertEqual(counts["steps_replayed"], 0)


class TestLostRank(strategies_test.TestLostRank):
    """The same where each step's program ends behind backward."""


if __name__ == "__main__":
    unittest.main()
