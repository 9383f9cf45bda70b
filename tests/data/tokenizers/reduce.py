#!/usr/bin/env python3
"""Writes the reduced tokenizers and their cases that the tests use without ../shared.

For each real tokenizer: some reference cases of every category, all stream cases, and a tokenizer.json that keeps of
vocabulary and merges what those texts can reach, with the real ids. Its encodings of the chosen texts are the real ones:
a merge is looked up only for two neighbours, whose spellings together stand in a text. Each case also gets the offsets
that Hugging Face's tokenizers gives, in bytes: begin and end of each id in turn. Needs tokenizers==0.23.3 from PyPI.

    python3 tests/data/tokenizers/reduce.py ../shared tests/data/tokenizers
"""

import itertools
import json
import pathlib
import re
import sys
import unicodedata

from tokenizers import Tokenizer

NAMES = ["smollm2", "llama3_1", "qwen3", "mistral_v1", "gemma3"]
MARK = "\u2581"
CASES_A_CATEGORY = 6
LONGEST_TEXT = 400


def byte_spelling():
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = iter(range(0x100, 0x200))
    return {b: chr(b) if b in own else chr(next(shifted)) for b in range(256)}


SPELLING = byte_spelling()


def spell(text):
    return "".join(SPELLING[byte] for byte in text.encode())


def read_lines(path):
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def choose(cases):
    """Evenly spaced cases of each category, the very long ones left out."""
    chosen = []
    for category in sorted({case["category"] for case in cases}):
        of_category = [case for case in cases if case["category"] == category and len(case["text"]) <= LONGEST_TEXT]
        step = max(1, len(of_category) // CASES_A_CATEGORY)
        chosen += of_category[::step][:CASES_A_CATEGORY + 1]
    return chosen


def spellings(full, text):
    """What of `text` the model may get to see in one piece."""
    if not full["model"].get("byte_fallback"):
        return [spell(variant) for variant in (text, unicodedata.normalize("NFC", text))]
    added = sorted((token["content"] for token in full["added_tokens"]), key=len, reverse=True)
    segments = re.split("|".join(re.escape(content) for content in added if content in text) or "$^", text)
    return [MARK + segment.replace(" ", MARK) for segment in [text, *segments]]


def reduce(full, cases, streams):
    model = full["model"]
    longest = max(map(len, model["vocab"]))
    reachable = set(SPELLING.values()) | {f"<0x{byte:02X}>" for byte in range(256)}
    for spelling in {spelling for case in cases for spelling in spellings(full, case["text"])}:
        for begin in range(len(spelling)):
            reachable.update(spelling[begin:end] for end in range(begin + 1, min(len(spelling), begin + longest) + 1))
    used = {i for row in cases + streams for i in row["ids"] + row.get("prefix_ids", [])}
    added = [token for token in full["added_tokens"]
             if token["special"] or token["id"] in used or any(token["content"] in case["text"] for case in cases)]
    wanted = used | {token["id"] for token in added}
    vocab = {token: i for token, i in model["vocab"].items() if token in reachable or i in wanted}
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    kept = [merge for merge, pair in zip(model["merges"], pairs)
            if "".join(pair) in vocab and pair[0] in vocab and pair[1] in vocab]
    return dict(full, added_tokens=added, model=dict(model, vocab=vocab, merges=kept))


def with_offsets(tokenizer, case):
    text = case["text"]
    encoding = tokenizer.encode(text, add_special_tokens=case["add_special_tokens"])
    assert encoding.ids == case["ids"], text
    starts = list(itertools.accumulate((len(c.encode()) for c in text), initial=0))
    return dict(case, offsets=[starts[at] for pair in encoding.offsets for at in pair])


def main(shared, target):
    for name in NAMES:
        full = json.loads((shared / "tokenizers" / name / "tokenizer.json").read_text())
        cases = choose(read_lines(shared / "ref" / "tokenizers" / f"{name}.jsonl"))
        tokenizer = Tokenizer.from_file(str(shared / "tokenizers" / name / "tokenizer.json"))
        cases = [with_offsets(tokenizer, case) for case in cases]
        streams = read_lines(shared / "ref" / "tokenizers" / f"{name}.stream.jsonl")
        (target / name).mkdir(exist_ok=True)
        (target / name / "tokenizer.json").write_text(
            json.dumps(reduce(full, cases, streams), separators=(",", ":"), ensure_ascii=False) + "\n", encoding="utf-8")
        for kind, rows in (("jsonl", cases), ("stream.jsonl", streams)):
            lines = [json.dumps(row, separators=(",", ":")) + "\n" for row in rows]
            (target / f"{name}.{kind}").write_text("".join(lines))


main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
