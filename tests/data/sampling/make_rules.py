#!/usr/bin/env python3
"""Writes rules.jsonl: exact distributions of the samplers that ref/sampling.jsonl lacks.

    python3 tests/data/sampling/make_rules.py > tests/data/sampling/rules.jsonl

Plain Python floats (float64), each definition written down in the most direct way, in the order of
proto/quire/v1/generation.proto's Sampling. A case is drawn again until no value lies near a threshold, so that float32
cannot flip a set; logits are multiples of 1/256. Fields of a line:

  name, logits (null: -inf), prompt_ids, output_ids, rules (fields of kernels/base/sampling_rules.h; dry_breakers as ids),
  temperature, min_p, top_k, top_p, xtc_applies, mirostat_bound,
  probs                what is drawn from
  next_bounds          with mirostat: for each id of positive probability, the bound behind it
"""

import json
import math
import random

INF = math.inf
MARGIN = 2e-4


class Near(Exception):
    """A value lies too near to a threshold."""


def apart(value, threshold):
    if abs(value - threshold) < MARGIN * max(1.0, abs(threshold)):
        raise Near
    return value


def softmax(logits):
    top = max(logits)
    weights = [math.exp(x - top) if x > -INF else 0.0 for x in logits]
    total = math.fsum(weights)
    return [w / total for w in weights]


def renormalize(probs):
    total = math.fsum(probs)
    return [p / total for p in probs]


def penalize(logits, prompt, output, rules):
    window = rules.get("repeat_last_n", 0)
    both, out = prompt + output, output
    if window > 0:
        both, out = both[-window:], out[-window:]
    penalty = rules.get("repetition_penalty", 1.0)
    for token in set(both):
        logits[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
    for token in set(out):
        logits[token] -= rules.get("frequency_penalty", 0.0) * out.count(token) + rules.get("presence_penalty", 0.0)


def dry(logits, tokens, rules):
    multiplier = rules.get("dry_multiplier", 0.0)
    if multiplier == 0:
        return
    base, allowed = rules.get("dry_base", 1.75), rules.get("dry_allowed_length", 2)
    breakers = set(rules.get("dry_breakers", []))
    window = rules.get("dry_last_n", 0)
    if window > 0:
        tokens = tokens[-window:]
    longest = {}
    for end in range(len(tokens) - 1):  # tokens[.. end] against tokens[.. last]; tokens[end + 1] followed
        length = 0
        while length <= end and tokens[end - length] == tokens[-1 - length] and tokens[-1 - length] not in breakers:
            length += 1
        follower = tokens[end + 1]
        longest[follower] = max(longest.get(follower, 0), length)
    for token, length in longest.items():
        if length >= allowed and token not in breakers:
            logits[token] -= multiplier * base ** (length - allowed)


def no_repeat_ngrams(logits, tokens, n):
    if n == 0 or len(tokens) < n:
        return
    seen = {tuple(tokens[i:i + n]) for i in range(len(tokens) - n + 1)}
    before = tuple(tokens[len(tokens) - n + 1:])
    for token in range(len(logits)):
        if before + (token,) in seen:
            logits[token] = -INF


def top_n_sigma(logits, n):
    finite = [x for x in logits if x > -INF]
    mean = math.fsum(finite) / len(finite)
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in finite) / len(finite))
    lowest = max(finite) - n * deviation
    return [x if x > -INF and apart(x, lowest) >= lowest else -INF for x in logits]


def dynamic_temperature(logits, temperature, rules):
    probs = [p for p in softmax(logits) if p > 0]
    if len(probs) <= 1:
        return temperature
    entropy = -math.fsum(p * math.log(p) for p in probs)
    low, high = max(0.0, temperature - rules["dynatemp_range"]), temperature + rules["dynatemp_range"]
    return low + (high - low) * (entropy / math.log(len(probs))) ** rules.get("dynatemp_exponent", 1.0)


def typical(probs, mass):
    entropy = -math.fsum(p * math.log(p) for p in probs if p > 0)
    order = sorted((abs(-math.log(p) - entropy), i) for i, p in enumerate(probs) if p > 0)
    keep, total = set(), 0.0
    for rank, (distance, token) in enumerate(order):
        if rank > 0 and distance - order[rank - 1][0] < 1e-5:
            raise Near
        keep.add(token)
        total += probs[token]
        if apart(total, mass) >= mass:
            break
    return renormalize([p if i in keep else 0.0 for i, p in enumerate(probs)])


def min_p(probs, share):
    return renormalize([p if p > 0 and (share == 0 or apart(p / max(probs), share) >= share) else 0.0 for p in probs])


def ranked(probs):
    return sorted((i for i, p in enumerate(probs) if p > 0), key=lambda i: (-probs[i], i))


