# SPDX-License-Identifier: Apache-2.0
"""The loss of a GPT-2 on tokens, in double precision and with NumPy alone.

    eval_reference.py DIR TOKENS CONTEXT

DIR holds config.json and model.safetensors in fp32, TOKENS raw uint16 numbers. Prints the mean loss
of all whole sequences of CONTEXT tokens.
"""
import json
import struct
import sys

import numpy


def read_model(folder):
    with open(f"{folder}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    with open(f"{folder}/model.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, end = entry["data_offsets"]
            array = numpy.frombuffer(data[first:end], "<f4").astype("f8")
            tensors[name.removeprefix("transformer.")] = array.reshape(entry["shape"])
    return config, tensors


def norm(x, gamma, beta):
    centred = x - x.mean(-1, keepdims=True)
    return centred / numpy.sqrt((centred ** 2).mean(-1, keepdims=True) + 1e-5) * gamma + beta


def softmax(x):
    x = numpy.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def gelu(x):
    return 0.5 * x * (1 + numpy.tanh(numpy.sqrt(2 / numpy.pi) * (x + 0.044715 * x ** 3)))


def attention(x, heads):
    positions, width = x.shape[0], x.shape[1] // 3
    q, k, v = (part.reshape(positions, heads, -1).swapaxes(0, 1)
               for part in numpy.split(x, 3, axis=1))
    scores = q @ k.swapaxes(1, 2) / numpy.sqrt(width // heads)
    scores[:, numpy.triu(numpy.ones((positions, positions), bool), 1)] = -numpy.inf
    return (softmax(scores) @ v).swapaxes(0, 1).reshape(positions, width)


def losses(config, tensors, sequence):
    def of(name):
        return tensors[name + ".weight"], tensors[name + ".bias"]

    def linear(x, name):
        weight, bias = of(name)
        return x @ weight + bias

    x = tensors["wte.weight"][sequence[:-1]] + tensors["wpe.weight"][:len(sequence) - 1]
    for i in range(config["n_layer"]):
        h = f"h.{i}."
        qkv = linear(norm(x, *of(h + "ln_1")), h + "attn.c_attn")
        x = x + linear(attention(qkv, config["n_head"]), h + "attn.c_proj")
        x = x + linear(gelu(linear(norm(x, *of(h + "ln_2")), h + "mlp.c_fc")), h + "mlp.c_proj")
    logits = norm(x, *of("ln_f")) @ tensors["wte.weight"].T
    return -numpy.log(softmax(logits)[numpy.arange(len(sequence) - 1), sequence[1:]])


def main(folder, path, context):
    config, tensors = read_model(folder)
    tokens = numpy.fromfile(path, "<u2").astype(int)
    starts = range(0, len(tokens) - context, context)
    print(numpy.mean([losses(config, tensors, tokens[start:start + context + 1])
                      for start in starts]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
