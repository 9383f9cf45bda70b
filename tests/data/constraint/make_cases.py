"""Writes json_schema.jsonl, regex.jsonl and ebnf.jsonl beside itself: cases on which independent judges agree.

Needs jsonschema 4.26.0, llguidance 1.9.1 and xgrammar 0.2.9 from PyPI. A case is kept if all say the same: jsonschema
(or Python's re, or for EBNF xgrammar alone) about the whole text, both matchers about the whole text and, else the keys
are left out, about how many bytes they take.
"""
import json
import os
import re
import sys

import jsonschema
import llguidance
import xgrammar

HERE = os.path.dirname(os.path.abspath(__file__))
END = 256


class _Bytes:
    eos_token_id = END
    bos_token_id = None
    tokens = [bytes([i]) for i in range(256)] + [b"\xff<eos>"]
    special_token_ids = [END]

    def __call__(self, text):
        return list(text.encode() if isinstance(text, str) else text)


TOKENIZER = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()))
COMPILER = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo(
    [bytes([i]) for i in range(256)] + [b"<eos>"], vocab_type=xgrammar.VocabType.RAW, stop_token_ids=[END]))


def by_xgrammar(grammar, text):
    matcher, taken = xgrammar.GrammarMatcher(grammar), 0
    for byte in text:
        if not matcher.accept_token(byte):
            break
        taken += 1
    return taken, taken == len(text) and matcher.accept_token(END)


def by_llguidance(grammar, text):
    matcher, taken = llguidance.LLMatcher(TOKENIZER, grammar), 0
    if matcher.get_error():
        return None
    for byte in text:
        if matcher.try_consume_tokens([byte]) != 1:
            break
        taken += 1
    return taken, taken == len(text) and matcher.is_accepting()


def unique(pairs):
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def refuse(name):
    raise ValueError(name)


def by_jsonschema(schema, text):
    try:
        value = json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except ValueError:
        return False
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).is_valid(value)


def case(head, text, whole, verdicts):
    if None in verdicts or any(accepted != whole for _, accepted in verdicts):
        return None
    result = dict(head, accepted=whole)
    taken = {n for n, _ in verdicts}
    if len(taken) == 1:
        result.update(prefix_bytes=taken.pop())
        result.update(prefix_ok=result["prefix_bytes"] == len(text))
    return result


def write(name, cases):
    kept = [c for c in cases if c]
    with open(os.path.join(HERE, name), "w") as file:
        for c in kept:
            file.write(json.dumps(c, separators=(",", ":")) + "\n")
    print(name, len(kept), "of", len(cases))


def whitespace(text):
    try:
        value = json.loads(text)
    except ValueError:
        return "n/a"
    return "compact" if json.dumps(value, separators=(",", ":"), ensure_ascii=False) == text else "free"


def schema_cases():
    import schema_inputs
    cases = []
    for schema, texts in schema_inputs.SCHEMAS:
        try:
            grammar = COMPILER.compile_json_schema(json.dumps(schema), strict_mode=False, any_whitespace=True)
            other = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        except Exception as error:  # a schema that one of them does not have
            print("left out:", json.dumps(schema), str(error)[:80], file=sys.stderr)
            continue
        for text in texts:
            data = text.encode()
            verdicts = [by_xgrammar(grammar, data), by_llguidance(other, data)]
            head = {"schema": schema, "instance_text": text, "whitespace": whitespace(text)}
            cases.append(case(head, data, by_jsonschema(schema, text), verdicts))
            if cases[-1] is None:
                print("disagree:", json.dumps(schema), ascii(text), by_jsonschema(schema, text), verdicts, file=sys.stderr)
    return cases


def regex_cases():
    import grammar_inputs
    cases = []
    for pattern, texts in grammar_inputs.REGEXES:
        try:
            grammar = COMPILER.compile_regex(pattern)
            other = llguidance.LLMatcher.grammar_from_regex(pattern)
        except Exception as error:
            print("left out:", pattern, str(error)[:80], file=sys.stderr)
            continue
        for text in texts:
            verdicts = [by_xgrammar(grammar, text.encode()), by_llguidance(other, text.encode())]
            head = {"kind": "regex", "grammar": pattern, "text": text}
            cases.append(case(head, text.encode(), re.fullmatch(pattern, text) is not None, verdicts))
    return cases


def ebnf_cases():
    import grammar_inputs
    cases = []
    for source, texts in grammar_inputs.GRAMMARS:
        grammar = COMPILER.compile_grammar(source)
        for text in texts:
            verdict = by_xgrammar(grammar, text.encode())
            cases.append(case({"kind": "ebnf", "grammar": source, "text": text}, text.encode(), verdict[1], [verdict]))
    return cases


if __name__ == "__main__":
    sys.path.insert(0, HERE)
    write("json_schema.jsonl", schema_cases())
    write("regex.jsonl", regex_cases())
    write("ebnf.jsonl", ebnf_cases())
