# SPDX-License-Identifier: Apache-2.0
"""Objects: a model's names are those of the bare model, and no tensor is lost over a name."""

import unittest

import torch

from muster.errors import Refused
from muster.objects import Collected, bare_names


class Names(unittest.TestCase):
    def test_what_wraps_a_model_leaves_no_trace(self):
        for given in (
            ["a.weight", "b"],
            ["module.a.weight", "module.b"],
            ["module.module.a.weight", "module.module.b"],
            ["_orig_mod.a.weight", "_orig_mod.b"],
            ["module._orig_mod.a.weight", "module._orig_mod.b"],
            ["_orig_mod.module.a.weight", "_orig_mod.module.b"],
            ["a._orig_mod.weight", "b"],
        ):
            self.assertEqual(bare_names(given), dict(zip(given, ["a.weight", "b"])))
        self.assertEqual(bare_names([]), {})

    def test_a_part_that_is_called_module_keeps_its_name(self):
        for given in (["module.weight", "weight"], ["_orig_mod.weight", "weight"]):
            self.assertEqual(bare_names(given), {name: name for name in given})

    def test_several_models_have_their_names_in_front(self):
        models = {"model.a": torch.nn.Linear(1, 2), "model.b": torch.nn.Linear(1, 2)}
        collected = Collected(models, {})
        names = [entry.name for entry in collected.entries(0, collected.tensors())[0]]
        self.assertEqual(names, ["a.weight", "a.bias", "b.weight", "b.bias"])

    def test_a_tensor_that_can_t_be_saved_is_refused_before_it_is_copied(self):
        class Holds:
            def __init__(self, value):
                self.value = value

            def state_dict(self):
                return {"x": [self.value]}

        for value, words in (
            (torch.eye(3).to_sparse(), "sparse"),
            (torch.empty(2, device="meta"), "meta"),
            (torch.zeros(1, dtype=torch.complex128), "complex128"),
            (torch.zeros([1] * 9), "9 dimensions; 8 are the most"),
        ):
            with self.assertRaises(Refused) as caught:
                Collected({}, {"ema": Holds(value)}).check()
            self.assertIn("ema/x/0: ", str(caught.exception))
            self.assertIn(words, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
