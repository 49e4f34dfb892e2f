# SPDX-License-Identifier: Apache-2.0
"""Other packages over PyTorch, as their users write programs."""

import pathlib
import re

from ranks import HERE, Case, Ranks


class Accelerate(Case):
    def run_on(self, count, *options, run="run", status=0):
        words = ["--run", pathlib.Path(self.place, run), *options]
        ranks = Ranks(self.place, words, count=count, program=HERE / "accelerate_program.py")
        self._started.append(ranks)
        return self.finish(ranks, status)

    def test_stopped_twice_it_comes_to_the_same_bits(self):
        whole = self.run_on(2, run="undisturbed")
        expected = re.findall(r"ends: (.*)", whole.said())
        self.assertEqual(len(expected), 2, whole.said())
        self.run_on(2, "--notice-at", 7, status=75)
        second = self.run_on(2, "--notice-at", 19, status=75)
        self.assertRegex(second.said(0), "resumed at step [89] ")  # as the signal comes
        ranks = self.run_on(2)
        self.assertRegex(ranks.said(0), "resumed at step 2[01] ")
        self.assertEqual(re.findall(r"ends: (.*)", ranks.said()), expected)
