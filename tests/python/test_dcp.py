# SPDX-License-Identifier: Apache-2.0
"""Sharded state that PyTorch's DCP saves in a checkpoint directory and reads on other numbers of
ranks. For PyTorch 2.6 and later."""

import os
import pathlib
import re
import shutil
import signal
import subprocess

from ranks import HERE, Case, Ranks


class Saved(Case):
    def run_on(self, count, *options, status=0):
        return self.run_program("dcp_program.py", count, *options, status=status)

    def told(self, ranks, verb):
        """For each step the hash that all ranks have told."""
        found = {}
        for step, text in re.findall(rf"rank \d+ {verb} step (\d+): (\w+)", ranks.said()):
            found.setdefault(int(step), set()).add(text)
        for step, texts in found.items():
            self.assertEqual(len(texts), 1, f"step {step}: {ranks.said()}")
        return {step: texts.pop() for step, texts in found.items()}

    def verify(self):
        tool = os.environ.get("MUSTER_PREFIX", "") + "/bin/muster-ckpt"
        run = os.path.join(self.place, "run")
        done = subprocess.run(
            [tool, "verify", "--deep", run], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.assertEqual(done.returncode, 0, done.stdout)


class Sharded(Saved):
    def goes_on(self, plan):
        """`plan`: the ranks of each attempt, and its options. Each begins with what the one before
        has saved last."""
        last = None
        for attempt, (count, *options) in enumerate(plan):
            ranks = self.run_on(count, "--steps", 2 * attempt + 2, *options)
            saved, read = self.told(ranks, "saves"), self.told(ranks, "read")
            self.assertEqual(read, {} if last is None else {2 * attempt: last}, ranks.said())
            self.assertEqual(list(saved), [2 * attempt + 2])
            last = saved[2 * attempt + 2]
            self.verify()

    def test_what_four_ranks_of_fsdp_save_is_read_by_two_eight_and_one(self):
        self.goes_on([[4], [2], [8], [1], [3]])

    def test_a_mesh_of_two_dimensions_and_another_one(self):
        meshes = ("2x2", "4x1", "1x2", "2x3", "1x1")
        self.goes_on([[eval(mesh.replace("x", "*")), "--mesh", mesh] for mesh in meshes])

    def test_pytorch_reads_the_files_by_itself(self):
        self.run_on(4, "--mesh", "2x2", "--steps", 2)
        ranks = self.run_on(3, "--compare")
        self.assertEqual(ranks.said().count("both have read the same"), 3, ranks.said())

    def test_saved_beside_the_training(self):
        self.goes_on([[2, "--asynchronous", "torch"], [3, "--asynchronous", "muster"]])

    def test_a_planner_that_keeps_its_plans(self):
        ranks = self.run_on(3, "--cached", "--steps", 8)
        saved = self.told(ranks, "saves")
        ranks = self.run_on(2, "--cached", "--steps", 8)
        self.assertEqual(self.told(ranks, "read"), {8: saved[8]}, ranks.said())

    def test_what_was_handed_over_survives_the_kill_of_all_ranks(self):
        steps = 0
        for count, options in ((4, []), (2, []), (3, ["--asynchronous", "muster"])):
            steps += 2
            ranks = self.run_on(
                count, *options, "--steps", 99, "--hand-over", "--die-after", steps,
                status=-signal.SIGKILL,
            )  # fmt: skip
            saved = self.told(ranks, "saves")
            ranks = self.run_on(1, "--steps", steps)
            self.assertEqual(self.told(ranks, "read"), {steps: saved[steps]}, ranks.said())
            self.verify()

    def test_a_notice_on_one_rank_stops_all(self):
        ranks = self.run_on(3, "--steps", 99, "--every", 50, "--notice-at", 3, status=75)
        saved = self.told(ranks, "saves")
        self.assertIn(list(saved), ([4], [5]), ranks.said())  # as the signal comes
        ranks = self.run_on(2, "--steps", *saved)
        self.assertEqual(self.told(ranks, "read"), saved)

    def test_what_cannot_be_is_one_line_and_nothing_is_lost(self):
        ranks = self.run_on(2, "--spoil", "nothing", status=2)
        self.assertIn("muster: dcp.load(): there is no checkpoint to read: look", ranks.said(0))
        self.run_on(2, "--steps", 2)
        for spoil, words in (
            ("lambda", "extra.function: a builtins.function can't be saved"),
            ("type", "sparse: a sparse or quantized tensor can't be saved"),
            ("planner", "a Valueless gives no values: give a DefaultSavePlanner"),
            ("no step", "checkpoint_id='newest': give the step that is done"),
            ("some ranks", "1 of 2 ranks save, and all have to: leave out process_group"),
        ):
            ranks = Ranks(
                self.place, ["--run", pathlib.Path(self.place, "run"), "--spoil", spoil,
                             "--steps", 4], count=2, program=HERE / "dcp_program.py"
            )  # fmt: skip
            self._started.append(ranks)
            self.assertEqual(set(ranks.wait()), {2}, ranks.said())
            lines = re.findall(r"^(?!rank 0 |muster: resumed).+", ranks.said(0), re.M)
            self.assertEqual(len(lines), 1, ranks.said())
            self.assertRegex(lines[0], r"^(\[rank0\]: )?muster: ")
            self.assertIn(words, lines[0])
        ranks = self.run_on(3, "--steps", 2)
        self.assertEqual(list(self.told(ranks, "read")), [2], ranks.said())


class Attached(Saved):
    """The same state in a run of attach(), which saves it by itself."""

    def test_what_four_ranks_of_fsdp_save_is_read_by_two_eight_and_one(self):
        last = None
        for attempt, count in enumerate((4, 2, 8, 1, 3)):
            steps = 2 * attempt + 2
            ranks = self.run_on(count, "--attach", "--steps", steps)
            read, saved = self.told(ranks, "read"), self.told(ranks, "saves")
            self.assertEqual(read, {} if last is None else {2 * attempt: last}, ranks.said())
            last = saved[steps]
            self.verify()

    def test_killed_and_told_to_stop(self):
        ranks = self.run_on(4, "--attach", "--steps", 99, "--die-after", 6, status=-signal.SIGKILL)
        saved = self.told(ranks, "saves")
        ranks = self.run_on(3, "--attach", "--steps", 99, "--notice-at", 8, status=75)
        self.assertEqual(self.told(ranks, "read"), {6: saved[6]}, ranks.said())
        saved = self.told(ranks, "saves")
        last = max(saved)
        ranks = self.run_on(2, "--attach", "--steps", last + 1)
        self.assertEqual(self.told(ranks, "read"), {last: saved[last]}, ranks.said())
        self.verify()

    def test_a_directory_of_dcp_s_is_not_one_of_attach_and_the_other_way_round(self):
        self.run_on(2, "--steps", 2)
        ranks = self.run_on(2, "--attach", status=2)
        self.assertIn("resume: the checkpoint is not one of attach(): give the", ranks.said(0))
        shutil.rmtree(os.path.join(self.place, "run"))
        self.run_on(2, "--attach", "--steps", 2)
        ranks = self.run_on(2, status=2)
        self.assertIn("was not saved by dcp.save(): give the directory of one", ranks.said(0))
        self.assertNotIn("Traceback", ranks.said(0))

    def test_rank_0_alone_can_not_save_it(self):
        ranks = self.run_on(2, "--attach", "--writers", "rank0", status=2)
        self.assertIn("muster: writers='rank0': sharded state needs 'all'", ranks.said(0))
