#!/usr/bin/env python3
"""Closed-loop load client for any OpenAI-compatible server (/v1/completions, streaming).

    bench_openai.py --base-url http://127.0.0.1:8080 --model m --tokenizer DIR/tokenizer.json \
        --concurrency 1,8,32 --num-requests 8,32,64 --input-len 128 --output-len 64 --ignore-eos

Needs only `tokenizers` (plus the standard library). It speaks HTTP/1.1 over raw asyncio
sockets and, while a run lasts, only stamps and stores the bytes that come; it takes the
events apart afterwards, so that it takes little CPU from a server on the same cores. Its
own CPU share is in the report (client_cpu, 1.0 = one core).

Figures follow vLLM's benchmark client: TTFT = first event with a token; E2EL = last event
with choices; TPOT = (E2EL-TTFT)/(n-1); ITL = gaps between events with choices; token
counts from the server's usage field; throughputs over the wall time from the first
request's start to the last one's end. 127.0.0.1 only."""
import argparse, asyncio, bisect, json, os, random, sys, time
from urllib.parse import urlsplit


# ---- prompts ---------------------------------------------------------------------------
class Words:
    """Prompts of an exact token count: words that are one token each, whatever stands before."""

    def __init__(self, path):
        from tokenizers import Tokenizer
        self.tok = Tokenizer.from_file(os.path.join(path, "tokenizer.json") if os.path.isdir(path) else path)
        v = self.tok.get_vocab()
        self.words = sorted(t[1:] for t in v if t[0] in "\u0120\u2581" and len(t) > 3 and t[1:].isascii() and t[1:].isalpha()
                            and t[1:].islower())
        if len(self.words) < 1000:
            raise SystemExit("tokenizer has too few whole-word tokens")

    def make(self, rng, n):
        if n == 0:
            return "", []
        for _ in range(100):
            text = "".join(" " + rng.choice(self.words) for _ in range(n))
            ids = self.tok.encode(text, add_special_tokens=False).ids
            if len(ids) == n:
                return text, ids
        raise SystemExit("could not make a prompt of exactly %d tokens" % n)


# ---- one request -----------------------------------------------------------------------
class Conn(asyncio.Protocol):
    def __init__(self, req, fut):
        self.req, self.fut, self.got, self.tail = req, fut, [], b""

    def connection_made(self, tr):
        self.tr = tr
        self.t0 = time.perf_counter()
        tr.write(self.req)

    def data_received(self, data):
        self.got.append((time.perf_counter(), data))
        self.tail = (self.tail + data)[-64:]
        if b"data: [DONE]" in self.tail or self.tail.endswith(b"\r\n0\r\n\r\n"):
            self.done()

    def connection_lost(self, exc):
        self.done()

    def done(self):
        if not self.fut.done():
            self.t1 = time.perf_counter()
            self.fut.set_result(self)
            self.tr.close()


def build(host, port, path, body, key):
    b = json.dumps(body).encode()
    h = f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    if key:
        h += f"Authorization: Bearer {key}\r\n"
    return (h + f"Content-Length: {len(b)}\r\n\r\n").encode() + b


def parse(c):
    """status, [(time, event dict)], raw body; done after the run."""
    raw, ends, times = b"".join(d for _, d in c.got), [], []
    n = 0
    for t, d in c.got:
        n += len(d)
        ends.append(n)
        times.append(t)
    if not raw:
        return 0, [], b"no answer"
    head, _, _ = raw.partition(b"\r\n\r\n")
    pos = len(head) + 4
    status = int(head.split(b" ", 2)[1])
    chunked = b"transfer-encoding: chunked" in head.lower()
    body, off = bytearray(), []          # off: (body offset, raw offset) at each chunk's start
    if chunked:
        while pos < len(raw):
            e = raw.find(b"\r\n", pos)
            if e < 0:
                break
            size = int(raw[pos:e].split(b";")[0] or b"0", 16)
            if size == 0:
                break
            off.append((len(body), e + 2))
            body += raw[e + 2:e + 2 + size]
            pos = e + 2 + size + 2
    else:
        off.append((0, pos))
        body += raw[pos:]
    starts = [o[0] for o in off]

    def when(bo):                        # arrival time of the body byte at offset bo
        i = bisect.bisect_right(starts, bo) - 1
        return times[min(bisect.bisect_left(ends, off[i][1] + bo - starts[i] + 1), len(times) - 1)]

    ev, body, i = [], bytes(body), 0
    while True:
        s = body.find(b"data:", i)
        if s < 0:
            break
        e = body.find(b"\n", s)
        e = len(body) if e < 0 else e
        p = body[s + 5:e].strip()
        i = e
        if p and p != b"[DONE]":
            try:
                ev.append((when(e - 1), json.loads(p)))
            except ValueError:
                ev.append((when(e - 1), {"error": p[:200].decode("utf8", "replace")}))
    return status, ev, body


