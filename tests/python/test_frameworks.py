# SPDX-License-Identifier: Apache-2.0
"""Other packages over PyTorch, as their users write programs."""

import json
import os
import pathlib
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

    def test_lightning(self):
        self.stopped_twice_it_comes_to_the_same_bits("lightning_program.py")
        at_the_end_of_an_epoch = self.run_program(
            "lightning_program.py", 2, "--notice-at", 15, run="epoch", status=75
        )
        self.assertRegex(at_the_end_of_an_epoch.said(0), "stops after step 1[67]:")
        ranks = self.run_program("lightning_program.py", 2, run="epoch")
        whole = self.run_program("lightning_program.py", 2, run="undisturbed-2")
        self.assertEqual(*(re.findall(r"ends: (.*)", r.said()) for r in (ranks, whole)))

    def test_lightning_on_other_ranks_than_the_steps(self):
        ranks = self.run_program("lightning_program.py", 2, "--nodes", 1, status=2)
        self.assertIn("give it devices=1 and num_nodes=2", ranks.said(0))

    def test_trainer(self):
        """Of Hugging Face: the losses of all steps, too."""
        self.stopped_twice_it_comes_to_the_same_bits("transformers_program.py")

    def test_torchtitan(self):
        program = "torchtitan_program.py"
        self.stopped_twice_it_comes_to_the_same_bits(program)
        ends = self.run_program(program, 2, run="undisturbed").said()  # it has finished
        expected = re.findall(r"ends: (.*)", ends)
        # From TorchTitan's own checkpoints, with saves that return at their hand-over.
        for options, status in (
            (["--own", "--end-before", 12], 0),
            (["--notice-at", 13, "--set", 'async_mode="async"'], 75),
            (["--set", 'async_mode="async"', "--set", "keep_latest_k=2"], 0),
        ):
            ranks = self.run_program(program, 2, *options, run="own", status=status)
        self.assertEqual(re.findall(r"ends: (.*)", ranks.said()), expected)
        # What TorchTitan exports at the end is there, too.
        saved = {path.name for path in pathlib.Path(self.place, "own").glob("step-*")}
        of_before = {"step-5", "step-10"}
        self.assertEqual(saved, {"step-00000030", "step-00000032", "step-32"} | of_before)
        ranks = self.run_program(program, 2, "--set", "load_step=30", run="own", status=2)
        self.assertIn("has step 32, and what comes before is not saved again", ranks.said(0))
        # Of a checkpoint of Muster's, another run takes the model alone.
        model = json.dumps(os.path.join(self.place, "own", "step-00000032"))
        options = ["--steps", 2, "--set", f"initial_load_path={model}"]
        ranks = self.run_program(program, 2, *options, run="fine-tuned")
        self.assertRegex(ranks.said(0), r"loss: +[012]\.")
