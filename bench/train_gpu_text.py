# SPDX-License-Identifier: Apache-2.0
"""Tokens of a real text for train_gpu.py, where none are given: words and what is between them, the
most frequent ones a token each. So tokens are as frequent as those of a language model, which
matters to the embedding, and no table of merges is needed."""
import array
import collections
import glob
import os
import re
import sysconfig

PIECE = re.compile(rb" ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+")
MOST_BYTES = 32 << 20


def read_text(pattern):
    """The files of a pattern, or of Python's own library: text that every machine has."""
    library = os.path.join(sysconfig.get_paths()["stdlib"], "**", "*.py")
    paths = sorted(glob.glob(pattern) if pattern else glob.glob(library, recursive=True))
    parts, size = [], 0
    for path in paths:
        if size < MOST_BYTES and os.path.isfile(path):
            with open(path, "rb") as file:
                parts.append(file.read(MOST_BYTES - size))
            size += len(parts[-1])
    return b"\n".join(parts), len(parts)


def make_tokens(pattern, path, least, vocabulary):
    """Writes raw uint16 tokens, at least `least` and one; returns what they are of. Bytes are
    tokens 0 to 255, and pieces of the text that are too rare for a token of their own are spelt in
    them."""
    text, files = read_text(pattern)
    if not text:
        raise SystemExit("train-gpu: couldn't read any text from "
                         f"{pattern or 'the library of Python'}: "
                         "give --text FILES, or --data")
    pieces = PIECE.findall(text)
    common = collections.Counter(pieces).most_common(max(0, vocabulary - 256))
    known = {piece: 256 + i for i, (piece, _) in enumerate(common)}
    tokens = array.array("H")
    for piece in pieces:
        number = known.get(piece)
        if number is None:
            tokens.extend(piece)
        else:
            tokens.append(number)
    distinct, once = len(set(tokens)), len(tokens)
    while len(tokens) <= least:
        tokens.extend(tokens[:once])
    with open(path, "wb") as file:
        tokens.tofile(file)
    source = pattern or "Python's own library"
    return (f"data: real text, {len(text) / 1e6:.1f} MB of {source} ({files} files) in {once} "
            "tokens, words and signs, "
            f"{distinct} of {vocabulary} occur")
