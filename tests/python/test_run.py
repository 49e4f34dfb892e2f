# SPDX-License-Identifier: Apache-2.0
"""Runs of one rank and of several without Slurm: killed, told to stop, started again."""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import unittest

import torch

import muster
from ranks import HANG, Case, last_step

LONG = bool(os.environ.get("MUSTER_PYTHON_LONG"))


class One(Case):
    def test_killed_again_and_again_it_comes_to_the_same_bits(self):
        kills, epochs = (10, 5) if LONG else (3, 2)
        self.undisturbed("--epochs", epochs)
        rng = random.Random(3)
        for _ in range(kills):
            steps = rng.randrange(1, 8)
            ranks = self.start_and_wait(steps, "--epochs", epochs, "--pause", "0.02")
            os.kill(ranks.processes[0].pid, signal.SIGKILL)
            self.assertEqual(ranks.wait(), [-signal.SIGKILL])
        self.finish(self.start("--epochs", epochs))
        self.assert_same_result()
        self.assertEqual(self.seen(), self.seen("undisturbed"))
        for epoch in range(epochs):
            read = sum(self.seen()[epoch * 16 : epoch * 16 + 16], [])
            self.assertEqual(sorted(read), list(range(256)))

    def test_saves_from_a_gpu_are_of_their_step_though_they_come_later(self):
        self.undisturbed()
        late = ["--late", 0.002, "--every", 2]
        for _ in range(3):
            ranks = self.start_and_wait(6, *late)
            os.kill(ranks.processes[0].pid, signal.SIGKILL)
            self.assertEqual(ranks.wait(), [-signal.SIGKILL])
        ranks = self.finish(self.start(*late))
        under_way = re.search(r"^(\d+) saves were under way", ranks.said(), re.M)
        self.assertGreater(int(under_way[1]), 0, ranks.said())
        self.assert_same_result()

    def test_a_stream_goes_on_where_each_worker_stood(self):
        options = ["--stream", "--samples", 100, "--epochs", 4, "--workers", 3, "--every", 2]
        options += ["--noise"]
        self.undisturbed(*options)
        for _ in range(3):
            ranks = self.start_and_wait(4, *options, "--pause", 0.02)
            os.kill(ranks.processes[0].pid, signal.SIGKILL)
            ranks.wait()
        self.finish(self.start(*options))
        self.assert_same_result()
        self.assertEqual(self.seen(), self.seen("undisturbed"))

    def test_it_says_that_it_is_finished(self):
        self.finish(self.start("--epochs", 1))
        ranks = self.finish(self.start("--epochs", 1))
        self.assertIn("muster: the run is finished: it has done its 16 steps", ranks.said())
        self.assertEqual(len(self.seen()), 16)

    def test_the_program_s_own_stop(self):
        ranks = self.finish(self.start("--stop-at", 7), 75)
        self.assertIn("stops after step 8", ranks.said())
        ranks = self.finish(self.start())
        self.assertIn("begins after step 8", ranks.said())
        self.undisturbed()
        self.assert_same_result()

    def test_what_cannot_be_is_one_line_and_nothing_is_lost(self):
        self.finish(self.start("--epochs", 1, "--state", "{'a': (1, b'x')}"))
        state = ["--epochs", 2, "--state", "{'a': 0}"]
        for options, status, words in (
            ([*state, "--learning-rate", "0.5"], 2, "learning_rate"),
            (
                [*state, "--samples", "100"],
                2,
                "samples of the loader 'train' was 256, and is 100 now",
            ),
            (
                ["--epochs", 2, "--state", "lambda: 0"],
                2,
                "extra/value: a builtins.function can't be saved",
            ),
            (
                ["--epochs", 2],
                2,
                "the checkpoint has extra for attach(), which the program does not",
            ),
            ([*state, "--every", "soon"], 2, "every='soon': give a number of steps, or a time"),
            ([*state, "--writers", "some"], 2, "writers='some': give one of rank0, node, all"),
        ):
            ranks = self.finish(self.start(*options), status)
            lines = [line for line in ranks.said().splitlines() if "resumed at" not in line]
            self.assertEqual(len(lines), 1, ranks.said())
            self.assertTrue(lines[0].startswith("muster: "), lines)
            self.assertIn(words, lines[0])
        ranks = self.finish(self.start(*state))
        self.assertIn("begins after step 16", ranks.said())

    def test_another_run_s_directory_is_refused(self):
        first = self.start("--pause", 1)
        first.wait_for_step(1)
        second = self.finish(self.start(), 2)
        self.assertEqual(len(second.said().splitlines()), 1, second.said())
        self.assertRegex(second.said(), "^muster: owner: .* is in use by process")
        self.assertIsNone(first.processes[0].poll())

    def test_a_foreign_loader_whose_workers_would_die_is_named(self):
        words = "would die of Slurm's SIGTERM"
        options = ["--workers", 1, "--start-method", "spawn", "--samples", 64]
        ranks = self.finish(self.start(*options, "--foreign", "bare"))
        self.assertEqual(ranks.said().count(words), 1, ranks.said())
        ranks = self.finish(self.start(*options, "--foreign", "with", run="with"))
        self.assertNotIn(words, ranks.said())

    def test_workers_of_a_foreign_loader_are_not_waited_for_at_the_end(self):
        options = ["--workers", 1, "--samples", 64]
        self.finish(self.start(*options, "--foreign", "kept"))

    def test_a_new_run_begins_with_the_weights_of_a_file(self):
        self.finish(self.start("--epochs", 1, "--stop-at", 1, run="first"), 75)
        model = muster.load(os.path.join(self.place, "first"))["model"]
        torch.save({"module." + k: v for k, v in model.items()}, self.place + "/model.pt")
        written = next(pathlib.Path(self.place, "first").glob("step-*/model*.safetensors"))
        for name in (self.place + "/model.pt", written):
            run = "begun" + os.path.splitext(name)[1]
            self.finish(self.start("--samples", 16, "--epochs", 1, "--begin", name, run=run))
            begun = muster.load(os.path.join(self.place, run))
            self.assertEqual(begun["step"], 1)
            # Two steps were taken before.
            self.assertEqual(int(begun["model"]["seen"]), 3)
        ranks = self.finish(self.start("--begin", "/no/such.pt", run="none"), 2)
        self.assertIn("begin=/no/such.pt: couldn't load it: FileNotFoundError", ranks.said())


