# SPDX-License-Identifier: Apache-2.0
"""small_tokenizer.py TEXT COUNT: prints a tokenizer.json of GPT-2's shape with COUNT merges, learnt
from the file TEXT by the rule of byte pair encoding, and the added token <|endoftext|>."""
import collections
import json
import re
import sys

from byte_level import CHARACTER_OF as ALPHABET


def main(path, count):
    text = open(path, "rb").read()
    words = collections.Counter(
        tuple(ALPHABET[byte] for byte in word) for word in re.findall(rb" ?\S+|\s+", text))
    vocabulary, merges = [ALPHABET[byte] for byte in range(256)], []
    while len(merges) < count:
        pairs = collections.Counter()
        for word, often in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += often
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(" ".join(best))
        vocabulary.append("".join(best))
        joined = collections.Counter()
        for word, often in words.items():
            out = []
            for part in word:
                if out and (out[-1], part) == best:
                    out[-1] += part
                else:
                    out.append(part)
            joined[tuple(out)] += often
        words = joined
    json.dump({
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": len(vocabulary), "content": "<|endoftext|>", "single_word": False,
                          "lstrip": False, "rstrip": False, "normalized": True, "special": True}],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(vocabulary)},
                  "merges": merges},
    }, sys.stdout)


main(sys.argv[1], int(sys.argv[2]))
