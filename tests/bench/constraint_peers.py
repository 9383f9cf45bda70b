"""The table of constraint_bench for xgrammar and llguidance, same cases and tokens, called through Python (some tenths of
a microsecond a call). Needs xgrammar, llguidance and tokenizers from PyPI.

    python constraint_peers.py TOKENIZER.json JSON_SCHEMA.jsonl
"""
import json
import sys
import time

import llguidance
import llguidance.hf
import llguidance.numpy
import numpy
import tokenizers
import xgrammar


def show(what, seconds):
    values = sorted(s * 1e6 for s in seconds)
    at = lambda share: values[int(share * (len(values) - 1))]
    print(f"{what:<34} {len(values):8} {at(0.5):10.2f} {at(0.99):10.2f} {values[-1]:10.2f}")


def main():
    tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
    cases = [c for c in map(json.loads, open(sys.argv[2])) if c["accepted"]]
    end = tokenizer.token_to_id("<|eot_id|>")
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    spelled = [tokenizer.id_to_token(i) or "" for i in range(size)]
    info = xgrammar.TokenizerInfo(spelled, vocab_type=xgrammar.VocabType.BYTE_LEVEL, vocab_size=size, stop_token_ids=[end])
    other = llguidance.LLTokenizer(tokenizer.to_str(), n_vocab=size, eos_token=end)
    print(f"{'microseconds':<34} {'count':>8} {'p50':>10} {'p99':>10} {'max':>10}")

    clock = time.perf_counter
    for engine in ("xgrammar", "llguidance"):
        compiling, first, warm = [], [], []
        compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        bitmask = xgrammar.allocate_token_bitmask(1, size) if engine == "xgrammar" else numpy.zeros((1, (size + 31) // 32), numpy.int32)
        for c in cases:
            ids = tokenizer.encode(c["instance_text"], add_special_tokens=False).ids + [end]
            schema = json.dumps(c["schema"])
            begin = clock()
            if engine == "xgrammar":
                grammar = compiler.compile_json_schema(schema, strict_mode=False, any_whitespace=True)
            else:
                matcher = llguidance.LLMatcher(other, llguidance.LLMatcher.grammar_from_json_schema(schema))
            compiling.append(clock() - begin)
            for round_number in range(4):
                if engine == "xgrammar":
                    matcher = xgrammar.GrammarMatcher(grammar)
                elif round_number:
                    matcher.reset()
                times = first if round_number == 0 else warm
                for token in ids:
                    if engine == "xgrammar":
                        begin = clock()
                        matcher.fill_next_token_bitmask(bitmask)
                        matcher.accept_token(token)
                    else:
                        begin = clock()
                        llguidance.numpy.fill_next_token_bitmask(matcher, bitmask)
                        matcher.consume_token(token)
                    times.append(clock() - begin)
        show(f"{engine}: compile", compiling)
        show(f"{engine}: first mask + step", first)
        show(f"{engine}: warm mask + step", warm)


main()
