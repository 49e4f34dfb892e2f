# SPDX-License-Identifier: Apache-2.0
"""Values: what is encoded comes back equal and of the same type, and all else is refused by
name."""

import collections
import json
import math
import random
import unittest

import numpy
import torch

from muster.errors import Refused
from muster.values import Decoder, Encoder, dumps


def there_and_back(value):
    """By way of the text, as a checkpoint has it."""
    tensors = {}
    text = dumps(Encoder(tensors).encode(value, "value"))
    return Decoder(tensors.__getitem__, tensors.__getitem__).decode(json.loads(text))


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, (torch.Tensor, numpy.ndarray)):
        return a is b
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(
            same(k, m) and same(v, w) for (k, v), (m, w) in zip(a.items(), b.items())
        )
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, float) and math.isnan(a):
        return math.isnan(b)
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return bool(a == b)


LEAVES = [
    None, True, False, 0, 1, -1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 10**40,
    0.0, -0.0, 0.1, 1e300, 5e-324, 1.0, math.inf, -math.inf, math.nan,
    "", "text", "§ ü 𝄞", "nul \0 in it", "\ud800", "$tensor", "a\nb\"c\\",
    b"", b"\x00\xff", 1j, complex(math.nan, -0.0),
    torch.float32, torch.bfloat16, torch.device("cpu"), torch.device("cuda", 1), torch.Size([2, 3]),
    numpy.float32(0.5), numpy.int64(-3), numpy.bool_(True), numpy.float64("nan"),
]  # fmt: skip
KEYS = ["a", "$b", "nul\0", 0, -5, 1.5, True, None, (1, "x"), b"k", "$tensor"]


def grow(rng, depth):
    """A random value."""
    kind = rng.randrange(8) if depth > 0 else 0
    several = range(rng.randrange(4))
    if kind == 1:
        return [grow(rng, depth - 1) for _ in several]
    if kind == 2:
        return tuple(grow(rng, depth - 1) for _ in several)
    if kind == 3:
        return {str(i): grow(rng, depth - 1) for i in several}
    if kind == 4:
        return {rng.choice(KEYS): grow(rng, depth - 1) for _ in several}
    if kind == 5:
        return {rng.choice(["x", 2, (3,)]) for _ in several}
    if kind == 6:
        return torch.zeros(rng.randrange(3), 2)
    return rng.choice(LEAVES)


class Values(unittest.TestCase):
    def test_each_leaf_and_random_trees_come_back(self):
        rng = random.Random(7)
        for value in LEAVES:
            self.assertTrue(same(value, there_and_back(value)), repr(value))
        for _ in range(3000):
            value = {"root": grow(rng, 4)}
            self.assertTrue(same(value, there_and_back(value)), repr(value))

    def test_ordered_mappings_and_their_order(self):
        value = collections.OrderedDict([("b", 1), ("a", 2)])
        self.assertEqual(list(there_and_back(value)), ["b", "a"])
        self.assertEqual(there_and_back(collections.defaultdict(int, x=1)), {"x": 1})

    def test_what_has_no_place_is_refused_by_its_key(self):
        class Own:
            pass

        loop = []
        loop.append(loop)
        for value, kind in [
            (lambda: 0, "function"),
            (Own(), "Own"),
            (numpy.array(["a"]), "ndarray"),
            (numpy.array([object()]), "ndarray"),
            (object, "type"),
            (iter([]), "iterator"),
        ]:
            with self.assertRaises(Refused) as caught:
                Encoder({}).encode({"a": [1, {"deep": value}]}, "optimizer")
            self.assertIn("optimizer/a/1/deep: ", str(caught.exception))
            self.assertIn(kind, str(caught.exception))
            self.assertEqual(caught.exception.status, 2)
        with self.assertRaises(Refused) as caught:
            Encoder({}).encode(loop, "loop")
        self.assertLess(len(str(caught.exception)), 200)

    def test_a_tensor_that_is_met_twice_is_saved_once(self):
        weight = torch.ones(4, 3)
        tensors = {}
        encoded = Encoder(tensors).encode(
            {"a": weight, "b": weight, "view": weight[:2], "turned": weight.t()}, "m"
        )
        self.assertEqual(encoded["a"], encoded["b"])
        self.assertEqual(set(tensors), {"m/a", "m/view", "m/turned"})

    def test_names_that_would_clash_do_not(self):
        tensors = {}
        one = torch.zeros
        Encoder(tensors).encode({"a/b": one(1), "a": {"b": one(1)}, 1: one(1),
                                 "1": torch.zeros(1), "x\0y": torch.zeros(1)}, "m")  # fmt: skip
        self.assertEqual(len(tensors), 5)

    def test_a_tag_of_a_later_release_is_refused(self):
        with self.assertRaises(Refused):
            Decoder(dict.get, dict.get).decode({"a": {"$later": 1}})
        for private in ("$any", "$tagged", "$_int"):
            with self.assertRaises(Refused):
                Decoder(dict.get, dict.get).decode({private: [1]})


if __name__ == "__main__":
    unittest.main()
