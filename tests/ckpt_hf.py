# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's side of tests/ckpt_hf.bats.

    ckpt_hf.py make DIR              models with random weights in DIR, in every form that
                                     muster-ckpt import takes, tokens, and the logits that each
                                     model gives
    ckpt_hf.py logits TOKENS DIR...  DIR/logits.hf of each directory, opened with from_pretrained
    ckpt_hf.py greedy DIR N IDS...   a line for each prompt IDS, with the N most probable tokens
                                     that follow
    ckpt_hf.py compare A B           files of fp32 that must agree to 1e-4
    ckpt_hf.py files DIR FILE...     every FILE opens with safetensors.torch.load_file; its
                                     tensors are those of DIR
    ckpt_hf.py bf16 FULL HALF        HALF's weights are FULL's as torch rounds them
    ckpt_hf.py parser CHECK          thousands of mutated files: the parser in CHECK agrees
                                     with the reference
"""
import json
import os
import random
import struct
import subprocess
import sys

import numpy

BOUND = 1e-4
SHAPE = dict(n_layer=3, n_embd=48, n_head=4, n_positions=20, vocab_size=131)


def compare(a, b):
    x, y = (numpy.fromfile(p, "<f4") for p in (a, b))
    assert x.size == y.size > 0, (x.size, y.size)
    worst = float(numpy.abs(x - y).max())
    name = os.path.basename(os.path.dirname(b)) or b
    print(f"# {name}: logits differ by {worst:.2e} at most, of {numpy.abs(x).max():.2f}")
    assert numpy.abs(x).max() > 0.01 and worst <= BOUND, worst


# ---- models ----

def logits_of(model, tokens):
    import torch
    with torch.no_grad():
        answer = model.float().eval()(torch.from_numpy(tokens.astype("int64")))
        return answer.logits.numpy().astype("<f4")


def llmc(path, state, config, bf16):
    """The writer of llm.c: fields, then each tensor of all layers; matrices [out, in], the
    vocabulary padded to 128."""
    V, C, L = config.vocab_size, config.n_embd, config.n_layer
    padded = (V + 127) // 128 * 128
    header = numpy.zeros(256, "<i4")
    header[:8] = 20240326, 5 if bf16 else 3, config.n_positions, V, L, config.n_head, C, padded
    with open(path, "wb") as file:
        def put(array):
            bits = numpy.ascontiguousarray(array, "<f4")
            file.write((bits.view("<u4") >> 16).astype("<u2").tobytes() if bf16 else bits.tobytes())

        def layers(name, turn=False):
            for i in range(L):
                tensor = state[f"transformer.h.{i}.{name}"]
                put(tensor.T if turn else tensor)

        file.write(header.tobytes())
        put(numpy.vstack([state["transformer.wte.weight"], numpy.full((padded - V, C), 7.0)]))
        put(state["transformer.wpe.weight"])
        for name, turn in (("ln_1.weight", 0), ("ln_1.bias", 0), ("attn.c_attn.weight", 1),
                           ("attn.c_attn.bias", 0),
                           ("attn.c_proj.weight", 1), ("attn.c_proj.bias", 0), ("ln_2.weight", 0),
                           ("ln_2.bias", 0),
                           ("mlp.c_fc.weight", 1), ("mlp.c_fc.bias", 0), ("mlp.c_proj.weight", 1),
                           ("mlp.c_proj.bias", 0)):
            layers(name, turn)
        put(state["transformer.ln_f.weight"])
        put(state["transformer.ln_f.bias"])


def greedy(folder, count, *prompts):
    import torch
    from transformers import GPT2LMHeadModel
    model = GPT2LMHeadModel.from_pretrained(folder, torch_dtype=torch.float32)
    for prompt in prompts:
        tokens = [int(word) for word in prompt.split()]
        for _ in range(int(count)):
            tokens.append(int(logits_of(model, numpy.array([tokens]))[0, -1].argmax()))
        print(*tokens)


def make(folder):
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(1)
    config = GPT2Config(**SHAPE)
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        for parameter in model.parameters():  # also what begins as ones and zeros
            parameter.add_(torch.randn_like(parameter) * 0.1)
    tokens = numpy.random.default_rng(1).integers(0, config.vocab_size,
                                                  (3, config.n_positions)).astype("<i4")
    tokens.tofile(f"{folder}/tokens")
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}

    def save(name, model, **how):
        model.save_pretrained(f"{folder}/{name}", **how)
        wide = GPT2LMHeadModel.from_pretrained(f"{folder}/{name}", torch_dtype=torch.float32)
        logits_of(wide, tokens).tofile(f"{folder}/{name}/logits.hf")

    save("fp32", model)
    save("shards", model, max_shard_size="40KB")
    save("bare", model.transformer)
    llmc(f"{folder}/llmc-fp32.bin", state, config, False)
    # As older versions wrote it: the head once more, and buffers.
    os.makedirs(f"{folder}/old")
    old = dict(load_file(f"{folder}/fp32/model.safetensors"))
    old["lm_head.weight"] = old["transformer.wte.weight"].clone()
    for i in range(config.n_layer):
        old[f"transformer.h.{i}.attn.bias"] = torch.ones(1, 1, 20, 20, dtype=torch.bool)
        old[f"transformer.h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(old, f"{folder}/old/model.safetensors", metadata={"format": "pt"})
    old["lm_head.weight"] += 1
    os.makedirs(f"{folder}/untied")
    save_file(old, f"{folder}/untied/model.safetensors", metadata={"format": "pt"})
    for name in ("old", "untied"):
        config.save_pretrained(f"{folder}/{name}")
    logits_of(model, tokens).tofile(f"{folder}/old/logits.hf")
    save("fp16", model.half(), max_shard_size="30KB")
    half = GPT2LMHeadModel.from_pretrained(f"{folder}/fp32").to(torch.bfloat16)
    save("bf16", half)
    wide = {name: tensor.float().numpy() for name, tensor in half.state_dict().items()}
    llmc(f"{folder}/llmc-bf16.bin", wide, config, True)


def logits(tokens_file, folders):
    import torch
    from transformers import GPT2LMHeadModel
    for folder in folders:
        model = GPT2LMHeadModel.from_pretrained(folder, torch_dtype=torch.float32)
        tokens = numpy.fromfile(tokens_file, "<i4").reshape(-1, model.config.n_positions)
        logits_of(model, tokens).tofile(f"{folder}/logits.hf")


def files(folder, names):
    from safetensors.torch import load_file
    with open(f"{folder}/model.safetensors.index.json", encoding="utf-8") as file:
        index = json.load(file)
    found = {}
    for name in names:
        tensors = load_file(name)
        assert tensors
        found.update({tensor: os.path.basename(name) for tensor in tensors})
        size = {tensor: value.numel() * value.element_size() for tensor, value in tensors.items()}
        print(f"# {os.path.basename(name)}: {len(tensors)} tensors, {sum(size.values())} bytes")
    weights = {tensor: name for tensor, name in found.items() if name.startswith("model-")}
    assert weights == index["weight_map"], (weights, index["weight_map"])


def bf16(full, half):
    import torch
    from safetensors.torch import load_file
    wide, narrow = (load_file(f"{folder}/model.safetensors") for folder in (full, half))
    assert wide.keys() == narrow.keys()
    for name, tensor in wide.items():
        assert torch.equal(tensor.to(torch.bfloat16).view(torch.int16),
                           narrow[name].view(torch.int16)), name


# ---- the parser ----

def file_of(text, data):
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw + bytes(data)


def tensor(dtype="F32", shape=(2,), offsets=(0, 8), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


BASES = [
    ({"a": tensor()}, 8),
    ({"__metadata__": {"format": "pt", "k": "\u00e9\"\\"}, "a": tensor(),
      "b": tensor("BF16", (3, 1), (8, 14))}, 14),
    ({"x.y": tensor("U8", (), (0, 1)), "e": tensor("F64", (0, 5), (1, 1)),
      "z": tensor("I64", (1, 2, 3), (1, 49))}, 49),
    ({"f4": tensor("F4", (4,), (0, 2)), "f6": tensor("F6_E2M3", (4,), (2, 5)),
      "b": tensor("BOOL", (3,), (5, 8))}, 8),
    ({}, 0),
]
VALUES = [0, 1, 2, 3, 8, -1, -0.0, 1.0, 1e30, 2**31, 2**32, 2**61, 2**63 - 1, 2**63, 2**64 - 1,
          2**64, None, True, "1",
          [], {}, [1], "F32", "U8", "F33", "", {"U8": None}, [2**32, 2**31, 0], [0, 2**63], [1] * 9,
          [2, 1], [0, 4, 4], [0]]


def mutate_value(chance, value):
    """One change somewhere in the structure."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        key = chance.choice(list(value))
        out = dict(value)
        kind = chance.random()
        if kind < 0.1:
            del out[key]
        elif kind < 0.2:
            out[chance.choice(["a", "dtype", "shape", "extra", "__metadata__",
                               "n\0l"])] = chance.choice(VALUES + [tensor()])
        else:
            out[key] = mutate_value(chance, value[key])
        return out
    if isinstance(value, list) and value and chance.random() < 0.8:
        out = list(value)
        out[chance.randrange(len(out))] = mutate_value(chance, out[0])
        return out
    if isinstance(value, int) and chance.random() < 0.5:
        return value + chance.choice([-8, -4, -2, -1, 1, 2, 4, 8])
    if isinstance(value, dict) and chance.random() < 0.3:
        return list(value.values())
    return chance.choice(VALUES)