class Several(Case):
    def test_a_rank_that_fails_before_the_run_ends_all_with_its_line(self):
        for hook in ([], ["--hook", "buffers"], ["--hook", "replaces"]):
            ranks = self.start("--fails", 1, *hook, count=2)
            self.assertEqual(ranks.wait(), [1, 1], ranks.said())
            self.assertRegex(ranks.said(0), r"rank 1 \(on .*\): KeyError: 'no such column'")
            self.assertIn("KeyError: 'no such column'", ranks.said(1))

    def test_a_notice_to_one_rank_stops_all_after_the_same_step(self):
        self.undisturbed("--sum", count=2)
        for method, rank in (("fork", 1), ("forkserver", 0), ("spawn", 1))[: 3 if LONG else 2]:
            options = ["--sum", "--workers", 2, "--start-method", method, "--pause", 0.02]
            ranks = self.start_and_wait(3, *options, count=2)
            # Slurm's reaches the workers and their helpers first, by chance.
            ranks.signal_all(rank, signal.SIGTERM)
            ranks.signal_all(rank, signal.SIGUSR2)
            self.finish(ranks, 75)
            self.assertNotIn("Traceback", ranks.said())
            self.assertNotIn("DataLoader worker", ranks.said())
            stopped = last_step(self.place)
            self.assertIn(f"stops after step {stopped}: ", ranks.said(0))
        ranks = self.finish(self.start("--sum", count=2))
        self.assertIn(f"begins after step {stopped}\n", ranks.said(1))
        self.assert_same_result()
        self.assertEqual(self.seen(), self.seen("undisturbed"))

    def test_a_rank_that_is_killed_ends_the_others_with_69(self):
        self.undisturbed("--sum", count=2)
        for victim in (1, 0):
            ranks = self.start_and_wait(4, "--sum", "--workers", 1, "--pause", 0.02, count=2)
            os.kill(ranks.processes[victim].pid, signal.SIGKILL)
            statuses = ranks.wait()
            self.assertEqual(statuses[1 - victim], 69, ranks.said())
        self.finish(self.start("--sum", count=2))
        self.assert_same_result()

    def test_what_several_writers_share_comes_back_whatever_is_killed(self):
        self.undisturbed("--sum", "--noise", count=3)
        run = pathlib.Path(self.place, "run")
        tool = os.environ.get("MUSTER_PREFIX", "") + "/bin/muster-ckpt"
        parts = set()
        for victim, every, late in ((2, "3", 0.002), (0, "0.1s", 0), (1, "0.1s", 0)):
            options = ["--every", every, "--late", late, "--writers", "all", "--noise"]
            ranks = self.start_and_wait(8, "--sum", "--pause", 0.03, *options, count=3)
            os.kill(ranks.processes[victim].pid, signal.SIGKILL)
            ranks.wait()
            # The services outlive their ranks, and write what these have handed over.
            self.wait_until(lambda: list(run.glob("step-*/manifest.json")), "a checkpoint")
            parts |= {path.name for path in run.glob("step-*/part-*")}
            verified = subprocess.run([tool, "verify", "--deep", str(run)])
            self.assertEqual(verified.returncode, 0)
        self.assertEqual(parts, {f"part-0000{i}-of-00003.json" for i in (1, 2, 3)})
        ranks = self.finish(self.start("--sum", "--noise", count=2), 2)
        self.assertIn("noise.0 has a state for each of 3 ranks, and this run has 2", ranks.said(0))
        ranks = self.finish(self.start("--sum", count=3), 2)
        self.assertIn("the generators ['noise.0', 'noise.1', 'noise.2']", ranks.said(0))
        ranks = self.finish(self.start("--sum", "--noise", count=3))
        begun = re.search(r"rank 0 begins after step (\d+)", ranks.said(0))
        self.assertGreater(int(begun[1]), 0)
        self.assert_same_result()

    def test_streams_resume_on_the_same_ranks_and_workers_only(self):
        options = ["--sum", "--stream", "--epochs", 3, "--samples", 120, "--writers", "all"]
        self.undisturbed(*options, "--workers", 2, count=2)
        for signals, every in ((signal.SIGKILL, 3), (signal.SIGTERM, "0.1s")):
            more = ["--workers", 2, "--pause", 0.03, "--every", every]
            ranks = self.start_and_wait(7, *options, *more, count=2)
            os.kill(ranks.processes[1].pid, signals)
            self.assertEqual(ranks.wait()[0], 69 if signals == signal.SIGKILL else 75)
        stopped = last_step(self.place)
        for count, workers, words in (
            (2, 0, "workers of the loader 'train' was 2, and is 0 now"),
            (1, 2, "ranks of the loader 'train' was 2, and is 1 now"),
        ):
            ranks = self.finish(self.start(*options, "--workers", workers, count=count), 2)
            self.assertIn(words, ranks.said(0))
        ranks = self.finish(self.start(*options, "--workers", 2, count=2))
        self.assertIn(f"begins after step {stopped}\n", ranks.said(1))
        self.assert_same_result()
        self.assertEqual(self.seen(), self.seen("undisturbed"))

    def test_on_any_number_of_ranks_and_workers_the_same_samples(self):
        plan = [(3, 0, None), (2, 2, "spawn")]
        if LONG:
            plan = [
                (ranks, workers, None if workers == 0 else method)
                for method, numbers in (("fork", (0, 2, 4)), ("forkserver", (2, 4, 0)),
                                        ("spawn", (4, 0, 2)))
                for ranks, workers in zip((8, 3, 1), numbers)
            ]  # fmt: skip
        epochs = ["--epochs", 4 if LONG else 2]
        self.undisturbed(*epochs)
        for count, workers, method in plan:
            options = [*epochs, "--workers", workers]
            options += ["--start-method", method] if method else []
            stop = last_step(self.place) + 5
            self.finish(self.start(*options, "--stop-at", stop, count=count), 75)
        self.finish(self.start(*epochs, "--workers", 2))
        self.assertEqual(self.seen(), self.seen("undisturbed"))

    def test_a_rank_that_stays_slow_is_named(self):
        ranks = self.start("--epochs", 1000, "--slow", 1, "--sum", count=3)
        line = r"(?m)^muster: rank 1 on \S+ is slow: .* times the median of all ranks, since step "
        ranks.wait_for(lambda: re.search(line, ranks.said(0)), "the slow rank's line")
        ranks.signal_all(0, signal.SIGUSR2)
        self.finish(ranks, 75)
        self.assertEqual(len(re.findall(line, ranks.said(0))), 1, ranks.said())

    def test_a_rank_that_hangs_is_named_with_its_stack(self):
        # No other step takes so long, whatever else the machine has to do.
        options = ["--sum", "--hang-at", 6, "--hang-timeout", HANG / 20, "--writers", "all"]
        ranks = self.start(*options, count=2)
        statuses = ranks.wait()
        self.assertEqual(statuses[1], 69, ranks.said())
        self.assertEqual(statuses[0], 69, ranks.said())
        self.assertIn("rank 1 of 2", ranks.said(1))
        self.assertIn("has been in step 6 for", ranks.said(1))
        self.assertIn("program.py", ranks.said(1))
        tool = os.environ.get("MUSTER_PREFIX", "") + "/bin/muster-where"
        stood = subprocess.run([tool, self.place + "/run"], stdout=subprocess.PIPE, text=True)
        self.assertEqual(stood.returncode, 0, stood.stdout)
        self.assertRegex(stood.stdout, r"rank 1 .*in the forward pass of step 6")
        self.assertRegex(stood.stdout, r"rank 0 .*in the backward pass of step 6")
        tool = os.environ.get("MUSTER_PREFIX", "") + "/bin/muster-top"
        shown = subprocess.run([tool, self.place + "/run"], stdout=subprocess.PIPE, text=True)
        self.assertEqual(shown.returncode, 0, shown.stdout)
        self.assertRegex(shown.stdout, r"(?m)^step +5\b")
        self.assertRegex(shown.stdout, r"(?m)^. +1 .* 6 .* in the forward pass$")
        self.assertRegex(shown.stdout, r"(?m)^. +0 .* 6 .* in the backward pass$")


