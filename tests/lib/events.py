# SPDX-License-Identifier: Apache-2.0
"""events.py DIR: prints what TensorBoard would show of the event files in DIR, a line for each step
and tag: "TAG STEP BITS". With TensorBoard installed its own reader reads them; else this one does,
which checks the sums, and drops the steps that a file does again.
"""
import os
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        (length_crc,) = struct.unpack_from("<I", data, at + 8)
        record = data[at + 12:at + 12 + size]
        (crc,) = struct.unpack_from("<I", data, at + 12 + size)
        assert length_crc == masked(data[at:at + 8]) and crc == masked(record), at
        yield record
        at += 16 + size


def fields(message):
    """{field number: [values]}"""
    found, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            value = message[at:at + size]
            at += size
        found.setdefault(key >> 3, []).append(value)
    return found


def read(folder):
    shown = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            events = [fields(record) for record in records(file.read())]
        assert events[0][3] == [b"brain.Event:2"], events[0]
        for event in events:
            step = event[2][0]
            if 7 in event:
                assert fields(event[7][0]) == {1: [1]}
                shown = {key: bits for key, bits in shown.items() if key[1] < step}
            for value in (fields(one) for one in fields(event.get(5, [b""])[0]).get(1, [])):
                shown[value[1][0].decode(), step] = value[2][0][::-1].hex()
    return shown


def read_by_tensorboard(accumulator, folder):
    events = accumulator(folder, size_guidance={"scalars": 0, "tensors": 0}).Reload()
    return {
        (tag, event.step): struct.pack(">f", event.value).hex()
        for tag in events.Tags()["scalars"]
        for event in events.Scalars(tag)
    }


def main(folder):
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        shown = read_by_tensorboard(EventAccumulator, folder)
    except ImportError:
        shown = read(folder)
    for (tag, step), bits in sorted(shown.items()):
        print(f"{tag}\t{step}\t{bits}")


main(sys.argv[1])
