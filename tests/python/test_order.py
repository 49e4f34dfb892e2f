# SPDX-License-Identifier: Apache-2.0
"""The order of samples: every sample once an epoch, the same for any number of ranks, from any
step."""

import unittest

from muster import Sampler, Usage


def batches(ranks, **options):
    """The samples of each step, as all ranks together read them."""
    samplers = [Sampler(rank=r, world_size=ranks, **options) for r in range(ranks)]
    return [sum(step, []) for step in zip(*samplers)]


class Order(unittest.TestCase):
    def test_every_sample_once_an_epoch_and_each_epoch_another(self):
        for samples, batch, drop in ((120, 24, True), (122, 24, False), (98, 8, False)):
            steps = batches(
                2, samples=samples, global_batch=batch, epochs=3, drop_last=drop, seed=5
            )
            each = len(steps) // 3
            epochs = [sum(steps[i : i + each], []) for i in (0, each, 2 * each)]
            for epoch in epochs:
                self.assertEqual(sorted(epoch), list(range(samples)))
            self.assertNotEqual(epochs[0], epochs[1])
            self.assertNotEqual(epochs[0], sorted(epochs[0]))

    def test_what_does_not_fill_a_batch_is_left_out(self):
        steps = batches(3, samples=100, global_batch=24, epochs=1)
        self.assertEqual([len(step) for step in steps], [24] * 4)
        self.assertEqual(len(set(sum(steps, []))), 96)

    def test_the_same_for_any_number_of_ranks_and_from_any_step(self):
        options = {"samples": 333, "global_batch": 21, "epochs": 2, "drop_last": False, "seed": 3}
        whole = batches(1, **options)
        for ranks in (2, 3, 7, 12):
            self.assertEqual(batches(ranks, **options), whole)
        for step in (1, 15, 16, 17, 31):
            self.assertEqual(batches(4, step=step, **options), whole[step:])

    def test_in_order_where_asked(self):
        steps = batches(2, samples=10, global_batch=4, epochs=1, shuffle=False, drop_last=False)
        self.assertEqual(steps, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]])

    def test_the_seed_decides(self):
        options = {"samples": 50, "global_batch": 10}
        self.assertEqual(batches(1, seed=1, **options), batches(1, seed=1, **options))
        self.assertNotEqual(batches(1, seed=1, **options), batches(1, seed=2, **options))

    def test_lengths(self):
        sampler = Sampler(100, 10, rank=0, world_size=2, epochs=3, step=4)
        self.assertEqual(len(sampler), 26)
        self.assertEqual(len(Sampler(100, 10, rank=0, world_size=2, steps=7, step=9)), 0)
        with self.assertRaises(TypeError):
            len(Sampler(100, 10, rank=0, world_size=2, epochs=None))

    def test_what_can_t_be_is_refused_with_the_remedy(self):
        for options, words in (
            ({"samples": 0, "global_batch": 1}, "0 samples"),
            ({"samples": 9, "global_batch": 10}, "drop_last=False"),
            ({"samples": 100, "global_batch": 3}, "3 samples for 4 ranks"),
            ({"samples": 10, "global_batch": 8, "drop_last": False}, "2 samples for 4 ranks"),
        ):
            with self.assertRaises(Usage) as caught:
                Sampler(rank=0, world_size=4, **options)
            self.assertIn(words, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