class Files(Case):
    def test_others_read_the_model_and_its_curve(self):
        self.finish(self.start("--epochs", 1, "--workers", 1))
        run = pathlib.Path(self.place, "run")
        step = run / (run / "latest").read_text().strip()
        names = set()
        for path in step.glob("model*.safetensors"):
            with open(path, "rb") as file:
                size = int.from_bytes(file.read(8), "little")
                names |= set(json.loads(file.read(size)))
        self.assertIn("embedding.weight", names)
        self.assertNotIn("head.weight", names)  # tied
        tool = os.environ.get("MUSTER_PREFIX", "") + "/bin/"
        verified = subprocess.run([tool + "muster-ckpt", "verify", "--deep", str(run)])
        self.assertEqual(verified.returncode, 0)
        curve = subprocess.run(
            [tool + "muster-curve", str(run)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        text = curve.stdout.decode()
        self.assertEqual(curve.returncode, 0, text)
        numbers = [line.split()[0] for line in text.splitlines()]
        self.assertEqual([int(number) for number in numbers if number.isdigit()],
                         list(range(1, 17)), text)  # fmt: skip

    def test_every_bit_flip_and_truncation_of_its_files_is_found(self):
        self.finish(self.start("--epochs", 1, "--samples", 64, "--every", 4))
        run = pathlib.Path(self.place, "run")
        newest = (run / "latest").read_text().strip()
        for other in run.glob("step-*"):
            if other.name != newest:
                shutil.rmtree(other)
        tool = os.environ.get("MUSTER_PREFIX", "") + "/bin/muster-ckpt"

        def verify():
            return subprocess.run(
                [tool, "verify", "--deep", str(run)], stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ).returncode  # fmt: skip

        self.assertEqual(verify(), 0)
        rng, share = random.Random(5), 2000 if LONG else 12
        files = [path for path in (run / newest).rglob("*") if path.is_file()]
        self.assertGreater(len(files), 3)
        for path in files:
            whole = path.read_bytes()
            places = rng.sample(range(len(whole)), min(share, len(whole)))
            changed = [whole[:at] for at in places]
            for at in places:
                flipped = bytes([whole[at] ^ 1 << rng.randrange(8)])
                changed.append(whole[:at] + flipped + whole[at + 1 :])
            for content in changed:
                path.write_bytes(content)
                self.assertEqual(verify(), 65, f"{path.name}: {len(content)} of {len(whole)} bytes")
            path.write_bytes(whole)
        self.assertEqual(verify(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
