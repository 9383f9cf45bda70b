#!/usr/bin/env python3
"""Writes random_digests.json: FNV-1a digests of the ids that Hugging Face's tokenizers gives for random strings of rare
characters, for some tokenizers of components.jsonl. Needs tokenizers==0.23.3 from PyPI.

    python3 tests/data/tokenizers/make_random_digests.py > tests/data/tokenizers/random_digests.json
"""

import json
import pathlib

from tokenizers import Tokenizer

NAMES = ["byte_level:regex", "o200k", "deepseek", "digits:True", "marks:prepend_replace"]
DIGESTS, TEXTS_A_DIGEST = 20, 100
ALPHABET = ["a", "Z", "9", " ", "  ", "\n", "\r\n", "\t", "'s", "'", ".", ",", "_", "\u2029", "\u2028", "\u0085", "\u00a0", "\u3000",
            "\u180e", "\u200b", "\ufeff", "\u6771", "\u4eac", "\u3042", "\u30ab", "\uac00", "\u0e01\u0e33", "\u0939\u0940", "\u05d0",
            "\u0661", "\u00bd", "\u2163", "\u0301", "\u0300\u0327", "\u00e9", "\u0130", "\u017f", "\u01c5", "\u02b0", "\u20ac", "\u2192",
            "\U0001f600", "\U0001f468\u200d\U0001f469", "\U00010d50", "\U0001d7d8", "\U000e0100", "\u0897", "\U0001cc00", "\u1c89"]
MASK = (1 << 64) - 1


def texts():
    state = 1

    def draw(below):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) & MASK
        return (state >> 33) % below

    while True:
        yield "".join(ALPHABET[draw(len(ALPHABET))] for _ in range(draw(16) + 1))


def digests(tokenizer):
    source = texts()
    for _ in range(DIGESTS):
        digest = 14695981039346656037
        for _ in range(TEXTS_A_DIGEST):
            for value in tokenizer.encode(next(source), add_special_tokens=False).ids + [0xFFFFFF]:
                digest = ((digest ^ value) * 1099511628211) & MASK
        yield digest


folder = pathlib.Path(__file__).parent
rows = {row["name"]: row["tokenizer"] for row in map(json.loads, (folder / "components.jsonl").read_text().splitlines())}
print(json.dumps({"alphabet": ALPHABET, "texts_a_digest": TEXTS_A_DIGEST,
                  "digests": {name: list(digests(Tokenizer.from_str(json.dumps(rows[name])))) for name in NAMES}}))
