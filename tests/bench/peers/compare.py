#!/usr/bin/env python3
"""Starts each peer in turn on 127.0.0.1, loads it with bench_openai.py, prints one table.

    build/peers/venv/tools/bin/python tests/bench/peers/compare.py --rounds 5 \
        --peers quired,llama-q4_0,llama-q4_1,llama-q8_0,ov-q4_1,ov-q8_0,vllm-f32

Peers run one at a time, in turn and back (A B C, C B A, ...), so that a slow drift of the
machine meets all of them. Before each one starts, the machine must be idle (--idle-max, as a
share of all cores, over 3 s; waits, then notes it). --lock FILE holds an exclusive flock while
a peer runs. A peer's model is named by what its weights are; see README.md for what is fair.
Per round and peer: warm-up, concurrency 1/8/32 with 128 in and 64 out, closed loop, EOS ignored,
unique prompts (and cache_prompt off where there is such a switch); then, in a second start
where the peer wants other settings for it, 16 requests that share a prefix of 1,024 tokens,
with 32 unique tokens and 32 out, at concurrency 4, prefix caching on; three times one such request alone and then four
at once, each time with a prefix nobody has cached; and 2,048 in and 128 out at concurrency 4. `quired` (binary: QUIRED,
default this tree's release build) runs with its defaults and also says how well its answers fit a text (mean negative
log-likelihood of ref/models/smollm2/perplexity.json, QUIRE_REF), so that its speed is bound to its quality."""
import argparse, fcntl, json, os, signal, statistics, subprocess, sys, time
from contextlib import contextmanager
from urllib.request import Request, urlopen

from bench_openai import line

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
W = os.environ.get("PEERS_DIR", f"{ROOT}/build/peers")
B, M = f"{W}/build-native/bin", f"{W}/models"
PORT = int(os.environ.get("PEERS_PORT", "18120"))
T = int(os.environ.get("PEERS_THREADS", str(os.cpu_count())))


def llama(gguf, *more):
    base = [f"{B}/llama-server", "-m", f"{M}/{gguf}", "--host", "127.0.0.1", "--port", "{port}", "-t", str(T), "-tb", str(T),
            "--no-webui", *more]
    return {"load": base + ["-np", "32", "-c", "8192", "--no-kv-unified", "-b", "2048", "-ub", "512", "--cache-ram", "0"],
            "prefix": base + ["-np", "4", "-c", "12288", "--no-kv-unified", "-b", "2048", "-ub", "512"],
            "load_extra": {"cache_prompt": False}, "prefix_extra": {"cache_prompt": True}, "model": "m", "health": "/health"}


