"""Records scheduling in quired (or quire_offline) --device sim under load, and replays it with quire_replay.

Usage: replay_process_test.py QUIRE_REPLAY QUIRE_OFFLINE [QUIRED QUIRE]
"""
import json
import os
import random
import re
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

REPLAY, OFFLINE = sys.argv[1:3]
QUIRED, QUIRE = sys.argv[3:5] if len(sys.argv) > 4 else (None, None)
WORK = tempfile.TemporaryDirectory(prefix="quire_replay_test_")
MAGIC = b"QUIRETR1"


def make_model():
    """A configuration, and a tokenizer of single characters for the daemon."""
    folder = os.path.join(WORK.name, "model")
    os.makedirs(folder, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 3000, "hidden_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
        "rms_norm_eps": 1e-5, "max_position_embeddings": 2048, "rope_theta": 10000.0, "eos_token_id": 256,
        "tie_word_embeddings": True,
    }
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {chr(256 + i): i for i in range(3000)}, "merges": []},
    }
    for name, value in (("config.json", config), ("tokenizer.json", tokenizer)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
            json.dump(value, out)
    return folder


def requests(count):
    """Prompts that share beginnings, now and then with several sequences or prompt log-probabilities."""
    draw = random.Random(5)
    shared = [draw.randrange(3000) for _ in range(300)]
    lines = []
    for i in range(count):
        request = {"id": str(i), "prompt_ids": shared[:draw.randrange(1, 300)] + [draw.randrange(3000)],
                   "max_tokens": draw.randrange(1, 80), "temperature": 1, "seed": i}
        if i % 7 == 0:
            request["n"] = 3
        if i % 11 == 0:
            request["prompt_logprobs"] = 1
        lines.append(json.dumps(request))
    return "\n".join(lines) + "\n"


def run(*arguments, **more):
    return subprocess.run(arguments, capture_output=True, text=True, timeout=120, **more)


class Daemon:
    """A daemon on the simulated model; its log once it has ended, with exit code 0."""

    def __init__(self, model, *arguments, time_scale="0.02"):
        self.process = subprocess.Popen(
            [QUIRED, "--model", model, "--device", "sim", "--sim-time-scale", time_scale, "--block-size", "8",
             "--kv-blocks", "300", "--http-listen", "", "--grpc-listen", "127.0.0.1:0", *arguments], stderr=subprocess.PIPE, text=True)
        self.log = ""
        self.address = None
        for line in self.process.stderr:
            self.log += line
            ready = re.search(r"ready grpc=(\S+)", line)
            if ready:
                self.address = ready.group(1)
                break

    def __enter__(self):
        return self

    def __exit__(self, kind, error, where):
        self.process.send_signal(signal.SIGTERM if kind is None else signal.SIGKILL)
        self.log += self.process.communicate(timeout=60)[1]
        if kind is None and self.process.returncode != 0:
            raise AssertionError(f"quired exited with {self.process.returncode}: {self.log}")

    def quire(self, *arguments):
        return run(QUIRE, "--server", self.address, *arguments)

    def load(self):
        clients = [subprocess.Popen([QUIRE, "generate", "--server", self.address, "--max-tokens", "60", "-n", "2",
                                     "--ids", ",".join(str(i % 7 + k) for k in range(40))],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for i in range(12)]
        errors = [client.communicate(timeout=60)[1] for client in clients]
        if any(client.returncode != 0 for client in clients):
            raise AssertionError(errors)


class ReplayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = make_model()
        cls.trace = os.path.join(WORK.name, "trace")
        cls.offline = cls.record(cls.trace)

    @classmethod
    def record(cls, trace, *more, **how):
        return run(OFFLINE, "--model", cls.model, "--device", "sim", "--sim-time-scale", "0", "--block-size", "8",
                   "--kv-blocks", "300", "--max-num-seqs", "16", "--max-num-batched-tokens", "256", "--requests", "-",
                   "--schedule-trace", trace, *more, input=requests(60), **how)

    def test_a_recorded_run_is_reproduced(self):
        self.assertEqual(self.offline.returncode, 0, self.offline.stderr)
        self.assertEqual(stat.S_IMODE(os.stat(self.trace).st_mode), 0o600)
        report = run(REPLAY, self.trace, "--json")
        self.assertEqual(report.returncode, 0, report.stdout + report.stderr)
        report = json.loads(report.stdout)
        self.assertTrue(report["verified"])
        self.assertEqual(report["end"], "stopped")
        self.assertEqual(report["requests"], 60)
        self.assertGreater(report["steps"], 50)
        text = run(REPLAY, self.trace)
        self.assertEqual(text.returncode, 0)
        self.assertIn("every plan and decision is reproduced", text.stdout)

    def test_policies_are_compared(self):
        report = run(REPLAY, self.trace, "--policy", "fcfs,fair,deadline,priority", "--json")
        self.assertEqual(report.returncode, 0, report.stderr)
        outcomes = json.loads(report.stdout)
        self.assertEqual(list(outcomes), ["fcfs", "fair", "deadline", "priority"])
        for outcome in outcomes.values():
            self.assertEqual(outcome["completed"], 60)
            self.assertGreater(outcome["hit_rate"], 0)
            self.assertGreaterEqual(outcome["ttft_seconds"]["p99"], outcome["ttft_seconds"]["p50"])
        small = json.loads(run(REPLAY, self.trace, "--policy", "fcfs", "--blocks", "60", "--json").stdout)
        self.assertGreater(small["fcfs"]["preemptions"], outcomes["fcfs"]["preemptions"])
        table = run(REPLAY, self.trace, "--policy", "fcfs,fair")
        self.assertRegex(table.stdout, r"(?m)^policy .*goodput|^policy .*good/s")
        self.assertRegex(table.stdout, r"(?m)^fcfs +60/60 ")

    def test_records_are_printed(self):
        lines = run(REPLAY, self.trace, "--print").stdout.splitlines()
        self.assertEqual(json.loads(lines[0])["block_size"], "8")
        self.assertEqual(json.loads(lines[-1])["end"], "0")
        self.assertGreater(len(lines), 100)

    def test_a_cut_or_changed_trace_is_told(self):
        with open(self.trace, "rb") as file:
            data = file.read()
        self.assertTrue(data.startswith(MAGIC))
        path = os.path.join(WORK.name, "changed")

        def replay(changed):
            with open(path, "wb") as file:
                file.write(changed)
            return run(REPLAY, path)

        cut = replay(data[:len(data) // 2])
        self.assertEqual(cut.returncode, 65, cut.stdout)
        self.assertRegex(cut.stdout, r"byte \d+")
        self.assertEqual(replay(b"something else").returncode, 65)
        self.assertEqual(replay(b"").returncode, 65)
        self.assertEqual(run(REPLAY, os.path.join(WORK.name, "none")).returncode, 66)
        self.assertEqual(run(REPLAY).returncode, 64)
        self.assertEqual(run(REPLAY, self.trace, "--policy", "best").returncode, 64)
        # max_num_seqs, the first field of the header: 16 is written as 15. With 1 the requests of 3 sequences run otherwise.
        header = data.index(b"\x0f", len(MAGIC))
        self.assertLess(header, len(MAGIC) + 4)
        other = replay(data[:header] + b"\x00" + data[header + 1:])
        self.assertEqual(other.returncode, 1, other.stdout)
        self.assertRegex(other.stdout, r"step \d+, record \d+ \(Schedule\) at byte \d+: \S+ was recorded as \S+ and is")

    def test_a_full_trace_ends_and_says_so(self):
        trace = os.path.join(WORK.name, "full")
        self.assertEqual(self.record(trace, "--schedule-trace-max", "40kB").returncode, 0)
        self.assertLessEqual(os.path.getsize(trace), 40000)
        report = run(REPLAY, trace, "--json")
        self.assertEqual(report.returncode, 0, report.stdout)
        report = json.loads(report.stdout)
        self.assertEqual(report["end"], "full")
        self.assertGreater(report["lost_records"], 0)
        self.assertGreater(report["steps"], 5)

    def test_a_trace_that_cannot_be_written_is_refused(self):
        refused = self.record(os.path.join(WORK.name, "no", "such", "folder"))
        self.assertEqual(refused.returncode, 69)
        self.assertIn("--schedule-trace", refused.stderr)

    def test_a_file_at_its_limit_ends_the_trace_and_nothing_else(self):
        trace = os.path.join(WORK.name, "limited")
        limit = 40000
        limited = self.record(trace, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertEqual(limited.returncode, 0, limited.stderr)
        self.assertEqual(limited.stderr.count("File too large"), 1, limited.stderr)
        self.assertIn(trace, limited.stderr)
        self.assertEqual(limited.stdout.count("\n"), 60)
        self.assertEqual(os.path.getsize(trace), limit)
        report = run(REPLAY, trace, "--json")
        self.assertEqual(report.returncode, 65, report.stdout)  # without end
        self.assertGreater(json.loads(report.stdout)["steps"], 5)

    @unittest.skipIf(QUIRED is None, "built without gRPC")
    def test_traces_begin_and_end_while_a_daemon_runs(self):
        folder = os.path.join(WORK.name, "traces")
        os.mkdir(folder)
        with Daemon(self.model, "--schedule-trace-dir", folder) as daemon:
            def trace(*arguments):
                return daemon.quire("trace", *arguments)

            self.assertIn("no schedule trace is recorded", trace("status").stdout)
            self.assertEqual(trace("stop").returncode, 1)
            daemon.load()
            cached = json.loads(daemon.quire("stats", "--json").stdout)["kv_blocks_cached"]
            self.assertGreater(cached, 0)
            files = []
            for name in ("first", "second", None):
                started = trace("start", "--json", *(["--file", name] if name else []))
                self.assertEqual(started.returncode, 0, started.stderr)
                started = json.loads(started.stdout)
                self.assertEqual(started["state"], "recording")
                files.append(started["file"])
                self.assertEqual(json.loads(daemon.quire("stats", "--json").stdout)["kv_blocks_cached"], 0)
                again = trace("start")
                self.assertEqual(again.returncode, 1)
                self.assertIn("stop it first", again.stderr)
                daemon.load()
                stopped = json.loads(trace("stop", "--json").stdout)
                self.assertEqual(stopped["state"], "stopped")
                self.assertEqual(os.path.getsize(started["file"]), stopped["bytes"])
                self.assertEqual(stat.S_IMODE(os.stat(started["file"]).st_mode), 0o600)
                daemon.load()  # not recorded
            self.assertEqual(files[:2], [os.path.join(folder, name) for name in ("first", "second")])
            self.assertEqual(sorted(files), sorted(os.path.join(folder, name) for name in os.listdir(folder)))
            for file in files:
                report = json.loads(run(REPLAY, file, "--json").stdout)
                self.assertTrue(report["verified"], report)
                self.assertEqual(report["requests"], 12)
            taken = trace("start", "--file", "first")
            self.assertEqual(taken.returncode, 1)
            self.assertIn("ALREADY_EXISTS", taken.stderr)
            for name in ("../first", "/tmp/first", ".first", "a/b", "a b"):
                refused = trace("start", "--file", name)
                self.assertEqual(refused.returncode, 1, name)
                self.assertIn("start.file", refused.stderr)
            self.assertEqual(len(os.listdir(folder)), 3)

    @unittest.skipIf(QUIRED is None, "built without gRPC")
    def test_a_trace_waits_until_requests_pause_or_gives_up(self):
        folder = os.path.join(WORK.name, "waiting")
        os.mkdir(folder)
        # So slow that the request cannot end by itself.
        with Daemon(self.model, "--schedule-trace-dir", folder, time_scale="20") as daemon:
            busy = subprocess.Popen([QUIRE, "generate", "--server", daemon.address, "--max-tokens", "2000",
                                     "--ignore-eos", "--ids", "1,2,3"], stdout=subprocess.PIPE)
            busy.stdout.read(1)
            waiting = json.loads(daemon.quire("trace", "start", "--no-wait", "--json").stdout)
            self.assertEqual(waiting["state"], "pending")
            self.assertEqual(json.loads(daemon.quire("trace", "status", "--json").stdout)["state"], "pending")
            self.assertEqual(daemon.quire("trace", "stop").returncode, 0)
            self.assertEqual(os.listdir(folder), [])
            late = daemon.quire("trace", "start", "--max-wait", "0.1")
            self.assertEqual(late.returncode, 1, late.stdout)
            self.assertIn("did not begin", late.stdout)
            self.assertEqual(os.listdir(folder), [])
            busy.kill()
            busy.communicate()
            self.assertEqual(daemon.quire("trace", "start", "--file", "a").returncode, 0)
            self.assertEqual(os.listdir(folder), ["a"])

    @unittest.skipIf(QUIRED is None, "built without gRPC")
    def test_a_full_disk_ends_the_trace_and_serving_goes_on(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("there is no /dev/full here")
        with Daemon(self.model, "--schedule-trace", "/dev/full") as daemon:
            daemon.load()
            status = json.loads(daemon.quire("trace", "status", "--json").stdout)
            self.assertEqual(status["state"], "ended")
            self.assertEqual(status["bytes"], 0)
            self.assertIn("/dev/full cannot be written: No space left on device", status["problem"])
            refused = daemon.quire("trace", "start")
            self.assertEqual(refused.returncode, 1)
            self.assertIn("--schedule-trace-dir", refused.stderr)
            daemon.load()
        self.assertEqual(daemon.log.count("No space left on device"), 1, daemon.log)

    @unittest.skipIf(QUIRED is None, "built without gRPC")
    def test_a_daemon_under_load_is_reproduced(self):
        trace = os.path.join(WORK.name, "daemon")
        with Daemon(self.model, "--scheduling-policy", "fair", "--schedule-trace", trace) as daemon:
            daemon.load()
            status = json.loads(daemon.quire("trace", "status", "--json").stdout)
            self.assertTrue(status["recording"])
            self.assertGreater(status["records"], 24)
            self.assertEqual(status["lost_records"], 0)
            stopped = daemon.quire("trace", "stop", "--json")
            self.assertEqual(stopped.returncode, 0, stopped.stderr)
            self.assertFalse(json.loads(stopped.stdout)["recording"])
            # The file is complete while the daemon goes on.
            self.assertEqual(os.path.getsize(trace), json.loads(stopped.stdout)["bytes"])
            self.assertTrue(json.loads(run(REPLAY, trace, "--json").stdout)["verified"])
            after = daemon.quire("generate", "--max-tokens", "5", "--ids", "1,2,3")
            self.assertEqual(after.returncode, 0, after.stderr)
            self.assertIn("stopped: ", daemon.quire("trace", "status").stdout)
        report = json.loads(run(REPLAY, trace, "--json").stdout)
        self.assertTrue(report["verified"], report)
        self.assertEqual(report["requests"], 12)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
