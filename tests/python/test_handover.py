# SPDX-License-Identifier: Apache-2.0
"""Copies of what is on GPUs: they come whole, and are refused where there is no memory for them."""

import types
import unittest
from unittest import mock

import torch

import late_gpu
from muster import handover
from muster.errors import Error


class Copies(unittest.TestCase):
    def setUp(self):
        self.copier = late_gpu.Copier(0.001)
        self.left = 0  # not known
        library = types.SimpleNamespace(muster_memory=lambda: self.left)
        patch = mock.patch.object(handover, "_lib", types.SimpleNamespace(library=library))
        patch.start()
        self.addCleanup(patch.stop)

    def copy(self, tensors):
        hosts, events = self.copier.begin(tensors, set(tensors))
        for _, event in events:
            event.synchronize()
        return hosts

    def test_only_what_is_new_needs_memory(self):
        first = {"weight": torch.arange(1000.0), "step": torch.tensor(3)}
        self.left = 4007
        with self.assertRaisesRegex(Error, r"needs 0 MB of memory, and 0 MB are left.*--mem") as at:
            self.copy(first)
        self.assertEqual(at.exception.status, 1)
        self.left = 4008
        self.assertTrue(torch.equal(self.copy(first)["weight"], torch.arange(1000.0)))
        self.left = 1
        again = {"weight": torch.ones(1000), "step": torch.tensor(4)}
        hosts = self.copy(again)
        self.assertTrue(torch.equal(hosts["weight"], torch.ones(1000)))
        self.assertEqual(int(hosts["step"]), 4)
        with self.assertRaises(Error):
            self.copy({**again, "moment": torch.ones(1000)})
        self.left = 0
        self.assertEqual(set(self.copy({**again, "moment": torch.ones(1000)})),
                         {"weight", "step", "moment"})  # fmt: skip


if __name__ == "__main__":
    unittest.main()
