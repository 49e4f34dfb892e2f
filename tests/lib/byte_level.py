# SPDX-License-Identifier: Apache-2.0
"""The alphabet in which GPT-2 and its kin write bytes: CHARACTER_OF[byte], BYTE_OF[character].

Printable characters of Latin-1 stand for themselves, the other bytes for the characters from U+0100
on, in their order."""
_ITSELF = [*range(33, 127), *range(161, 173), *range(174, 256)]
_OTHERS = [byte for byte in range(256) if byte not in _ITSELF]
CHARACTER_OF = {**{byte: chr(byte) for byte in _ITSELF},
                **{byte: chr(256 + i) for i, byte in enumerate(_OTHERS)}}
BYTE_OF = {character: byte for byte, character in CHARACTER_OF.items()}


def bytes_of(token):
    return bytes(BYTE_OF[character] for character in token)


def text_of(data):
    return "".join(CHARACTER_OF[byte] for byte in data)
