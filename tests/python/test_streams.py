# SPDX-License-Identifier: Apache-2.0
"""States of iterable datasets as text, and what can't be a stream."""

import types
import unittest

import numpy
import torch

from muster import data, inline, streams
from muster.errors import Refused, Usage


class Numbers(torch.utils.data.IterableDataset):
    def __init__(self, count):
        self.count, self.at = count, 0

    def __iter__(self):
        while self.at < self.count:
            self.at += 1
            yield self.at
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def a_run(step=0):
    world = types.SimpleNamespace(rank=0, world_size=1)
    return types.SimpleNamespace(world=world, seed=1, step=step)


def read(count, batch, states, step, batches):
    """The next batches of a stream that has stood in these states after that step."""
    loader = streams.StreamLoader(a_run(step), "train", Numbers(count), batch, 99, None, {})
    loader.states = states
    found = iter(streams.Stream(loader, Numbers(count), list))
    return [next(found) for _ in range(batches)]


class States(unittest.TestCase):
    def test_they_come_back(self):
        state = {
            "generator": torch.Generator().manual_seed(3).get_state(),
            "half": torch.tensor([1.5, float("nan")], dtype=torch.bfloat16),
            "one": torch.tensor(7),
            "none": torch.empty(0, 3),
            "array": numpy.arange(6, dtype="<i2").reshape(2, 3),
            "shards": {(1, "x"): [b"\0", {2}, float("inf")]},
        }
        found = inline.decode(inline.encode(state, "train"))
        self.assertEqual(list(found), list(state))
        for name in ("generator", "one", "none"):
            self.assertEqual(found[name].dtype, state[name].dtype)
            self.assertTrue(torch.equal(found[name], state[name]), name)
        self.assertTrue(
            torch.equal(found["half"].view(torch.int16), state["half"].view(torch.int16))
        )
        self.assertTrue(numpy.array_equal(found["array"], state["array"]))
        self.assertEqual(found["array"].dtype, state["array"].dtype)
        self.assertEqual(found["shards"], state["shards"])

    def test_what_has_no_place_in_text_is_refused_by_its_name(self):
        with self.assertRaisesRegex(Refused, "train/open: a builtins.function can't be saved"):
            inline.encode({"open": lambda: 0}, "train")


class Reading(unittest.TestCase):
    def test_from_any_state_the_rest_is_the_same(self):
        whole = read(7, 3, [None], 0, 12)  # the seventh ends where the dataset does
        self.assertEqual(sum((batch for _, batch, _ in whole), []),
                         [i % 7 + 1 for i in range(36)])  # fmt: skip
        for step in range(1, 12):
            rest = read(7, 3, [whole[step - 1][2]], step, 12 - step)
            self.assertEqual(rest, whole[step:])

    def test_an_empty_one_is_refused(self):
        with self.assertRaisesRegex(Usage, "the dataset of the loader 'train' is empty"):
            read(0, 3, [None], 0, 1)

    def test_what_is_no_stream(self):
        self.assertTrue(data.is_stream(Numbers(3)))
        self.assertFalse(data.is_stream([1, 2, 3]))
        for given in (iter([1]), types.SimpleNamespace()):
            with self.assertRaisesRegex(Usage, "can't be read at any place"):
                data.is_stream(given)
        for options, words in (
            ({"steps": None}, "needs steps= for an iterable dataset"),
            ({"global_batch": 0}, "each needs a sample"),
            ({"options": {"shuffle": True}}, "decides shuffle"),
        ):
            given = {"global_batch": 4, "steps": 5, "microbatch": None, "options": {}, **options}
            with self.assertRaisesRegex(Usage, words):
                streams.StreamLoader(a_run(), "train", Numbers(3), **given)
        loader = streams.StreamLoader(a_run(), "train", Numbers(3), 4, 5, 3, {})
        self.assertEqual((loader.sizes, len(loader)), ([3, 1], 5))
        with self.assertRaisesRegex(Usage, "no epochs"):
            next(iter(loader.epochs()))