VENV = {"VLLM_CPU_KVCACHE_SPACE": "4", "VLLM_CPU_OMP_THREADS_BIND": os.environ.get("VLLM_BIND", f"0-{T - 1}"),
        "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def vllm(dtype, model, *more):
    c = [f"{W}/venv/vllm/bin/vllm", "serve", f"{M}/{model}", "--served-model-name", "m", "--host", "127.0.0.1", "--port", "{port}",
         "--dtype", dtype, "--max-model-len", "4096", "--max-num-seqs", "64", *more]
    return {"load": c, "model": "m", "health": "/health", "env": VENV}


PEERS = {
    "llama-q4_1": llama("m.Q4_1.gguf"),
    "llama-q4_0": llama("m.Q4_0.gguf"),
    "llama-q8_0": llama("m.Q8_0.gguf"),
    "llama-f16": llama("m.F16.gguf"),
    "llama-bf16": llama("m.BF16.gguf"),
    "vllm-bf16": vllm("bfloat16", "hf-bfloat16"),
    "vllm-f32": vllm("float32", "hf-float32"),
}
# in-process peers: a command that writes bench_openai.py's JSON itself
OV = [f"{W}/venv/ov/bin/python", f"{HERE}/bench_ov.py", "--tokenizer", f"{M}/hf-bfloat16", "--threads", str(T)]
for q in ("q4_1", "q4_0", "q8_0", "f16"):
    PEERS["ov-" + q] = {"inproc": OV + ["--model", f"{M}/ov-{q}"]}
PEERS["quired"] = {
    "load": [os.environ.get("QUIRED", f"{ROOT}/build/release/bin/quired"), "--model", f"{M}/m.Q4_1.gguf", "--served-model-name", "m",
             "--http-listen", "127.0.0.1:{port}", "--grpc-listen", ""], "model": "m", "health": "/health", "quality": True}
PERPLEXITY = os.path.join(os.environ.get("QUIRE_REF", f"{ROOT}/../shared/ref"), "models/smollm2/perplexity.json")

# What runs: with which lengths, and in which of a peer's two starts.
WORKLOADS = {
    "load": ("load", None),  # from the command line
    "prefix": ("prefix", {"concurrency": 4, "num_requests": 16, "input_len": 32, "output_len": 32, "shared_prefix_len": 1024}),
    "at_once": ("prefix", {"at_once": 3, "input_len": 32, "output_len": 32, "shared_prefix_len": 1024}),
    "long": ("prefix", {"concurrency": 4, "num_requests": 8, "input_len": 2048, "output_len": 128}),
}


def busy():
    v = list(map(int, open("/proc/stat").readline().split()[1:]))
    return sum(v) - v[3] - v[4], sum(v)


def idle_share(seconds=3.0):
    a = busy()
    time.sleep(seconds)
    b = busy()
    return (b[0] - a[0]) / max(1, b[1] - a[1])


def wait_idle(limit, most):
    t = time.time()
    while True:
        s = idle_share()
        if s <= limit or time.time() - t > most:
            return s


def tree(pid):
    out, todo = [], [pid]
    while todo:
        p = todo.pop()
        out.append(p)
        try:
            for t in os.listdir(f"/proc/{p}/task"):
                todo += map(int, open(f"/proc/{p}/task/{t}/children").read().split())
        except OSError:
            pass
    return out


def usage(pid):
    rss = cpu = 0
    for p in tree(pid):
        try:
            for l in open(f"/proc/{p}/smaps_rollup"):
                if l.startswith("Pss:"):
                    rss += int(l.split()[1])
            f = open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()
            cpu += int(f[11]) + int(f[12])
        except OSError:
            pass
    return rss / 1024, cpu / os.sysconf("SC_CLK_TCK")


@contextmanager
def server(name, peer, cmd, log, most):
    cmd = [c.replace("{port}", str(PORT)).replace("{threads}", str(T)) for c in cmd]
    t = time.time()
    p = subprocess.Popen(cmd, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **peer.get("env", {})}, start_new_session=True)
    try:
        while True:
            if p.poll() is not None:
                raise RuntimeError(f"{name} ended with {p.returncode}")
            try:
                if urlopen(f"http://127.0.0.1:{PORT}{peer['health']}", timeout=2).status == 200:
                    break
            except OSError:
                pass
            if time.time() - t > most:
                raise RuntimeError(f"{name} was not ready after {most} s")
            time.sleep(0.2)
        yield p.pid, time.time() - t, cmd
    finally:
        if p.poll() is None:
            p.send_signal(signal.SIGINT if "vllm" in name else signal.SIGTERM)
            try:
                p.wait(30)
            except subprocess.TimeoutExpired:
                pass
        try:                                    # only this peer's own session
            os.killpg(p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        p.wait()


def client(a, peer, seed, out, extra, pid, **kw):
    cmd = [sys.executable, f"{HERE}/bench_openai.py", "--base-url", f"http://127.0.0.1:{PORT}", "--model", peer["model"],
           "--tokenizer", a.tokenizer, "--ignore-eos", "--seed", str(seed), "--json", out, "--extra-body", json.dumps(extra)]
    for k, v in kw.items():
        cmd += ["--" + k.replace("_", "-"), str(v)]
    hz = os.sysconf("SC_CLK_TCK")
    kids = lambda: sum(os.times()[2:4])
    t, b, own, k = time.time(), busy()[0], usage(pid)[1], kids()
    subprocess.run(cmd, check=False)
    report = json.load(open(out))
    runs = report["runs"]
    t, b, own = time.time() - t, (busy()[0] - b) / hz, usage(pid)[1] - own
    mine = kids() - k
    for r in runs:                   # cores that neither the server nor the client used
        r["foreign_cpu"] = max(0.0, (b - own - mine) / t)
        r["server_cpu"] = own / t
    return report


def mean_nll(peer):
    """Of perplexity.json, by the server under test: with the options and the build of its speed."""
    ref = json.load(open(PERPLEXITY))
    body = {"model": peer["model"], "prompt": ref["ids"], "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}
    reply = urlopen(Request(f"http://127.0.0.1:{PORT}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}))
    values = json.load(reply)["choices"][0]["logprobs"]["token_logprobs"][1:len(ref["ids"])]
    return {"mean_nll": -sum(values) / len(values), "reference": ref["mean_nll"]}


def lengths(a, workload):
    return WORKLOADS[workload][1] or {"concurrency": a.concurrency, "num_requests": a.num_requests, "input_len": a.input_len,
                                      "output_len": a.output_len}


def in_process(a, name, peer, seed, rec, tmp, log):
    for tag in a.workloads:
        t, b = time.time(), busy()[0]
        options = [x for k, v in lengths(a, tag).items() for x in ("--" + k.replace("_", "-"), v)]
        p = subprocess.Popen(list(map(str, peer["inproc"] + options + ["--seed", seed, "--json", f"{tmp}-{tag}.json"])),
                             stdout=log, stderr=log)
        peak = own = 0
        while p.poll() is None:
            m, c = usage(p.pid)
            peak, own = max(peak, m), max(own, c)
            time.sleep(0.5)
        foreign = max(0.0, ((busy()[0] - b) / os.sysconf("SC_CLK_TCK") - own) / (time.time() - t))
        if p.returncode:
            raise RuntimeError(f"{name} {tag} ended with {p.returncode}")
        d = json.load(open(f"{tmp}-{tag}.json"))
        rec[tag] = d["runs"]
        rec.setdefault("start_s", d["load_s"])
        rec.setdefault("pss_mb", peak)
        if tag == "at_once":
            rec["at_once_ratio"] = d["at_once"]
        for r in d["runs"]:
            r["foreign_cpu"] = foreign
            print(line(r), flush=True)


def one(a, name, peer, rnd, rec):
    seed = 1000 * rnd + 7
    tmp = f"{a.work}/{name}-{rnd}"
    with open(tmp + ".log", "ab") as log:
        if "inproc" in peer:
            return in_process(a, name, peer, seed, rec, tmp, log)
        for start in ("load", "prefix") if "prefix" in peer else ("load",):
            todo = [w for w in a.workloads if "prefix" not in peer or WORKLOADS[w][0] == start]
            if not todo:
                continue
            with server(name, peer, peer[start], log, a.start_timeout) as (pid, up, cmd):
                rec.setdefault("start_s", up)
                rec.setdefault("cmd", " ".join(os.path.relpath(c) if c.startswith("/") else c for c in cmd))
                extra = peer.get(start + "_extra", {})
                client(a, peer, 99 + rnd, tmp + "-warm.json", extra, pid, concurrency=8, num_requests=8, input_len=128, output_len=16)
                for w in todo:
                    report = client(a, peer, seed, f"{tmp}-{w}.json", extra, pid, **lengths(a, w))
                    rec[w] = report["runs"]
                    if w == "at_once":
                        rec["at_once_ratio"] = report.get("at_once", [])
                    rec.setdefault("pss_mb", usage(pid)[0])
                if peer.get("quality") and os.path.exists(PERPLEXITY):
                    rec["quality"] = mean_nll(peer)
                    print(rec["quality"], flush=True)


# What quired has to reach over the best of all others: performance-cpu.md 2.8.
def goals(recs, concs, noise):
    def runs(name, tag, i):
        return [r[tag][i] for r in recs if r["peer"] == name and len(r.get(tag, [])) > i and "out_tok_s" in r[tag][i]
                and r[tag][i].get("foreign_cpu", 0) <= noise]

    names = {r["peer"] for r in recs} - {"quired"}

    def row(what, tag, i, value, best, must, aim):
        mine = [value(x) for x in runs("quired", tag, i)]
        others = {n: statistics.median(v) for n in names if (v := [value(x) for x in runs(n, tag, i)])}
        if not mine or not others:
            return f"{what:<28} no quiet rounds of {'the others' if mine else 'quired'}"
        name = best(others, key=others.get)
        ratio = statistics.median(mine) / others[name]
        good = (lambda goal: ratio >= goal) if best is max else (lambda goal: ratio <= goal)
        verdict = "aim met" if good(aim) else "must met" if good(must) else "MISSED"
        return (f"{what:<28} {statistics.median(mine):>8.1f} of {len(mine)} rounds ({max(mine):.1f} best) over {others[name]:>8.1f} ({name})"
                f" = {ratio:.2f} (must {must}, aim {aim}): {verdict}")

    tok = lambda x: x["out_tok_s"]
    rows = [row(f"V1 out tok/s, {c} clients", "load", i, tok, max, must, aim)
            for i, (c, must, aim) in enumerate(zip(concs, (2, 2, 2.5), (3.5, 4, 4)))]
    if "8" in concs:
        rows.append(row("V2 TTFT p50 ms, 8 clients", "load", concs.index("8"), lambda x: x["ttft_ms"]["p50"], min, 0.5, 0.25))
    rows.append(row("V3 shared prefix, out tok/s", "prefix", 0, tok, max, 3, 6))
    rows.append(row("2,048 in, 128 out, out tok/s", "long", 0, tok, max, 1, 2))
    for n in ["quired", *sorted(names)]:
        if ratios := [x for r in recs if r["peer"] == n for x in r.get("at_once_ratio", [])]:
            rows.append(f"V3 TTFT p99, four at once over one alone (must 1.3, aim 1.1), {n}: {statistics.median(ratios):.2f} of {len(ratios)}")
    for q in [r["quality"] for r in recs if "quality" in r][-1:]:
        rows.append(f"mean negative log-likelihood {q['mean_nll']:.5f}, reference {q['reference']:.5f}: "
                    + ("within 0.01" if abs(q["mean_nll"] - q["reference"]) <= 0.01 else "MISSED"))
    return "\n".join(rows)


def table(recs, concs, noise):
    names = []
    for r in recs:
        if r["peer"] not in names:
            names.append(r["peer"])
    head = f"{'peer':<12}{'rounds':>7}"
    for c in concs:
        head += f" | {'c=' + c + ' out tok/s':>19} {'TTFT p50':>8} {'TPOT p50':>8}"
    head += f" | {'prefix out tok/s':>19} {'TTFT p50':>8} | {'2k in out tok/s':>19} {'TTFT p50':>8} {'TPOT p50':>8} | {'PSS MB':>6} {'up s':>5}"
    rows = [head, "(best/median over rounds; times are medians, ms; ~ = others used the CPU in every round)"]
    for n in names:
        rs = [r for r in recs if r["peer"] == n and "load" in r]
        bad = [r["error"] for r in recs if r["peer"] == n and "error" in r]
        if not rs:
            rows.append(f"{n:<12} failed: {bad[:1]}")
            continue
        s = f"{n:<12}{len(rs):>7}"

        def cell(runs):
            runs = [x for x in runs if "out_tok_s" in x]
            quiet = [x for x in runs if x.get("foreign_cpu", 0) <= noise]
            mark, runs = ("", quiet) if quiet else ("~", runs)
            if not runs:
                return f" | {'-':>19} {'-':>8} {'-':>8}"
            o = [x["out_tok_s"] for x in runs]
            return (f" | {mark + format(max(o), '.1f'):>9}/{statistics.median(o):>9.1f} {statistics.median(x['ttft_ms']['p50'] for x in runs):>8.1f}"
                    f" {statistics.median(x['tpot_ms']['p50'] for x in runs):>8.2f}")

        for i, c in enumerate(concs):
            s += cell([r["load"][i] for r in rs if len(r["load"]) > i])
        s += cell([r["prefix"][0] for r in rs if r.get("prefix")])[:-9]
        s += cell([r["long"][0] for r in rs if r.get("long")])
        s += f" | {statistics.median(r.get('pss_mb', 0) for r in rs):>6.0f} {statistics.median(r.get('start_s', 0) for r in rs):>5.1f}"
        if bad:
            s += f"  ({len(bad)} rounds failed: {bad[0]})"
        rows.append(s)
    return "\n".join(rows)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))     # so that servers are ended too
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--peers", default=",".join(PEERS))
    ap.add_argument("--workloads", type=lambda x: x.split(","), default=list(WORKLOADS))
    ap.add_argument("--rounds", type=int, default=2)
    ap.add_argument("--first-round", type=int, default=0, help="number the rounds from here (to add to --out)")
    ap.add_argument("--concurrency", default="1,8,32")
    ap.add_argument("--num-requests", default="6,32,64")
    ap.add_argument("--input-len", type=int, default=128)
    ap.add_argument("--output-len", type=int, default=64)
    ap.add_argument("--tokenizer", default=f"{M}/hf-bfloat16/tokenizer.json")
    ap.add_argument("--idle-max", type=float, default=0.05)
    ap.add_argument("--idle-wait", type=float, default=60)
    ap.add_argument("--busy-ok", action="store_true", help="measure even if the machine never fell idle")
    ap.add_argument("--noise-max", type=float, default=0.15, help="cores used by others during a run, above which it is left out")
    ap.add_argument("--start-timeout", type=float, default=300)
    ap.add_argument("--lock", help="exclusive flock on this file while a peer runs")
    ap.add_argument("--work", default=f"{W}/compare")
    ap.add_argument("--out", default=f"{W}/compare/results.json")
    ap.add_argument("--table-only", action="store_true", help="print the table of --out")
    a = ap.parse_args()
    os.makedirs(a.work, exist_ok=True)
    recs = json.load(open(a.out))["records"] if os.path.exists(a.out) else []
    concs = a.concurrency.split(",")
    if not a.table_only:
        names = a.peers.split(",")
        for n in names:
            if n not in PEERS:
                raise SystemExit(f"no such peer: {n} (have {', '.join(PEERS)})")
        for w in a.workloads:
            if w not in WORKLOADS:
                raise SystemExit(f"no such workload: {w} (have {', '.join(WORKLOADS)})")
        lock = open(a.lock, "a") if a.lock else None
        for rnd in range(a.first_round, a.first_round + a.rounds):
            for n in names if rnd % 2 == 0 else names[::-1]:
                if lock:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                rec = {"peer": n, "round": rnd, "when": time.strftime("%H:%M:%S"), "busy_before": wait_idle(a.idle_max, a.idle_wait)}
                print(f"== {n}, round {rnd}, busy before {rec['busy_before']:.2f}", flush=True)
                try:
                    if rec["busy_before"] > a.idle_max and not a.busy_ok:
                        raise RuntimeError("the machine was not idle")
                    one(a, n, PEERS[n], rnd, rec)
                except Exception as e:
                    rec["error"] = repr(e)
                    print("FAILED", e, flush=True)
                finally:
                    if lock:
                        fcntl.flock(lock, fcntl.LOCK_UN)
                recs.append(rec)
                json.dump({"argv": sys.argv[1:], "records": recs}, open(a.out, "w"), indent=1)
    print(table(recs, concs, a.noise_max))
    print(goals(recs, concs, a.noise_max))


if __name__ == "__main__":
    main()