def mutate(chance):
    header, data = chance.choice(BASES)
    if chance.random() < 0.6:
        for _ in range(chance.choice([1, 1, 2])):
            header = mutate_value(chance, header)
        if chance.random() < 0.3:
            tensors = header.values() if isinstance(header, dict) else []
            ends = [t["data_offsets"][-1] for t in tensors
                    if isinstance(t, dict) and isinstance(t.get("data_offsets"), list)
                    and t["data_offsets"]]
            data = max([e for e in ends if isinstance(e, int) and 0 <= e < 1000] or [data])
    text = json.dumps(header, ensure_ascii=chance.random() < 0.5)
    text = text.replace("-0.0", chance.choice(["-0", "-0.0", "0"]))
    kind = chance.random()
    if kind < 0.1:
        text = chance.choice([" ", "\n", "\ufeff", "\t"]) + text
    elif kind < 0.2:
        text += chance.choice([" " * 7, "\n\t", "\0", "}", ",", "x"])
    elif kind < 0.25:
        text = text.replace('"a"', '"b"').replace('"dtype"', '"dtype": "F32", "dtype"',
                                                  chance.choice([0, 1]))
    raw = bytearray(file_of(text.encode("utf-8", "surrogatepass"), data))
    if chance.random() < 0.35:
        for _ in range(chance.choice([1, 1, 1, 3])):
            place = chance.randrange(len(raw))
            change = chance.random()
            if change < 0.4:
                raw[place] ^= 1 << chance.randrange(8)
            elif change < 0.6:
                raw[place] = chance.choice(b'{}[]",:0123456789-.eE\\ntu \0\xff\xc3')
            elif change < 0.8:
                raw[place:place] = bytes([chance.choice(b'{}[]",:0-9. \0')])
            elif len(raw) > 1:
                del raw[place]
    if chance.random() < 0.1:
        raw = raw[:chance.randrange(len(raw) + 1)] if chance.random() < 0.5 else raw + b"\0"
    return bytes(raw)