def top_k(probs, k):
    if k <= 0:
        return probs
    keep = set(ranked(probs)[:k])
    return renormalize([p if i in keep else 0.0 for i, p in enumerate(probs)])


def top_p(probs, mass):
    if mass >= 1:
        return probs
    keep, total = set(), 0.0
    for token in ranked(probs):
        keep.add(token)
        total += probs[token]
        if apart(total, mass) >= mass:
            break
    return renormalize([p if i in keep else 0.0 for i, p in enumerate(probs)])


def xtc(probs, threshold):
    top = [i for i in ranked(probs) if apart(probs[i], threshold) >= threshold]
    if len(top) < 2:
        return probs
    return renormalize([0.0 if i in top[:-1] else p for i, p in enumerate(probs)])


def mirostat(probs, bound):
    order = ranked(probs)
    keep = {i for i in order if apart(-math.log2(probs[i]), bound) <= bound} | {order[0]}
    return renormalize([p if i in keep else 0.0 for i, p in enumerate(probs)])


def distribution(case):
    rules, prompt, output = case["rules"], case["prompt_ids"], case["output_ids"]
    logits = [-INF if x is None else x for x in case["logits"]]
    if rules.get("allowed_ids"):
        logits = [x if i in rules["allowed_ids"] else -INF for i, x in enumerate(logits)]
    for word in rules.get("bad_words", []):
        if len(word) == 1 or output[-(len(word) - 1):] == word[:-1]:
            logits[word[-1]] = -INF
    for token, bias in rules.get("logit_bias", []):
        logits[token] += bias
    penalize(logits, prompt, output, rules)
    dry(logits, prompt + output, rules)
    no_repeat_ngrams(logits, prompt + output, rules.get("no_repeat_ngram_size", 0))
    temperature = case["temperature"]
    if temperature == 0:
        best = max(logits)
        if sorted(logits)[-2] > best - MARGIN:
            raise Near
        return [1.0 if x == best else 0.0 for x in logits]
    if rules.get("top_n_sigma", 0) > 0:
        logits = top_n_sigma(logits, rules["top_n_sigma"])
    if rules.get("dynatemp_range", 0) > 0:
        temperature = dynamic_temperature(logits, temperature, rules)
    probs = softmax([x / temperature for x in logits])
    if rules.get("mirostat_tau", 0) > 0:
        return mirostat(probs, case["mirostat_bound"])
    if rules.get("typical_p", 1) < 1:
        probs = typical(probs, rules["typical_p"])
    probs = top_p(top_k(min_p(probs, case["min_p"]), case["top_k"]), case["top_p"])
    return xtc(probs, rules.get("xtc_threshold", 0.1)) if case["xtc_applies"] else probs