def measure(c, want):
    status, ev, body = parse(c)
    if status != 200:
        return {"error": f"HTTP {status}: {body[:300].decode('utf8', 'replace')}"}
    usage, stamps, first, text = None, [], None, []
    for t, e in ev:
        if e.get("error"):
            return {"error": str(e["error"])[:300]}
        if e.get("usage"):
            usage = e["usage"]
        ch = e.get("choices")
        if ch:
            stamps.append(t)
            tx = ch[0].get("text") or ""
            text.append(tx)
            if first is None and tx:
                first = t
    if not stamps:
        return {"error": "no events"}
    first = stamps[0] if first is None else first
    n = (usage or {}).get("completion_tokens", len(stamps))
    r = {"ttft": first - c.t0, "e2el": stamps[-1] - c.t0, "n_out": n, "start": c.t0, "end": stamps[-1],
         "n_in": (usage or {}).get("prompt_tokens", 0), "usage": usage is not None, "events": len(stamps),
         "cached": ((usage or {}).get("prompt_tokens_details") or {}).get("cached_tokens"),
         "itl": [b - a for a, b in zip(stamps, stamps[1:])], "text": "".join(text)}
    r["tpot"] = (r["e2el"] - r["ttft"]) / (n - 1) if n > 1 else None
    r["short"] = n != want
    return r


# ---- a run -----------------------------------------------------------------------------
async def run(a, prompts, conc, want, seed):
    u = urlsplit(a.base_url)
    loop, it, out = asyncio.get_running_loop(), iter(enumerate(prompts)), []

    async def worker():
        for i, (text, ids) in it:
            body = {"model": a.model, "prompt": ids if a.prompt == "ids" else text, "max_tokens": want,
                    "temperature": 0, "seed": seed + i, "stream": True, "stream_options": {"include_usage": True}}
            if a.ignore_eos:
                body["ignore_eos"] = True
            body.update(a.extra)
            fut = loop.create_future()
            try:
                await loop.create_connection(lambda: Conn(build(u.hostname, u.port, u.path.rstrip("/") + "/v1/completions",
                                                                body, a.api_key), fut), u.hostname, u.port)
                out.append(await asyncio.wait_for(fut, a.timeout))
            except (OSError, asyncio.TimeoutError) as e:
                out.append(repr(e))

    cpu, t = time.process_time(), time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(conc)))
    wall = time.perf_counter() - t
    cpu = time.process_time() - cpu
    return [measure(c, want) if isinstance(c, Conn) else {"error": c} for c in out], wall, cpu


def stats(v, scale=1000.0):
    v = sorted(x for x in v if x is not None)
    if not v:
        return None
    q = lambda p: v[min(len(v) - 1, max(0, round(p * (len(v) - 1))))] * scale
    return {"mean": sum(v) / len(v) * scale, "p50": q(.5), "p90": q(.9), "p99": q(.99)}


def summary(rs, wall, cpu, conc):
    ok = [r for r in rs if "error" not in r]
    s = {"concurrency": conc, "requests": len(rs), "failed": len(rs) - len(ok),
         "errors": sorted({r["error"] for r in rs if "error" in r})[:3], "wall_s": wall, "client_cpu": cpu / wall}
    if ok:
        nin, nout = sum(r["n_in"] for r in ok), sum(r["n_out"] for r in ok)
        s.update({"prompt_tokens": nin, "output_tokens": nout, "req_s": len(ok) / wall, "out_tok_s": nout / wall,
                  "total_tok_s": (nin + nout) / wall, "wrong_length": sum(r["short"] for r in ok),
                  "usage_from_server": all(r["usage"] for r in ok),
                  "cached_tokens": sum(r["cached"] or 0 for r in ok),
                  "ttft_ms": stats([r["ttft"] for r in ok]), "tpot_ms": stats([r["tpot"] for r in ok]),
                  "itl_ms": stats([x for r in ok for x in r["itl"]]), "e2el_ms": stats([r["e2el"] for r in ok])})
    return s


def at_once_ratio(alone, together):
    """TTFT p99 of several requests at once over TTFT of one alone, each of an uncached prefix; of each pair of runs."""
    return [b["ttft_ms"]["p99"] / a["ttft_ms"]["p99"] for a, b in zip(alone, together)]


HEAD = f"{'c':>3} {'req':>4} {'fail':>4} {'req/s':>7} {'out/s':>8} {'tot/s':>8} {'TTFT ms mean/p50/p90/p99':>30} {'TPOT ms mean/p50/p90/p99':>30} {'ITL p99':>8} {'cli':>5}"


