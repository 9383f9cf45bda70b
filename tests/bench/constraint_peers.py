"""The table of constraint_bench for xgrammar and llguidance, same cases and tokens, least of as many rounds, called through
Python (some tenths of a microsecond a call). Needs xgrammar, llguidance and tokenizers from PyPI.

    python constraint_peers.py TOKENIZER.json JSON_SCHEMA.jsonl [ROUNDS]
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
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
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

        def compile_schema(schema):
            begin = clock()
            if engine == "xgrammar":
                result = compiler.compile_json_schema(schema, strict_mode=False, any_whitespace=True)
            else:
                result = llguidance.LLMatcher(other, llguidance.LLMatcher.grammar_from_json_schema(schema))
            return clock() - begin, result

        def step(matcher, token):
            if engine == "xgrammar":
                begin = clock()
                matcher.fill_next_token_bitmask(bitmask)
                matcher.accept_token(token)
            else:
                begin = clock()
                llguidance.numpy.fill_next_token_bitmask(matcher, bitmask)
                matcher.consume_token(token)
            return clock() - begin

        for c in cases:
            ids = tokenizer.encode(c["instance_text"], add_special_tokens=False).ids + [end]
            best = [[float("inf")] * len(ids) for _ in range(2)]
            compile_times = []
            for _ in range(rounds):
                seconds, compiled = compile_schema(json.dumps(c["schema"]))
                compile_times.append(seconds)
                for repeat in range(4):
                    matcher = xgrammar.GrammarMatcher(compiled) if engine == "xgrammar" else compiled
                    if engine != "xgrammar" and repeat:
                        matcher.reset()
                    row = best[min(repeat, 1)]
                    for i, token in enumerate(ids):
                        row[i] = min(row[i], step(matcher, token))
            compiling.append(min(compile_times))
            first += best[0]
            warm += best[1]
        show(f"{engine}: compile", compiling)
        show(f"{engine}: first mask + step", first)
        show(f"{engine}: warm mask + step", warm)


main()
