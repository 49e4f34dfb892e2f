# SPDX-License-Identifier: Apache-2.0
"""Other packages over PyTorch, as their users write programs."""

import re

from ranks import Case


class Frameworks(Case):
    def stopped_twice_it_comes_to_the_same_bits(self, program):
        whole = self.run_program(program, 2, run="undisturbed")
        expected = re.findall(r"ends: (.*)", whole.said())
        self.assertEqual(len(expected), 2, whole.said())
        self.run_program(program, 2, "--notice-at", 7, status=75)
        second = self.run_program(program, 2, "--notice-at", 19, status=75)
        self.assertRegex(second.said(0), "resumed at step [89] ")  # as the signal comes
        ranks = self.run_program(program, 2)
        self.assertRegex(ranks.said(0), "resumed at step 2[01] ")
        self.assertEqual(re.findall(r"ends: (.*)", ranks.said()), expected)

    def test_accelerate(self):
        self.stopped_twice_it_comes_to_the_same_bits("accelerate_program.py")

    def test_trainer(self):
        """Of Hugging Face: the losses of all steps, too."""
        self.stopped_twice_it_comes_to_the_same_bits("transformers_program.py")
