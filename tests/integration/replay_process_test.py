"""Records scheduling in quired (or quire_offline) --device sim under load, and replays it with quire_replay.

Usage: replay_process_test.py QUIRE_REPLAY QUIRE_OFFLINE [QUIRED QUIRE]
"""
import json
import os
import random
import re
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


class ReplayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = make_model()
        cls.trace = os.path.join(WORK.name, "trace")
        cls.offline = cls.record(cls.trace)

    @classmethod
    def record(cls, trace, *more):
        return run(OFFLINE, "--model", cls.model, "--device", "sim", "--sim-time-scale", "0", "--block-size", "8",
                   "--kv-blocks", "300", "--max-num-seqs", "16", "--max-num-batched-tokens", "256", "--requests", "-",
                   "--schedule-trace", trace, *more, input=requests(60))

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
        # max_num_seqs, the first field of the header: 16 is written as 15.
        header = data.index(b"\x0f", len(MAGIC))
        self.assertLess(header, len(MAGIC) + 4)
        other = replay(data[:header] + b"\x0e" + data[header + 1:])
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

    @unittest.skipIf(QUIRED is None, "built without gRPC")
    def test_a_daemon_under_load_is_reproduced(self):
        trace = os.path.join(WORK.name, "daemon")
        daemon = subprocess.Popen(
            [QUIRED, "--model", self.model, "--device", "sim", "--sim-time-scale", "0.02", "--block-size", "8",
             "--kv-blocks", "300", "--grpc-listen", "127.0.0.1:0", "--scheduling-policy", "fair",
             "--schedule-trace", trace], stderr=subprocess.PIPE, text=True)
        try:
            address = None
            for line in daemon.stderr:
                ready = re.search(r"ready grpc=(\S+)", line)
                if ready:
                    address = ready.group(1)
                    break
            self.assertIsNotNone(address)
            clients = [subprocess.Popen([QUIRE, "generate", "--server", address, "--max-tokens", "60", "-n", "2",
                                         "--ids", ",".join(str(i % 7 + k) for k in range(40))],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for i in range(12)]
            errors = [client.communicate(timeout=60)[1] for client in clients]
            self.assertEqual([client.returncode for client in clients], [0] * 12, errors)
            status = json.loads(run(QUIRE, "--server", address, "trace", "status", "--json").stdout)
            self.assertTrue(status["recording"])
            self.assertGreater(status["records"], 24)
            self.assertEqual(status["lost_records"], 0)
            stopped = run(QUIRE, "--server", address, "trace", "stop", "--json")
            self.assertEqual(stopped.returncode, 0, stopped.stderr)
            self.assertFalse(json.loads(stopped.stdout)["recording"])
            # The file is complete while the daemon goes on.
            self.assertEqual(os.path.getsize(trace), json.loads(stopped.stdout)["bytes"])
            self.assertTrue(json.loads(run(REPLAY, trace, "--json").stdout)["verified"])
            after = run(QUIRE, "--server", address, "generate", "--max-tokens", "5", "--ids", "1,2,3")
            self.assertEqual(after.returncode, 0, after.stderr)
            self.assertIn("stopped: ", run(QUIRE, "--server", address, "trace", "status").stdout)
            daemon.send_signal(signal.SIGTERM)
            daemon.stderr.read()
            self.assertEqual(daemon.wait(timeout=60), 0)
        finally:
            daemon.kill()
            daemon.wait()
            daemon.stderr.close()
        report = json.loads(run(REPLAY, trace, "--json").stdout)
        self.assertTrue(report["verified"], report)
        self.assertEqual(report["requests"], 12)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
