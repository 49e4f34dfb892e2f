# SPDX-License-Identifier: Apache-2.0
"""State that is a tree of arrays, in programs without PyTorch: of NumPy, and of JAX where it is."""

import collections
import importlib.util
import pathlib
import re
import signal
import subprocess
import sys
import unittest

import numpy

from muster import Error, Refused
from muster.pytree import State
from ranks import HANG, HERE, Case

Pair = collections.namedtuple("Pair", "a b")


class Trees(unittest.TestCase):
    def tree(self, value):
        return {"x": [numpy.full(3, value), (value, None)], "pair": Pair(value, {"z": "text"})}

    def test_a_tree_comes_back_as_it_was(self):
        saved = State(self.tree(7)).state_dict()
        self.assertEqual(list(saved), ["x/0", "x/1/0", "pair/a", "pair/b/z"])
        held = State(self.tree(0))
        held.load_state_dict(saved)
        self.assertEqual(held.tree["pair"], Pair(7, {"z": "text"}))
        self.assertIs(type(held.tree["pair"]), Pair)
        self.assertEqual(held.tree["x"][0].tolist(), [7, 7, 7])
        self.assertEqual(held.tree["x"][1], (7, None))
        counts = State(collections.defaultdict(int, a=1))
        counts.load_state_dict({"a": 5})
        self.assertEqual(counts.tree, {"a": 5})
        self.assertEqual(counts.tree["b"], 0)  # its default has come along

    def test_another_tree_is_refused_by_the_name_of_what_differs(self):
        saved = State(self.tree(7)).state_dict()
        for tree, words in (
            ({**self.tree(0), "more": 1}, "the checkpoint has no state/more"),
            ({"x": self.tree(0)["x"]}, "the program has no state/pair/a"),
            ({**self.tree(0), "x": [numpy.zeros(4), (0, None)]}, "state/x/0 has shape and type"),
            ({**self.tree(0), "x": [numpy.zeros(3), (0, None)]}, "state/x/0 has shape and type"),
        ):
            with self.assertRaisesRegex(Error, words):
                State(tree).load_state_dict(saved)
        with self.assertRaisesRegex(Refused, "state/1: two values have this name"):
            State({1: 0, "1": 0}).state_dict()


class Programs(Case):
    def run_alone(self, *options, run="run", status=0):
        """As its user starts it: no module is there that it has not imported."""
        done = subprocess.run(
            [
                *(sys.executable, HERE / "jax_program.py"),
                *("--run", pathlib.Path(self.place, run), *map(str, options)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=HANG,
        )
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout

    def stopped_and_killed(self, *options):
        whole = re.findall("ends: .*", self.run_alone(*options, run="whole"))
        self.assertEqual(len(whole), 1)
        self.run_alone(*options, "--notice-at", 7, status=75)
        self.run_alone(*options, "--die-at", 23, status=-signal.SIGKILL)
        text = self.run_alone(*options)
        self.assertRegex(text, "resumed at step (15|20) of")  # the save of step 20 may be under way
        self.assertEqual(re.findall("ends: .*", text), whole)
        text = self.run_alone(*options, "--width", 5, status=65)
        self.assertRegex(text, r"^muster: resume: state/\S+ has shape and type \(\(4,")

    def test_nothing_to_save_is_one_line(self):
        text = self.run_alone("--numpy", "--nothing", status=2)
        self.assertEqual(
            text, "muster: attach(): give what is to be saved: model=, state= or an object\n"
        )

    def test_numpy(self):
        self.stopped_and_killed("--numpy")

    @unittest.skipUnless(importlib.util.find_spec("jax"), "no JAX")
    def test_jax(self):
        self.stopped_and_killed()
