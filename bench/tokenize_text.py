# SPDX-License-Identifier: Apache-2.0
"""Measures muster-tokens against tokenizers and tiktoken: called by tokenize.sh, which has the
usage.

The text is words of seven scripts with frequencies as words have them (Zipf's law), in lines; the
vocabulary of Llama 3's shape has 32,000 tokens, learnt from a part of it. The peers get the text as
a list of lines, which is how they use several threads; everyone's tokens must be equal in number.
muster-tokens reads and writes files, too, and its start counts. Rates and ratios are medians."""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

import figure
import tiktoken
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/lib"))
from byte_level import bytes_of  # noqa: E402

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
           r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SCRIPTS = [(0x61, 0x7a), (0x61, 0x7a), (0x3b1, 0x3c9), (0x430, 0x44f), (0x627, 0x64a),
           (0x905, 0x939), (0x4e00, 0x4eff)]
WORDS = 40000
AIM = 1.2


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=20)
    return parser.parse_args()


def make_lines(megabytes):
    chance = random.Random(1)
    words = []
    for _ in range(WORDS):
        first, last = chance.choice(SCRIPTS)
        words.append("".join(chr(chance.randint(first, last))
                             for _ in range(chance.randint(1, 9))))
    weights = [1 / (rank + 1) for rank in range(WORDS)]
    lines, size = [], 0
    while size < megabytes * 1e6:
        # Each line begins with a letter of English, as many do.
        line = "The " + " ".join(chance.choices(words, weights, k=20)) + chance.choice(".!?")
        lines.append(line + "\n")
        size += len(lines[-1].encode())
    return lines


def make_tokenizer(lines):
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.train_from_iterator(lines[:len(lines) // 4], trainers.BpeTrainer(
        vocab_size=32000, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def make_tiktoken(tokenizer):
    vocabulary = json.loads(tokenizer.to_str())["model"]["vocab"]
    ranks = {bytes_of(token): number for token, number in vocabulary.items()}
    return tiktoken.Encoding("bench", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})


def timed(work):
    began = time.perf_counter()
    count = work()
    return time.perf_counter() - began, count


def main():
    options = arguments()
    lines = make_lines(options.megabytes)
    tokenizer = make_tokenizer(lines)
    peer = make_tiktoken(tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        text, file, out = (os.path.join(folder, name) for name in ("text", "t.json", "out.bin"))
        with open(text, "w", encoding="utf-8", newline="") as stream:
            stream.writelines(lines)
        tokenizer.save(file)
        command = [os.path.join(options.build, "muster-tokens"), "-q", "-f", "-o", out, "-t", file,
                   text]

        def ours():
            subprocess.run(command, check=True)
            return (os.path.getsize(out) - 1024) // 2

        def by_tokenizers():
            return sum(len(one.ids) for one in
                       tokenizer.encode_batch_fast(lines, add_special_tokens=False))

        def by_tiktoken():
            return sum(map(len, peer.encode_ordinary_batch(lines, num_threads=options.threads)))

        size = os.path.getsize(text) / 1e6
        rows = []
        for _ in range(options.rounds):
            results = [timed(work) for work in (ours, by_tokenizers, by_tiktoken)]
            assert len({count for _, count in results}) == 1, results
            rows.append([seconds for seconds, _ in results])
        mine, first, second = (size / statistics.median(column) for column in zip(*rows))
        print(f"{size:.1f} MB, {results[0][1]} tokens, {options.threads} threads: muster-tokens "
              f"{mine:.1f} MB/s, tokenizers {first:.1f} MB/s, tiktoken {second:.1f} MB/s")
        for name, column in (("tokenizers", 1), ("tiktoken", 2)):
            ratio = statistics.median(row[column] / row[0] for row in rows)
            figure.tell(f"tokenize-of-{name}", ratio, "times", at_least=AIM)


main()
