# SPDX-License-Identifier: Apache-2.0
"""Holds BPE tokenizers of Muster's against Hugging Face's tokenizers and tiktoken.

    bpe_reference.py TEXT_TOKENS FOLDER [VOCABULARIES]

TEXT_TOKENS is tests/tools/text_tokens. Tokenizers of the shapes of GPT-2's, Llama 3's and Qwen2's
are trained in FOLDER on words of many scripts. VOCABULARIES is the folder in which the package
litellm keeps those of some models. All must give the same tokens for text of many scripts and for
random strings of assigned characters, among them added tokens and spaces of all kinds; and refuse
what is not UTF-8 with its offset.
"""
import json
import os
import random
import struct
import subprocess
import sys
import unicodedata

import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from byte_level import bytes_of, text_of  # noqa: E402

WORD = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
# The encodings of tiktoken's, by the patterns that their tokenizer.json have.
ENCODINGS = {"p50k_base": GPT2, "cl100k_base": WORD % "{1,3}", "o200k_base": O200K}
PATTERNS = {"gpt2": GPT2, "llama3": WORD % "{1,3}", "qwen2": WORD % ""}
SCRIPTS = {"latin": (0x61, 0x7a), "greek": (0x3b1, 0x3c9), "cyrillic": (0x430, 0x44f),
           "arabic": (0x627, 0x64a), "devanagari": (0x905, 0x939), "han": (0x4e00, 0x4eff),
           "hangul": (0xac00, 0xacff)}
SPACES = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u180e", "\u2003", "\u3000", "\x85", "\n\n  "]
ODD = ["'s", "'LL", "'\u017f", "don't", "e\u0301", "\u1100\u1161\u11a8", "\u0958", "\ufb01",
       "12345", "\u0663\u0664", "\u00bd", "...", "!\n", "<|endoftext|>", "<|end", "<|end|>",
       "\U0001f600\u200d\U0001f525", "\u0301", "x" * 70, "ab" * 200]


def words(chance, count):
    """Text in words of all scripts, some of which come often."""
    common = []
    for first, last in SCRIPTS.values():
        common += ["".join(chr(chance.randint(first, last)) for _ in range(chance.randint(2, 7)))
                   for _ in range(60)]
    return "".join(
        (chance.choice(common) if chance.random() < 0.8 else chance.choice(ODD)) +
        (chance.choice(SPACES) if chance.random() < 0.3 else " ") for _ in range(count))


def make(name, text, folder):
    tokenizer = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
    if name == "gpt2":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(PATTERNS[name]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    if name == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=3000, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", normalized=name == "gpt2",
                                             special=True),
                                  AddedToken("<|end|>", normalized=False)])
    path = os.path.join(folder, f"{name}.json")
    tokenizer.save(path)
    if name == "gpt2":  # the older spelling of merges
        value = json.load(open(path, encoding="utf-8"))
        value["model"]["merges"] = [" ".join(merge) if isinstance(merge, list) else merge
                                    for merge in value["model"]["merges"]]
        json.dump(value, open(path, "w", encoding="utf-8"))
    return tokenizer, path


def by_tiktoken(name, path):
    value = json.load(open(path, encoding="utf-8"))
    ranks = {bytes_of(token): number for token, number in value["model"]["vocab"].items()}
    special = {one["content"]: one["id"] for one in value["added_tokens"]}
    return tiktoken.Encoding(name, pat_str=PATTERNS[name], mergeable_ranks=ranks,
                             special_tokens=special)


def merge_of(token, ranks):
    """The two tokens from which BPE makes this one."""
    parts = [token[i:i + 1] for i in range(len(token))]
    while len(parts) > 2:
        pairs = [(ranks.get(parts[i] + parts[i + 1], len(ranks)), i) for i in range(len(parts) - 1)]
        at = min(pair for pair in pairs if pair[0] < ranks[token])[1]
        parts[at:at + 2] = [parts[at] + parts[at + 1]]
    return [text_of(part) for part in parts]


