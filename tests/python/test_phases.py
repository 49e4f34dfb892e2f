# SPDX-License-Identifier: Apache-2.0
"""What a rank does in a step, as the hooks tell it; they are in nobody's way."""

import copy
import io
import os
import types
import unittest
import warnings

import torch

from muster.phases import Phases
from muster.stragglers import Stragglers

HOOKS = hasattr(torch.optim.AdamW, "register_step_post_hook")
LONG = bool(os.environ.get("MUSTER_PYTHON_LONG"))


class Recorded(Phases):
    def __init__(self):
        super().__init__(None)
        self.begun = []

    def begin(self, name, step=None):
        super().begin(name, step)
        self.begun.append(name)


class Step(unittest.TestCase):
    def setUp(self):
        self.model = torch.nn.Sequential(
            torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.phases = Recorded()
        self.phases.watch([self.model], [self.optimizer])
        self.expected = ["backward", "update", "step"] if HOOKS else ["backward"]

    def test_the_hooks_are_on_the_optimizer_that_another_one_wraps(self):
        class Wraps(torch.optim.Optimizer):
            def __init__(self, optimizer):
                self.optimizer = optimizer

            def zero_grad(self):
                self.optimizer.zero_grad()

            def step(self):
                self.optimizer.step()

        phases = Recorded()
        wrapped = Wraps(torch.optim.AdamW(self.model.parameters()))
        phases.watch([], [wrapped])
        wrapped.step()
        self.assertEqual(phases.begun, ["update", "step"] if HOOKS else [])

    def step(self, model):
        self.phases.name = "forward"
        model(torch.randn(3, 4)).sum().backward()
        self.optimizer.step()

    def test_each_phase_is_told_once_a_step_until_the_end(self):
        self.step(self.model)
        self.step(self.model)
        self.assertEqual(self.phases.begun, 2 * self.expected)
        self.phases.end()
        self.step(self.model)
        self.assertEqual(self.phases.begun, 2 * self.expected)

    def test_copies_and_files_of_the_objects_have_no_hook(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model, file = copy.deepcopy(self.model), io.BytesIO()
            copy.deepcopy(self.optimizer)
            torch.save(self.model, file)
        model(torch.randn(3, 4)).sum().backward()
        self.assertEqual(self.phases.begun, [])
        self.assertNotIn(b"muster", file.getvalue())

    def test_a_model_is_compiled_in_one_graph(self):
        if LONG and hasattr(torch, "compile"):
            self.step(torch.compile(self.model, fullgraph=True))
            self.assertEqual(self.phases.begun, self.expected)


class Several(unittest.TestCase):
    def test_a_slow_rank_is_named_once_each_time_it_stays_slow(self):
        stragglers = Stragglers(types.SimpleNamespace(world_size=3, node="n{}".format))
        slow, quick = [0.1, 0.5, 0.1], [0.1, 0.1, 0.1]
        pattern = [slow, quick, slow, slow, slow, slow, quick, slow, slow, [0.01, 0.014, 0.01]]
        lines = [stragglers._compare(32 * i, times) for i, times in enumerate(pattern)]
        self.assertEqual([len(some) for some in lines], [0, 0, 0, 1, 0, 0, 0, 0, 1, 0])
        line = "^rank 1 on n1 is slow: .* 500 ms, 5.0 times .*since step 33:"
        self.assertRegex(lines[3][0], line)


class Alone(unittest.TestCase):
    def test_one_rank_keeps_no_times(self):
        stragglers = Stragglers(types.SimpleNamespace(world_size=1))
        for step in range(100):
            stragglers.begin_step()
            stragglers.begin_backward()
            self.assertEqual(stragglers.end_step(step, 1.0), [])
        self.assertEqual(stragglers._times, [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