def line(s):
    if "ttft_ms" not in s:
        return f"{s['concurrency']:>3} {s['requests']:>4} {s['failed']:>4} {s['errors']}"
    f = lambda d: "/".join(f"{d[k]:.1f}" for k in ("mean", "p50", "p90", "p99")) if d else "-"
    return (f"{s['concurrency']:>3} {s['requests']:>4} {s['failed']:>4} {s['req_s']:>7.2f} {s['out_tok_s']:>8.1f} {s['total_tok_s']:>8.1f} "
            f"{f(s['ttft_ms']):>30} {f(s['tpot_ms']):>30} {s['itl_ms']['p99'] if s['itl_ms'] else 0:>8.1f} {s['client_cpu']:>5.2f}"
            + (f"  wrong length: {s['wrong_length']}" if s["wrong_length"] else "")
            + ("" if s["usage_from_server"] else "  counts by events, not usage"))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--base-url", required=True)
    ap.add_argument("--model", required=True)
    ap.add_argument("--tokenizer", required=True, help="tokenizer.json or the folder that holds it")
    ap.add_argument("--concurrency", default="1,8,32")
    ap.add_argument("--num-requests", default="", help="one number or one a concurrency; default max(8, 2*c)")
    ap.add_argument("--input-len", type=int, default=128, help="tokens a prompt besides the shared prefix")
    ap.add_argument("--output-len", type=int, default=64)
    ap.add_argument("--shared-prefix-len", type=int, default=0, help="tokens that all prompts begin with")
    ap.add_argument("--at-once", type=int, default=0, metavar="PAIRS",
                    help="instead: one request with a fresh shared prefix alone, then four with another at once, so often")
    ap.add_argument("--ignore-eos", action="store_true")
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--prompt", choices=["auto", "ids", "text"], default="auto")
    ap.add_argument("--extra-body", default="{}", help="JSON merged into each request")
    ap.add_argument("--api-key", default=os.environ.get("OPENAI_API_KEY", ""))
    ap.add_argument("--timeout", type=float, default=600)
    ap.add_argument("--warmup", type=int, default=2, help="requests before the first run, not counted")
    ap.add_argument("--json", help="write all figures to this file")
    ap.add_argument("--keep-text", action="store_true", help="with --json: keep the answers' texts")
    a = ap.parse_args()
    host = urlsplit(a.base_url).hostname
    if host not in ("127.0.0.1", "localhost", "::1"):
        raise SystemExit("this client drives a server on this machine only")
    a.extra = json.loads(a.extra_body)
    w = Words(a.tokenizer)
    rng = random.Random(f"{a.seed}/prefix")
    prefix = w.make(rng, a.shared_prefix_len)

    def prompts(n, tag):
        r = random.Random(f"{a.seed}/{tag}")
        out = []
        for _ in range(n):
            t, i = w.make(r, a.input_len)
            out.append((prefix[0] + t, prefix[1] + i))
        return out

    if a.prompt == "auto":
        a.prompt = "ids"
        rs, _, _ = asyncio.run(run(a, [w.make(random.Random("probe"), 8)], 1, 2, 0))
        if "error" in rs[0] or rs[0]["n_in"] not in (8, 0):
            a.prompt = "text"
            print("token-id prompts refused, sending text:", rs[0].get("error", rs[0].get("n_in")), file=sys.stderr)
    if a.warmup:
        t = a.shared_prefix_len           # the warm-up's prompts share nothing with the run's
        ws = [w.make(random.Random(f"warm{a.seed}{i}"), a.input_len + t) for i in range(a.warmup)]
        rs, _, _ = asyncio.run(run(a, ws, min(a.warmup, max(map(int, a.concurrency.split(",")))), a.output_len, 0))
        bad = [r["error"] for r in rs if "error" in r]
        if bad:
            print("warm-up failed:", bad[0], file=sys.stderr)
    concs = [int(c) for c in a.concurrency.split(",")]
    nums = [int(n) for n in a.num_requests.split(",")] if a.num_requests else [max(8, 2 * c) for c in concs]
    nums = nums * len(concs) if len(nums) == 1 else nums
    report = {"base_url": a.base_url, "model": a.model, "prompt": a.prompt, "input_len": a.input_len,
              "output_len": a.output_len, "shared_prefix_len": a.shared_prefix_len, "seed": a.seed,
              "ignore_eos": a.ignore_eos, "extra_body": a.extra, "runs": []}
    plan = [(c, n, f"c{c}") for c, n in zip(concs, nums)]
    if a.at_once:
        plan = [(c, c, f"pair{i}/{c}") for i in range(a.at_once) for c in (1, 4)]
    print(HEAD)
    for c, n, tag in plan:
        if a.at_once:                     # nobody has this prefix yet
            prefix = w.make(random.Random(f"{a.seed}/prefix/{tag}"), a.shared_prefix_len)
        rs, wall, cpu = asyncio.run(run(a, prompts(n, tag), c, a.output_len, a.seed))
        s = summary(rs, wall, cpu, c)
        if a.keep_text:
            s["texts"] = [r.get("text") for r in rs]
        report["runs"].append(s)
        print(line(s), flush=True)
    if a.at_once and not any(s["failed"] for s in report["runs"]):
        report["at_once"] = at_once_ratio(report["runs"][0::2], report["runs"][1::2])
        print("TTFT p99 of four at once over one alone:", " ".join(f"{x:.2f}" for x in report["at_once"]))
    if a.json:
        with open(a.json, "w") as f:
            json.dump(report, f, indent=1)
    return 1 if any(s["failed"] for s in report["runs"]) else 0


if __name__ == "__main__":
    sys.exit(main())
