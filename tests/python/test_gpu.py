# SPDX-License-Identifier: Apache-2.0
"""State on a GPU, and the same bits on any number of ranks that share one. For PyTorch 2.1 and
later."""

import re
import unittest

import torch

from ranks import HERE, Ranks
from test_canonical import Equal


@unittest.skipUnless(torch.cuda.is_available(), "PyTorch sees no GPU")
class OnGpu(Equal):
    def run_on(self, count, *options, run="run", status=0):
        return super().run_on(count, *options, "--device", "cuda", run=run, status=status)

    def test_weights_and_moments_on_one_to_three_ranks(self):
        self.compare("--steps", 60, counts=(1, 2, 3))

    def test_from_four_ranks_to_three_to_one(self):
        whole = self.result(self.run_on(1, "--steps", 40, run="whole"))
        self.run_on(4, "--steps", 40, "--stop-at", 13, status=75)
        self.run_on(3, "--steps", 40, "--stop-at", 29, status=75)
        ranks = self.run_on(1, "--steps", 40)
        self.assertIn("resumed at step 30", ranks.said())
        self.assertEqual(self.result(ranks), whole)

    def test_with_autocast_and_a_scaler(self):
        self.compare("--bf16", "--steps", 30, counts=(1, 2))

    def test_killed_while_saves_are_under_way(self):
        """Each step is saved while the next ones go on, and what a killed rank has handed over
        counts."""
        options = ["--device", "cuda", "--steps", 60, "--every", 1]
        whole = self.result(self.run_on(1, *options[2:], run="whole"))
        words = ["--run", f"{self.place}/run", *options, "--pause", 0.02]
        ranks = Ranks(self.place, words, program=HERE / "canonical_program.py")
        self._started.append(ranks)
        ranks.wait_for_step(20)
        ranks.kill()
        ranks = self.run_on(1, *options[2:])
        found = re.search(r"resumed at step (\d+)", ranks.said())
        self.assertTrue(found and int(found[1]) >= 19, ranks.said())
        self.assertEqual(self.result(ranks), whole)
