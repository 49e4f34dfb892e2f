# SPDX-License-Identifier: Apache-2.0
"""The same bits on any number of ranks. For PyTorch 2.1 and later."""

import re

from ranks import Case


class Equal(Case):
    """What such tests need."""

    def run_on(self, count, *options, run="run", status=0):
        return self.run_program("canonical_program.py", count, *options, run=run, status=status)

    def result(self, ranks):
        """The hash of weights and optimizer, and the last loss, which all ranks have told."""
        found = re.findall(r"rank \d+ ends: (\w+ \S+) in", ranks.said())
        self.assertEqual(len(found), len(ranks.processes), ranks.said())
        self.assertEqual(len(set(found)), 1, ranks.said())
        return found[0]

    def compare(self, *options, counts=(1, 2, 3, 4, 8)):
        results = {
            count: self.result(self.run_on(count, *options, run=f"on{count}")) for count in counts
        }
        self.assertEqual(len(set(results.values())), 1, results)
        return results[counts[0]]


class OnCpus(Equal):
    def test_weights_and_moments_after_200_steps_on_one_to_eight_ranks(self):
        whole = self.compare()
        ranks = self.run_on(2, "--bucket-mb", 1000, run="one-bucket")
        self.assertEqual(self.result(ranks), whole)

    def test_with_autocast_and_a_scaler(self):
        self.compare("--bf16", "--steps", 60)

    def test_from_eight_ranks_to_three_to_five(self):
        whole = self.result(self.run_on(1, "--steps", 60, run="whole"))
        self.run_on(8, "--steps", 60, "--stop-at", 19, status=75)
        self.run_on(3, "--steps", 60, "--stop-at", 41, status=75)
        ranks = self.run_on(5, "--steps", 60)
        self.assertIn("resumed at step 42", ranks.said())
        self.assertEqual(self.result(ranks), whole)

    def test_what_cannot_be_is_one_line(self):
        for spoil, words in (
            ("norm", "canonical(): norm is a BatchNorm1d, which collects statistics"),
            ("ddp", "give the bare module, which DistributedDataParallel wraps"),
            ("loader", "give what run.loader(slots=16) yields"),
            ("backward", "call backward() once for each batch of slots()"),
        ):
            ranks = self.run_on(2, "--spoil", spoil, run=spoil, status=2)
            self.assertIn("muster: canonical", ranks.said(0))
            self.assertIn(words, ranks.said(0))
        self.run_on(17, "--steps", 1, run="many", status=2)

    def test_other_numerics_are_told_or_refused(self):
        self.run_on(1, "--steps", 3, "--every", 1)
        ranks = self.run_on(2, "--steps", 4, "--threads", 2, "--identical", status=2)
        self.assertIn("threads was 1, and is 2 now: give the same", ranks.said(0))
        ranks = self.run_on(2, "--steps", 4, "--threads", 2)
        self.assertIn("threads was 1, and is 2 now: from here on the bits", ranks.said(0))