def make(rng, name, rules, **given):
    for _ in range(1000):
        vocab = rng.choice([24, 40, 90, 300])
        few = min(vocab, 12)  # ids of texts: repetitions are frequent
        case = {
            "name": name,
            "logits": [round(rng.gauss(0, 2.5) * 256) / 256 for _ in range(vocab)],
            "prompt_ids": [rng.randrange(few) for _ in range(rng.randrange(1, 16))],
            "output_ids": [rng.randrange(few) for _ in range(rng.randrange(0, 16))],
            "rules": rules(rng, vocab) if callable(rules) else dict(rules),
            "temperature": rng.choice([0.5, 1.0, 1.0, 1.5]),
            "min_p": 0.0, "top_k": 0, "top_p": 1.0, "xtc_applies": False, "mirostat_bound": 0.0,
        }
        for key, value in given.items():
            case[key] = value(rng) if callable(value) else value
        if rng.random() < 0.3:
            for token in rng.sample(range(vocab), vocab // 5):
                case["logits"][token] = None
        if case["rules"].get("mirostat_tau"):
            case["mirostat_bound"] = case["mirostat_bound"] or 2 * case["rules"]["mirostat_tau"]
        try:
            case["probs"] = distribution(case)
        except Near:
            continue
        if case["rules"].get("mirostat_tau") and case["temperature"] > 0:
            tau, eta = case["rules"]["mirostat_tau"], case["rules"]["mirostat_eta"]
            case["next_bounds"] = [[i, case["mirostat_bound"] - eta * (-math.log2(p) - tau)]
                                   for i, p in enumerate(case["probs"]) if p > 0]
        return case
    raise RuntimeError("no case of " + name + " keeps its distance")


def repeats(*tail):
    """Prompts whose end has come before."""
    return lambda rng: [rng.randrange(12) for _ in range(4)] + list(tail) + [rng.randrange(12) for _ in range(3)]


def everything(rng, vocab):
    return {"logit_bias": [[rng.randrange(vocab), 3.5]], "repetition_penalty": 1.3, "frequency_penalty": 0.25,
            "presence_penalty": -0.5, "repeat_last_n": rng.choice([0, 8]), "dry_multiplier": 0.75, "dry_base": 1.5,
            "dry_allowed_length": 1, "no_repeat_ngram_size": 3, "top_n_sigma": 2.5, "dynatemp_range": 0.25,
            "dynatemp_exponent": 1.5, "typical_p": 0.9, "xtc_probability": 1.0, "xtc_threshold": 0.05}


def cases():
    rng = random.Random(20260806)
    for window in (1, 3, 10, 100):
        for _ in range(3):
            yield make(rng, f"repeat_last_n_{window}", {"repetition_penalty": 1.5, "frequency_penalty": 0.5,
                                                        "presence_penalty": 0.25, "repeat_last_n": window})
    for _ in range(8):
        yield make(rng, "dry", {"dry_multiplier": 0.8})
    for allowed in (1, 2, 3, 4):
        for breakers in ([], [3], [5, 9]):
            yield make(rng, f"dry_allowed_{allowed}", {"dry_multiplier": 1.25, "dry_base": 1.5,
                                                       "dry_allowed_length": allowed, "dry_breakers": breakers},
                       prompt_ids=repeats(7, 3, 5, 2, 8), output_ids=[7, 3, 5, 2, 8])
    yield make(rng, "dry_periodic", {"dry_multiplier": 0.5, "dry_base": 1.1}, prompt_ids=[1, 2] * 9, output_ids=[1])
    yield make(rng, "dry_constant", {"dry_multiplier": 0.25, "dry_base": 1.05}, prompt_ids=[4] * 20, output_ids=[4, 4])
    yield make(rng, "dry_window", {"dry_multiplier": 2.0, "dry_last_n": 6}, prompt_ids=repeats(7, 3, 5, 2, 8),
               output_ids=[7, 3, 5, 2, 8])
    yield make(rng, "dry_greedy", {"dry_multiplier": 10.0}, prompt_ids=repeats(7, 3, 5), output_ids=[7, 3], temperature=0.0)
    for n in (1, 2, 3, 5, 40):
        for _ in range(3):
            yield make(rng, f"no_repeat_ngram_{n}", {"no_repeat_ngram_size": n})
    yield make(rng, "no_repeat_ngram_overlap", {"no_repeat_ngram_size": 2}, prompt_ids=[6, 6, 6], output_ids=[])
    for sigma in (0.5, 1.0, 1.5, 3.0):
        for _ in range(3):
            yield make(rng, f"top_n_sigma_{sigma}", {"top_n_sigma": sigma})
    yield make(rng, "top_n_sigma_then_top_p", {"top_n_sigma": 1.5}, top_p=0.7, min_p=0.05)
    for exponent in (0.5, 1.0, 2.0):
        for spread in (0.25, 0.5, 3.0):
            yield make(rng, f"dynatemp_{spread}_{exponent}", {"dynatemp_range": spread, "dynatemp_exponent": exponent})
    for mass in (0.05, 0.3, 0.6, 0.9, 0.99):
        for _ in range(2):
            yield make(rng, f"typical_{mass}", {"typical_p": mass})
    yield make(rng, "typical_then_min_p", {"typical_p": 0.8}, min_p=0.2)
    yield make(rng, "typical_then_top_k_top_p", {"typical_p": 0.8}, top_k=5, top_p=0.8)
    for threshold in (0.02, 0.05, 0.1, 0.2, 0.5):
        for applies in (True, False):
            yield make(rng, f"xtc_{threshold}_{applies}",
                       {"xtc_probability": 1.0 if applies else 0.0, "xtc_threshold": threshold}, xtc_applies=applies)
    yield make(rng, "xtc_behind_top_k", {"xtc_probability": 1.0, "xtc_threshold": 0.1}, xtc_applies=True, top_k=4)
    yield make(rng, "xtc_behind_top_p", {"xtc_probability": 1.0, "xtc_threshold": 0.1}, xtc_applies=True, top_p=0.9)
    for tau in (0.5, 2.0, 5.0):
        for bound in (0.0, 1.0, 3.5, 7.0):
            yield make(rng, f"mirostat_{tau}_{bound}", {"mirostat_tau": tau, "mirostat_eta": 0.1}, mirostat_bound=bound,
                       top_k=2, top_p=0.5, min_p=0.4)
    yield make(rng, "mirostat_greedy", {"mirostat_tau": 5.0, "mirostat_eta": 0.1}, temperature=0.0)
    for _ in range(10):
        yield make(rng, "everything", everything, xtc_applies=True, min_p=0.01, top_k=30, top_p=0.95)


def main():
    for case in cases():
        case["probs"] = [float(f"{p:.10g}") for p in case["probs"]]
        print(json.dumps(case, separators=(",", ":")))


if __name__ == "__main__":
    main()
