# SPDX-License-Identifier: Apache-2.0
"""Other packages over PyTorch, as their users write programs."""

import pathlib
import re

from ranks import HERE, Case, Ranks


class Frameworks(Case):
    def run_on(self, count, *options, run="run", status=0):
        words = ["--run", pathlib.Path(self.place, run), *options]
        ranks = Ranks(self.place, words, count=count, program=HERE / self.program)
        self._started.append(ranks)
        return self.finish(ranks, status)

    def stopped_twice_it_comes_to_the_same_bits(self, program):
        self.program = program
        whole = self.run_on(2, run="undisturbed")
        expected = re.findall(r"ends: (.*)", whole.said())
        self.assertEqual(len(expected), 2, whole.said())
        self.run_on(2, "--notice-at", 7, status=75)
        second = self.run_on(2, "--notice-at", 19, status=75)
        self.assertRegex(second.said(0), "resumed at step [89] ")  # as the signal comes
        ranks = self.run_on(2)
        self.assertRegex(ranks.said(0), "resumed at step 2[01] ")
        self.assertEqual(re.findall(r"ends: (.*)", ranks.said()), expected)

    def test_accelerate(self):
        self.stopped_twice_it_comes_to_the_same_bits("accelerate_program.py")

    def test_trainer(self):
        """Of Hugging Face: the losses of all steps, too."""
        self.stopped_twice_it_comes_to_the_same_bits("transformers_program.py")