def stricter(raw):
    """Whether the file breaks one of the rules by which doc/checkpoint-format.md is stricter than
    the reference."""
    text = raw[8:8 + struct.unpack("<Q", raw[:8])[0]].decode()
    twice = []

    def pairs(items):
        twice.extend(k for i, (k, _) in enumerate(items) if k in [n for n, _ in items[:i]])
        return dict(items)

    header = json.loads(text, object_pairs_hook=pairs)
    if not text.startswith("{") or twice or "\0" in text or "\\u0000" in text \
            or header.get("__metadata__", {}) is None:
        return True
    for name, value in header.items():
        if name == "__metadata__":
            continue
        if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
            return True
        if not isinstance(value["dtype"], str):
            return True
        product = 1
        for extent in value["shape"]:
            product *= extent
            if extent >= 2**63 or product >= 2**63:
                return True
        if len(value["shape"]) > 8:
            return True
    return False


def parser(check):
    import safetensors
    chance = random.Random(20260326)
    all_files = [mutate(chance) for _ in range(6000)]
    all_files += [file_of(json.dumps(h), d) for h, d in BASES]
    stream = b"".join(struct.pack("<I", len(raw)) + raw for raw in all_files)
    said = subprocess.run([check], input=stream, stdout=subprocess.PIPE, check=True).stdout
    ours = said.decode(errors="replace").splitlines()
    assert len(ours) == len(all_files)
    both = neither = strict = 0
    for raw, line in zip(all_files, ours):
        try:
            safetensors.deserialize(raw)
            theirs = True
        except Exception:  # pylint: disable=broad-except
            theirs = False
        if (line == "ok") == theirs:
            both += theirs
            neither += not theirs
        else:
            assert theirs, f"we accept what the reference refuses: {raw}"
            assert stricter(raw), f"we refuse what the reference accepts: {raw}: {line}"
            strict += 1
    print(f"# {len(all_files)} files: accepted by both {both}, refused by both {neither}, by us "
          "alone as documented "
          f"{strict}")
    assert both > 300 and neither > 1000 and strict > 50


def main():
    what, rest = sys.argv[1], sys.argv[2:]
    if what == "greedy":
        greedy(*rest)
    elif what in ("logits", "files"):
        globals()[what](rest[0], rest[1:])
    else:
        {"make": make, "compare": compare, "bf16": bf16, "parser": parser}[what](*rest)


if __name__ == "__main__":
    main()
