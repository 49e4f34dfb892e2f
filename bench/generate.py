# SPDX-License-Identifier: Apache-2.0
"""Measures muster-generate against the memory and against transformers: called by generate.sh,
which has the usage.

The model is a GPT-2 of 124M with random weights: what a token costs does not depend on them. Each
round lets everyone write the same number of tokens after a prompt of one, the most probable one
each time, and a program that reads memory and does nothing else. The time to load the weights does
not count. Rates and ratios are medians over the rounds."""
import argparse
import os
import re
import statistics
import subprocess
import time

import figure


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--cache", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=100)
    return parser.parse_args()


def model_folder(cache):
    folder = os.path.join(cache, "gpt2-124m")
    if not os.path.exists(os.path.join(folder, "model.safetensors")):
        from transformers import GPT2Config, GPT2LMHeadModel

        GPT2LMHeadModel(GPT2Config(bos_token_id=None, eos_token_id=None)).save_pretrained(folder)
    return folder


class Transformers:
    def __init__(self, folder, dtype, threads):
        import torch
        from transformers import GPT2LMHeadModel

        torch.set_num_threads(threads)
        kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
        self.model = GPT2LMHeadModel.from_pretrained(folder, dtype=kind).eval()
        self.prompt = torch.tensor([[464]])

    def rate(self, tokens):
        began = time.perf_counter()
        out = self.model.generate(self.prompt, max_new_tokens=tokens, min_new_tokens=tokens,
                                  do_sample=False, use_cache=True, pad_token_id=0)
        seconds = time.perf_counter() - began
        assert out.shape[1] == tokens + 1
        return tokens / seconds


class Muster:
    def __init__(self, build, folder, dtype, threads):
        self.words = [os.path.join(build, "muster-generate"), folder, "--ids", "--prompt", "464",
                      "--temperature", "0", "--dtype", dtype, "--threads", str(threads)]
        self.bytes = 0

    def rate(self, tokens):
        run = subprocess.run([*self.words, "--tokens", str(tokens)], check=True, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert len(run.stdout.split()) == tokens + 1
        found = re.search(r"([\d.]+) tokens a second, each of which reads ([\d.]+) MB", run.stderr)
        self.bytes = float(found[2]) * 1e6
        return float(found[1])


def read_rate(build, threads):
    """Of memory, in bytes a second, over a block as large as the weights."""
    run = subprocess.run([os.path.join(build, "bench", "read_rate"), "498", "1"], check=True,
                         stdout=subprocess.PIPE, env={**os.environ,
                                                      "OMP_NUM_THREADS": str(threads)})
    return float(run.stdout.split()[0])


def main():
    options = arguments()
    folder = model_folder(options.cache)
    figures = []
    for dtype in ("fp32", "bf16"):
        ours = Muster(options.build, folder, dtype, options.threads)
        theirs = Transformers(folder, dtype, options.threads)
        theirs.rate(5)  # warms up
        rates = []
        for _ in range(options.rounds):
            memory = read_rate(options.build, options.threads)
            rates.append((ours.rate(options.tokens), theirs.rate(options.tokens), memory))
        muster, torch, memory = (statistics.median(column) for column in zip(*rates))
        print(f"{dtype}: muster-generate {muster:.1f} tokens/s, transformers {torch:.1f} tokens/s; "
              f"memory is read at {memory * 1e-9:.1f} GB/s, the weights at "
              f"{muster * ours.bytes * 1e-9:.1f} GB/s")
        used = statistics.median(one * ours.bytes / rate for one, _, rate in rates)
        faster = statistics.median(one / other for one, other, _ in rates)
        figures += [(f"generate-{dtype}-of-memory-rate", used, 0.7),
                    (f"generate-{dtype}-of-transformers", faster, 1.3)]
    for one in figures:
        figure.tell(*one[:2], "times", at_least=one[2])


main()