def save_encoding(encoding, path):
    """The tokenizer.json of an encoding of tiktoken's."""
    ranks = encoding._mergeable_ranks
    merges = [merge_of(token, ranks) for token in sorted(ranks, key=ranks.get) if len(token) > 1]
    split = {"type": "Split", "pattern": {"Regex": ENCODINGS[encoding.name]},
             "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": False}
    special = [{"id": number, "content": text, "single_word": False, "lstrip": False,
                "rstrip": False, "normalized": False, "special": True}
               for text, number in encoding._special_tokens.items()]
    json.dump({"version": "1.0", "added_tokens": special, "normalizer": None,
               "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
               "post_processor": None, "decoder": level,
               "model": {"type": "BPE", "dropout": None, "unk_token": None,
                         "continuing_subword_prefix": None, "end_of_word_suffix": None,
                         "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
                         "vocab": {text_of(token): rank for token, rank in ranks.items()},
                         "merges": merges}}, open(path, "w", encoding="utf-8"))


def without_normalizer(source, path):
    value = json.load(open(source, encoding="utf-8"))
    value["normalizer"] = None  # NFKC, which is not ours
    json.dump(value, open(path, "w", encoding="utf-8"))


def hold_real(program, folder, vocabularies, texts):
    os.environ["TIKTOKEN_CACHE_DIR"] = vocabularies
    for name in ENCODINGS:
        encoding = tiktoken.get_encoding(name)
        path = os.path.join(folder, f"{name}.json")
        save_encoding(encoding, path)
        hold(name, program, path, texts,
             lambda one: encoding.encode(one, allowed_special="all"))
        print(f"{name}: {encoding.n_vocab} tokens of tiktoken's are equal")
    path = os.path.join(folder, "anthropic.json")
    without_normalizer(os.path.join(vocabularies, "anthropic_tokenizer.json"), path)
    tokenizer = Tokenizer.from_file(path)
    hold("anthropic", program, path, texts,
         lambda one: tokenizer.encode(one, add_special_tokens=False).ids)
    print(f"anthropic: {tokenizer.get_vocab_size()} tokens of tokenizers' are equal")


def ours(program, path, texts):
    data = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    run = subprocess.run([program, path], input=data, stdout=subprocess.PIPE, check=True)
    return run.stdout.decode().split("\n")[:-1]


def random_string(chance, assigned):
    parts = []
    for _ in range(chance.randint(1, 12)):
        kind = chance.random()
        if kind < 0.5:
            parts.append("".join(chance.choice(assigned) for _ in range(chance.randint(1, 8))))
        elif kind < 0.7:
            parts.append(chance.choice(SPACES))
        elif kind < 0.85:
            parts.append(chance.choice(ODD))
        else:
            parts.append(words(chance, 2))
    return "".join(parts)


def hold(name, program, path, texts, answer):
    lines = ours(program, path, [text.encode() for text in texts])
    assert len(lines) == len(texts)
    for text, line in zip(texts, lines):
        expected = " ".join(map(str, answer(text)))
        assert line == expected, (name, text, line, expected)


def main(program, folder, vocabularies=None):
    chance = random.Random(20261127)
    assigned = [chr(c) for c in range(0x110000)
                if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    text = words(chance, 60000)
    texts = [random_string(chance, assigned) for _ in range(10000)]
    long = words(chance, 340000)
    for name in PATTERNS:
        tokenizer, path = make(name, text, folder)
        encode = lambda one: tokenizer.encode(one, add_special_tokens=False).ids
        hold(f"{name}, tokenizers", program, path, texts + [long], encode)
        # tiktoken does not normalise, and its merges are the ids: so where no merge has another
        # order than its token.
        if name == "llama3":
            peer = by_tiktoken(name, path)
            hold(f"{name}, tiktoken", program, path, texts + [long],
                 lambda one: peer.encode(one, allowed_special="all"))
        print(f"{name}: {len(texts)} strings and {len(long.encode()) / 1e6:.1f} MB are equal")
        bad = [b"good\xffbad", b"\xc0\x80", "x\u00e9".encode()[:-1], b"ab\xed\xa0\x80"]
        for line, offset in zip(ours(program, path, bad), (4, 0, 1, 2)):
            assert f"at offset {offset} is not UTF-8" in line, line
    if vocabularies:
        hold_real(program, folder, vocabularies, texts + [long])


main(*sys.argv[1:])
