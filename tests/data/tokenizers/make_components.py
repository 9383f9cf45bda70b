#!/usr/bin/env python3
"""Writes components.jsonl: small tokenizers that use each component and option, with what Hugging Face makes of them.

Needs tokenizers==0.23.3 from PyPI. One line a tokenizer: {name, tokenizer, cases: [{text, add_special_tokens, ids,
offsets, decoded, decoded_skip}]}; offsets are begin and end of each id in turn, in bytes of the text. ASCII only, the
rest is escaped.

    python3 tests/data/tokenizers/make_components.py > tests/data/tokenizers/components.jsonl
"""

import itertools
import json
import random

from tokenizers import Tokenizer

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
BYTE_LEVEL_REGEX = dict(BYTE_LEVEL, use_regex=True)
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = ["\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
            "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]


def byte_alphabet():
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = iter(range(0x100, 0x200))
    return [chr(b) if b in own else chr(next(shifted)) for b in range(256)]


MERGES = [("h", "e"), ("l", "l"), ("\u0120", "h"), ("he", "ll"), ("hell", "o"), ("\u0120h", "e"), ("\u0120", "\u0120"),
          ("1", "2"), ("12", "3"), (",", ","), (",", "\u0120"), ("a", "b"), ("b", "a"), ("ab", "ab"), ("a", "a"),
          ("\u00c3", "\u00a9"), ("\u0120he", "llo"), ("he", "llo"), ("ll", "o"), ("\u0120\u0120", "\u0120\u0120")]

TEXTS = ["", " ", "hello", " hello  hello", "hello, hello,,hello", ",,a,,", ", a ,b", "12345 hello123", "ababa aab baba aaaa",
         "caf\u00e9 cafe\u0301", "a\n\n b\r\n  c", "    x", "x    ", "don't I'LL we'\u017f", "1\u00bd\u2163x\u0661\u0662",
         "\u6771\u4eac12\u3042hello", "<a><b> <c>hello<d>", "x<a>y", " <b> <c> ", "<c>x<d>", "x <d> y", "<a><aa><a>",
         "\u00e9\u00e9", "e\u0301<e\u0301>", "xyz<0x41>", "hello\u0000", "\U0001f600!", "a.b-c_d/e\nf", "HelloWORLD'S iPhone",
         "q\u1abfw\u0897", "  \u00a0 \u3000 ", "__a__", " __  __", "xe\u0301b\u00e9b ", "..!?..\n\n//", "0123456789" * 3, "hello " * 20, "ab" * 40]


def random_texts():
    chance = random.Random(7)
    parts = ["hello", "he", " ", "  ", ",", "a", "b", "12", "3", "\n", "<a>", "<b>", "<c>", "<d>", "\u00e9", "e\u0301", "\u6771", "'s",
             ".", "A", "_", "x"]
    return ["".join(chance.choice(parts) for _ in range(chance.randint(1, 12))) for _ in range(12)]


def added(content, id_, **flags):
    token = {"id": id_, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": True}
    return dict(token, **flags)


def byte_level_tokenizer(pre_tokenizer, string_merges=False, **parts):
    tokens = byte_alphabet()
    for left, right in MERGES:
        if left + right not in tokens:
            tokens.append(left + right)
    merges = [" ".join(pair) if string_merges else list(pair) for pair in MERGES]
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
             "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges}
    model.update(parts.pop("model", {}))
    base = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [added("<a>", len(tokens))],
            "normalizer": None, "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": BYTE_LEVEL,
            "model": model}
    return dict(base, **parts)


def character_tokenizer(**options):
    """Without the byte alphabet: characters that are no token."""
    tokens = ["<unk>", "h", "e", "l", "o", "a", "b", " ", "ab", "ll", "<0x01>", "<0xC3>", "<0xA9>", "<0x2C>"]
    made = byte_level_tokenizer(None, added_tokens=[added("<unk>", 0)])
    made["model"].update(vocab={token: i for i, token in enumerate(tokens)}, merges=[["a", "b"], ["l", "l"]], **options)
    return made


def word_mark_tokenizer(**parts):
    """Of Llama 2's kind: words begin with a mark, characters without a token are bytes."""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    tokens += ["\u2581", "h", "e", "l", "o", "a", "b", "1", "2", "3", ",", ".", "x", "_", "he", "ll", "hell", "hello",
               "\u2581h", "\u2581he", "\u2581hello", "\u2581\u2581", "ab", "ba", "abab", "12", "123", ",,", "\u00e9",
               "\u2581\u2581\u2581\u2581", "o,", "\u2581x", "x\u2581"]
    merges = [["h", "e"], ["l", "l"], ["he", "ll"], ["hell", "o"], ["\u2581", "h"], ["\u2581h", "e"], ["\u2581", "he"],
              ["\u2581", "hello"], ["\u2581", "\u2581"], ["a", "b"], ["b", "a"], ["ab", "ab"], ["1", "2"], ["12", "3"],
              [",", ","], ["\u2581\u2581", "\u2581\u2581"], ["o", ","], ["\u2581", "x"], ["x", "\u2581"]]
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
             "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges}
    base = {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [added("<unk>", 0), added("<a>", 1), added("<b>", 2)],
            "normalizer": None, "pre_tokenizer": None, "post_processor": None,
            "decoder": decoders(REPLACE_MARK, BYTE_FALLBACK, FUSE, strip(1, 0)), "model": model}
    tokens[1:3] = ["<a>", "<b>"]
    model["vocab"] = {token: i for i, token in enumerate(tokens)}
    return dict(base, **parts)


MARK = "\u2581"
REPLACE_MARK = {"type": "Replace", "pattern": {"String": MARK}, "content": " "}
REPLACE_SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
PREPEND_MARK = {"type": "Prepend", "prepend": MARK}
BYTE_FALLBACK = {"type": "ByteFallback"}
FUSE = {"type": "Fuse"}


def strip(start, stop, content=" "):
    return {"type": "Strip", "content": content, "start": start, "stop": stop}


def decoders(*parts):
    return {"type": "Sequence", "decoders": list(parts)}


def normalizers(*parts):
    return {"type": "Sequence", "normalizers": list(parts)}


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": split}


def word_mark_tokenizers():
    yield "marks:prepend_replace", word_mark_tokenizer(normalizer=normalizers(PREPEND_MARK, REPLACE_SPACE))
    yield "marks:replace", word_mark_tokenizer(normalizer=REPLACE_SPACE, decoder=decoders(REPLACE_MARK, BYTE_FALLBACK, FUSE),
                                               pre_tokenizer=split({"String": " "}, "MergedWithPrevious"))
    for scheme, cut in itertools.product(["always", "never", "first"], [False, True]):
        yield f"metaspace:{scheme}:{cut}", word_mark_tokenizer(pre_tokenizer=metaspace(scheme, cut), decoder=metaspace(scheme, cut))
    yield "metaspace:after_spaces", word_mark_tokenizer(
        pre_tokenizer=sequence({"type": "WhitespaceSplit"}, metaspace("always", True)),
        decoder=decoders(metaspace("always", True), FUSE))
    yield "decoder:strip_tokens", word_mark_tokenizer(
        normalizer=REPLACE_SPACE, decoder=decoders(REPLACE_MARK, strip(1, 1, "l"), BYTE_FALLBACK, FUSE, strip(3, 0)))
    yield "decoder:replace_regex", word_mark_tokenizer(
        normalizer=REPLACE_SPACE, decoder=decoders({"type": "Replace", "pattern": {"Regex": "[\u2581l]+"}, "content": "-"}, FUSE))
    yield "decoder:no_fallback", word_mark_tokenizer(normalizer=REPLACE_SPACE, decoder=decoders(REPLACE_MARK))


def component_tokenizers():
    forms = [{"type": "NFC"}, {"type": "NFD"}, {"type": "NFKC"}, {"type": "NFKD"}, {"type": "Lowercase"},
             {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Strip", "strip_left": False, "strip_right": True},
             {"type": "Prepend", "prepend": "ab"}, {"type": "Replace", "pattern": {"String": "l"}, "content": "12"},
             {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": ""}]
    for form in forms:
        name = ":".join(str(value) for value in form.values())
        yield f"normalizer:{name}", byte_level_tokenizer(BYTE_LEVEL_REGEX, normalizer=form)
    yield "normalizer:several", byte_level_tokenizer(
        BYTE_LEVEL_REGEX, normalizer=normalizers({"type": "NFKD"}, {"type": "Lowercase"}, forms[8], forms[5]))
    cuts = [{"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Isolated"},
            {"type": "Punctuation", "behavior": "Contiguous"}, {"type": "Punctuation", "behavior": "MergedWithNext"},
            {"type": "CharDelimiterSplit", "delimiter": "l"}]
    for cut in cuts:
        name = ":".join(str(value) for value in cut.values())
        yield f"pre_tokenizer:{name}", byte_level_tokenizer(sequence(cut, BYTE_LEVEL))
    # B116: punctuation, GPT-2's pattern, digits, digits by three, in this order.
    yield "pre_tokenizer:falcon", byte_level_tokenizer(sequence(
        {"type": "Punctuation", "behavior": "Contiguous"}, BYTE_LEVEL_REGEX, {"type": "Digits", "individual_digits": False},
        split({"Regex": "[0-9][0-9][0-9]"})))
    for trim, prefix in itertools.product([False, True], [False, True]):
        post = {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": trim, "use_regex": True}
        yield f"trim:{trim}:{prefix}", byte_level_tokenizer(dict(BYTE_LEVEL_REGEX, add_prefix_space=prefix), post_processor=post)
    yield "byte_level:unk", byte_level_tokenizer(BYTE_LEVEL_REGEX, model={"unk_token": "!"})


def sequence(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def tokenizers():
    behaviors = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
    patterns = [{"Regex": "\\s+"}, {"String": ","}, {"Regex": "[a,]*"}]
    for behavior, invert, pattern in itertools.product(behaviors, [False, True], patterns):
        yield (f"split:{behavior}:{invert}:{list(pattern.values())[0]}",
               byte_level_tokenizer(sequence(split(pattern, behavior, invert), BYTE_LEVEL)))
    yield "byte_level:regex", byte_level_tokenizer(BYTE_LEVEL_REGEX)
    yield "byte_level:plain", byte_level_tokenizer(BYTE_LEVEL)
    yield "byte_level:prefix_space", byte_level_tokenizer(dict(BYTE_LEVEL_REGEX, add_prefix_space=True))
    for individual in [False, True]:
        digits = {"type": "Digits", "individual_digits": individual}
        yield f"digits:{individual}", byte_level_tokenizer(sequence(digits, BYTE_LEVEL_REGEX))
        yield f"digits_after:{individual}", byte_level_tokenizer(sequence(BYTE_LEVEL_REGEX, digits))
    yield "o200k", byte_level_tokenizer(sequence(split({"Regex": O200K}, "Removed", True), BYTE_LEVEL))
    yield "deepseek", byte_level_tokenizer(sequence(*(split({"Regex": p}) for p in DEEPSEEK), BYTE_LEVEL))
    yield "string_merges", byte_level_tokenizer(BYTE_LEVEL_REGEX, string_merges=True)
    yield "ignore_merges", byte_level_tokenizer(BYTE_LEVEL_REGEX, model={"ignore_merges": True, "merges": []})
    flags = ["single_word", "lstrip", "rstrip", "normalized", "special"]
    size = 256 + len({left + right for left, right in MERGES})
    for chosen in itertools.product([False, True], repeat=len(flags)):
        options = dict(zip(flags, chosen))
        tokens = [added(text, size + i, **options) for i, text in enumerate(["<a>", "<b>", "<c>", "<aa>", "__", "\u00e9b"])]
        name = "added:" + ",".join(flag for flag in flags if options[flag])
        yield name, byte_level_tokenizer(BYTE_LEVEL_REGEX, added_tokens=tokens, normalizer={"type": "NFC"})
    yield "nfc_sequence", byte_level_tokenizer(
        BYTE_LEVEL_REGEX, normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Sequence", "normalizers": []}]})
    yield "decoder_sequence", byte_level_tokenizer(
        BYTE_LEVEL_REGEX, decoder={"type": "Sequence", "decoders": [BYTE_LEVEL]})
    template = {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<a>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                           {"SpecialToken": {"id": "<b>", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<a>": {"id": "<a>", "ids": [size], "tokens": ["<a>"]},
                                   "<b>": {"id": "<b>", "ids": [size + 1, 3], "tokens": ["<b>", "x"]}}}
    tokens = [added("<a>", size), added("<b>", size + 1)]
    yield "template", byte_level_tokenizer(BYTE_LEVEL_REGEX, added_tokens=tokens, post_processor=template)
    yield "template_sequence", byte_level_tokenizer(
        BYTE_LEVEL_REGEX, added_tokens=tokens,
        post_processor={"type": "Sequence", "processors": [BYTE_LEVEL, template]})
    for unk, fuse, fallback in itertools.product([None, "<unk>"], [False, True], [False, True]):
        yield (f"unknown:{unk}:{fuse}:{fallback}",
               character_tokenizer(unk_token=unk, fuse_unk=fuse, byte_fallback=fallback))


def byte_offsets(text, offsets):
    starts = list(itertools.accumulate((len(c.encode()) for c in text), initial=0))
    return [starts[at] for pair in offsets for at in pair]


for name, spec in itertools.chain(tokenizers(), component_tokenizers(), word_mark_tokenizers()):
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    cases = []
    for number, text in enumerate(TEXTS + random_texts()):
        special = number % 4 == 0
        encoding = tokenizer.encode(text, add_special_tokens=special)
        ids = encoding.ids
        cases.append({"text": text, "add_special_tokens": special, "ids": ids, "offsets": byte_offsets(text, encoding.offsets),
                      "decoded": tokenizer.decode(ids, skip_special_tokens=False), "decoded_skip": tokenizer.decode(ids)})
    print(json.dumps({"name": name, "tokenizer": spec, "cases": cases}, separators=(",", ":")))
