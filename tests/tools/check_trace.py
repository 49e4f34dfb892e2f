# SPDX-License-Identifier: Apache-2.0
# check_trace.py FILE RANKS FIRST LAST SLOTS [several]: what must hold of a trace of muster-train
# --trace; of one with several buckets, some before the last layer, more.
import collections, json, sys

path = sys.argv[1]
ranks, first, last, slots = map(int, sys.argv[2:6])
trace = json.load(open(path))
events = trace["traceEvents"]
spans = [e for e in events if e["ph"] == "X"]
steps = range(first, last + 1)
end = lambda e: e["ts"] + e["dur"]
LITTLE = 0.0015  # microseconds: three decimals are written

# Who is who.
names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"
         and e["name"] == "thread_name"}
processes = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M"
             and e["name"] == "process_name"}
assert sorted(processes) == list(range(ranks)), processes
assert all(name.startswith(f"rank {rank} on ") and len(name) > len(f"rank {rank} on ")
           for rank, name in processes.items())
assert all(names[rank, 0] == "compute" and names[rank, 1] == "communication"
           for rank in range(ranks))

# The axis: all ranks of this test read the same clock, so what was measured must be right within
# what is promised.
other = trace["otherData"]
assert other["steps"] == f"{first}-{last}" and other["spans_left_out"] == 0, other
for clock in other["clocks"]:
    assert clock["error_us"] < 50000, clock
    assert abs(clock["offset_us"]) <= clock["error_us"] + 0.002, clock
    assert abs(clock["drift_us"]) <= 2 * clock["error_us"] + 0.002, clock
    assert clock["rank"] > 0 or clock["error_us"] == 0

assert {e["args"]["step"] for e in spans} == set(steps), {e["args"]["step"] for e in spans}
assert all(e["pid"] < ranks and e["tid"] in (0, 1) and e["dur"] >= 0 and e["ts"] >= 0
           for e in spans)

# On each thread two spans are apart, or one is inside the other.
for rank in range(ranks):
    for thread in (0, 1):
        stack = []
        for e in sorted((e for e in spans if (e["pid"], e["tid"]) == (rank, thread)),
                        key=lambda e: (e["ts"], -e["dur"])):
            while stack and end(stack[-1]) <= e["ts"] + LITTLE:
                stack.pop()
            assert not stack or end(e) <= end(stack[-1]) + LITTLE, ("not nested", stack[-1], e)
            assert thread == 0 or not stack, ("two at once", stack[-1], e)
            stack.append(e)

seen = collections.defaultdict(list)
for e in spans:
    seen[e["pid"], e["args"]["step"], e["name"]].append(e)

def one(rank, step, name):
    found = seen[rank, step, name]
    assert len(found) == 1, (rank, step, name, len(found))
    return found[0]

buckets = {e["name"] for e in spans if e["name"].startswith(("exchange: bucket ", "add: bucket "))}
count = max([int(name.split()[-1]) for name in buckets], default=-1) + 1
assert ranks == 1 or count > (0 if len(sys.argv) < 7 else 1), buckets
layers = max(int(e["name"].split()[-1]) for e in spans
             if e["name"].startswith("backward of layer ")) + 1
share = [slots // ranks + (rank < slots % ranks) for rank in range(ranks)]
# after the sums of several ranks it travels beside them
exchanged = "exchange" if ranks > 1 else "all-gather"
for step in steps:
    for rank in range(ranks):
        whole = one(rank, step, f"step {step}")
        one(rank, step, "update")
        mine = [one(rank, step, f"slot {slot}")
                for slot in range(sum(share[:rank]), sum(share[:rank + 1]))]
        assert all(whole["ts"] <= e["ts"] and end(e) <= end(whole) for e in mine)
        assert len([e for e in seen[rank, step, "forward"] if end(e) <= end(whole)]) == share[rank]
        for layer in range(layers):
            assert len(seen[rank, step, f"backward of layer {layer}"]) == share[rank]
        control = one(rank, step, exchanged + ": control")
        backward = sorted((e for layer in range(layers)
                           for e in seen[rank, step, f"backward of layer {layer}"]),
                          key=lambda e: e["ts"])[-layers:]
        ready = -1
        for bucket in range(count if ranks > 1 else 0):
            exchanges = sorted(seen[rank, step, f"exchange: bucket {bucket}"],
                               key=lambda e: e["ts"])
            adds = seen[rank, step, f"add: bucket {bucket}"]
            # A bucket is ready when a layer of the last slot is done, and travels then, not before;
            # sums after pieces.
            told = exchanges[0]["args"]["ready"]
            assert exchanges[0]["ts"] >= told >= ready, (exchanges[0], ready)
            assert any(0 <= told - end(e) + LITTLE for e in backward)
            assert told >= end(backward[0]) - LITTLE
            assert all(e["args"]["ready"] == told for e in exchanges)
            assert exchanges[0]["args"]["bytes"] > 0
            # A small bucket may have a block less of the norm than there are ranks: then one has
            # nothing to add and to send on.
            assert len(exchanges) > 1 or sum(1 for r in range(ranks)
                                             if seen[r, step, f"exchange: bucket {bucket}"][1:]) > 0
            assert len(exchanges) == 1 or sum(e["args"].get("bytes", 0) for e in exchanges[1:]) > 0
            # What is added between two of them is mostly the bucket's, once the next one's last
            # slot.
            between = adds + seen[rank, step, f"add: bucket {bucket + 1}"]
            for before, after in zip(exchanges, exchanges[1:]):
                assert any(end(before) <= e["ts"] + LITTLE and end(e) <= after["ts"] + LITTLE
                           for e in between), (before, after)
            assert end(exchanges[-1]) <= control["ts"]
            ready = told
        assert end(control) <= end(whole)
        # Nobody ends an all-gather before all have begun it: this holds between ranks, so it needs
        # the one axis.
        error = max(c["error_us"] for c in other["clocks"])
        for peer in range(ranks):
            began = one(peer, step, exchanged + ": control")["args"]["ready"]
            assert end(control) + 2 * error >= began, (step, rank, peer)
if len(sys.argv) > 6:
    # Something was ready while the last layer was still to be computed, or this were no overlap at
    # all.
    assert any(e["args"]["ready"] < end(b) for e in spans if e["name"] == "exchange: bucket 0"
               for b in spans if b["pid"] == e["pid"] and b["args"]["step"] == e["args"]["step"]
               and b["name"] == f"backward of layer {layers - 1}")
print(len(spans), "spans of", ranks, "ranks,", count, "buckets; clocks within",
      max(c["error_us"] for c in other["clocks"]), "us")
