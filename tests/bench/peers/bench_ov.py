#!/usr/bin/env python3
"""OpenVINO GenAI's ContinuousBatchingPipeline, in process (no HTTP), in the same closed loop
and with the same prompts and figures as bench_openai.py.

    bench_ov.py --model DIR_or_GGUF --tokenizer DIR --concurrency 1,8,32 --num-requests 8,32,64 ..."""
import argparse, json, random, sys, time
import numpy as np
import openvino as ov
import openvino_genai as og
from bench_openai import HEAD, Words, at_once_ratio, line, stats

ap = argparse.ArgumentParser()
ap.add_argument("--model", required=True)
ap.add_argument("--tokenizer", required=True)
ap.add_argument("--concurrency", default="1,8,32")
ap.add_argument("--num-requests", default="8,32,64")
ap.add_argument("--input-len", type=int, default=128)
ap.add_argument("--output-len", type=int, default=64)
ap.add_argument("--shared-prefix-len", type=int, default=0)
ap.add_argument("--at-once", type=int, default=0, metavar="PAIRS")
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--threads", type=int, default=2)
ap.add_argument("--kv", default="u8", help="KV cache precision: u8, f32, f16")
ap.add_argument("--prop", action="append", default=[], help="NAME=VALUE CPU plugin property")
ap.add_argument("--json")
a = ap.parse_args()

w = Words(a.tokenizer)
sc = og.SchedulerConfig()
sc.cache_size, sc.max_num_seqs, sc.max_num_batched_tokens = 1, 64, 2048
sc.dynamic_split_fuse = True
sc.enable_prefix_caching = a.shared_prefix_len > 0
props = {"INFERENCE_NUM_THREADS": a.threads, "KV_CACHE_PRECISION": a.kv}
for p in a.prop:
    k, v = p.split("=", 1)
    props[k] = int(v) if v.isdigit() else v
t = time.perf_counter()
pipe = og.ContinuousBatchingPipeline(a.model, sc, "CPU", props)
load = time.perf_counter() - t
rng = random.Random(f"{a.seed}/prefix")
prefix = w.make(rng, a.shared_prefix_len)[1]


def prompts(n, tag):
    r = random.Random(f"{a.seed}/{tag}")
    return [prefix + w.make(r, a.input_len)[1] for _ in range(n)]


nid = 0


def run(ps, conc, want):
    global nid
    cfg = og.GenerationConfig()
    cfg.max_new_tokens, cfg.do_sample, cfg.ignore_eos = want, False, True
    todo, live, rs = list(ps), [], []
    t_start = time.perf_counter()
    while todo or live:
        while todo and len(live) < conc:
            p = todo.pop(0)
            live.append({"h": pipe.add_request(nid, ov.Tensor(np.array([p], dtype=np.int64)), cfg), "t0": time.perf_counter(),
                         "n_in": len(p), "n": 0, "stamps": []})
            nid += 1
        pipe.step()
        now = time.perf_counter()
        for r in list(live):
            while r["h"].can_read():
                for o in r["h"].read().values():
                    k = len(o.generated_ids)
                    if k:
                        r["n"] += k
                        r["stamps"].append(now)
            if r["h"].get_status() != og.GenerationStatus.RUNNING:
                live.remove(r)
                rs.append(r)
    wall = time.perf_counter() - t_start
    for r in rs:
        s = r["stamps"]
        r["ttft"], r["e2el"] = s[0] - r["t0"], s[-1] - r["t0"]
        r["tpot"] = (s[-1] - s[0]) / (r["n"] - 1) if r["n"] > 1 else None
        r["itl"] = [y - x for x, y in zip(s, s[1:])]
    nout, nin = sum(r["n"] for r in rs), sum(r["n_in"] for r in rs)
    return {"concurrency": conc, "requests": len(rs), "failed": 0, "errors": [], "wall_s": wall, "client_cpu": 0.0,
            "prompt_tokens": nin, "output_tokens": nout, "req_s": len(rs) / wall, "out_tok_s": nout / wall,
            "total_tok_s": (nin + nout) / wall, "wrong_length": sum(r["n"] != want for r in rs), "usage_from_server": True,
            "ttft_ms": stats([r["ttft"] for r in rs]), "tpot_ms": stats([r["tpot"] for r in rs]),
            "itl_ms": stats([x for r in rs for x in r["itl"]]), "e2el_ms": stats([r["e2el"] for r in rs])}


run(prompts(4, "warm"), 4, 8)
rep = {"model": a.model, "load_s": load, "kv": a.kv, "threads": a.threads, "input_len": a.input_len, "output_len": a.output_len,
       "shared_prefix_len": a.shared_prefix_len, "seed": a.seed, "runs": []}
print(f"load {load:.1f} s")
print(HEAD)
plan = [(c, n, f"c{c}") for c, n in zip(map(int, a.concurrency.split(",")), map(int, a.num_requests.split(",")))]
if a.at_once:
    plan = [(c, c, f"pair{i}/{c}") for i in range(a.at_once) for c in (1, 4)]
for c, n, tag in plan:
    if a.shared_prefix_len:      # a fresh prefix, so that nothing before has cached it
        prefix = w.make(random.Random(f"{a.seed}/prefix/{tag}"), a.shared_prefix_len)[1]
    s = run(prompts(n, tag), c, a.output_len)
    rep["runs"].append(s)
    print(line(s), flush=True)
if a.at_once:
    rep["at_once"] = at_once_ratio(rep["runs"][0::2], rep["runs"][1::2])
if a.json:
    json.dump(rep, open(a.json, "w"), indent=1)
