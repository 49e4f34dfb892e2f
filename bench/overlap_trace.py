# SPDX-License-Identifier: Apache-2.0
"""What overlap.py takes out of the files of muster-train --trace. All times are seconds."""
import collections
import json
import statistics


class Trace:
    """A file's spans by step and rank, of those steps that have a next one."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        self.spans = collections.defaultdict(list)
        for event in events:
            if event["ph"] == "X":
                begin = event["ts"] / 1e6
                event.update(begin=begin, end=begin + event["dur"] / 1e6)
                if "ready" in event["args"]:
                    event["ready"] = event["args"]["ready"] / 1e6
                self.spans[event["args"]["step"], event["pid"]].append(event)
        self.ranks = 1 + max(rank for _, rank in self.spans)
        self.steps = sorted({step for step, _ in self.spans})

    def whole(self, step, rank):
        return next(e for e in self.spans[step, rank] if e["name"] == f"step {step}")

    def cycles(self):
        """From the beginning of a step to that of the next, on rank 0."""
        begins = [self.whole(step, 0)["begin"] for step in self.steps]
        return [b - a for a, b in zip(begins, begins[1:])]

    def computing(self, step, rank):
        """From the beginning of the step to the end of the last slot."""
        slots = [e["end"] for e in self.spans[step, rank] if e["name"].startswith("slot ")]
        return max(slots) - self.whole(step, rank)["begin"]

    def behind(self, step, rank):
        """What the rank does after its last slot: norm and update, without what it waits for."""
        step_span = self.whole(step, rank)
        waited = sum(e["end"] - e["begin"] for e in self.spans[step, rank]
                     if e["name"].startswith("wait") and e["end"] <= step_span["end"])
        return step_span["end"] - step_span["begin"] - self.computing(step, rank) - waited

    def ready(self, step, rank):
        """bucket: when it was ready, since the beginning of the step."""
        begin = self.whole(step, rank)["begin"]
        return {int(e["name"].split()[-1]): e["ready"] - begin for e in self.spans[step, rank]
                if e["name"].startswith("ready: bucket ")}

    def bucket_times(self, step):
        """bucket: from the end of the bucket before it, or from when all were ready, to its own, on
        the rank that is last."""
        ends, begin = {}, 0
        for rank in range(self.ranks):
            moved = [e for e in self.spans[step, rank] if e["tid"] == 1
                     and " bucket " in " " + e["name"].replace(":", "")]
            begin = max(begin, min(e["ready"] for e in moved))
            for e in moved:
                bucket = int(e["name"].split()[-1])
                ends[bucket] = max(ends.get(bucket, 0), e["end"])
        times = {}
        for bucket in sorted(ends, key=ends.get):
            times[bucket] = ends[bucket] - begin
            begin = ends[bucket]
        return times

    def bytes_sent(self, rank=0):
        """Of a step's buckets."""
        sent = sum(e["args"].get("bytes", 0) for step in self.steps for e in self.spans[step, rank]
                   if "bucket" in e["name"])
        return sent / len(self.steps)


def medians(tables):
    """The median of each key of many tables."""
    return {key: statistics.median(table[key] for table in tables) for key in tables[0]}


def later(tables):
    """Of several ranks' tables the later moment of each key."""
    return {key: max(table[key] for table in tables) for key in tables[0]}


class Bound:
    """The shortest step that its parts allow, from runs of --comm none and of --comm replay: the
    longer of computing and, for each bucket, the wait until it is ready with its time and that of
    the later ones; then norm and update."""

    def __init__(self, alone, replayed):
        each = [(trace, step) for trace in alone for step in trace.steps]
        ranks = range(alone[0].ranks)
        self.computing = max(statistics.median(t.computing(s, r) for t, s in each) for r in ranks)
        self.behind = max(statistics.median(t.behind(s, r) for t, s in each) for r in ranks)
        self.ready = later([medians([t.ready(s, r) for t, s in each]) for r in ranks])
        self.times = medians([t.bucket_times(s) for t in replayed for s in t.steps])
        self.communicating = sum(self.times.values())
        order = sorted(self.times)
        self.through = {k: self.ready[k] + sum(self.times[j] for j in order[at:])
                        for at, k in enumerate(order)}
        self.step = max(self.computing, *self.through.values()) + self.behind
