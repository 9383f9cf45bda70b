"""Drives the prefix cache of a real quired (--device sim) with the tool: quire cache list, warm, drop, reset, events;
with administration at the port of gRPC and at its own.

Usage: cache_process_test.py QUIRED QUIRE.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

QUIRED, QUIRE = sys.argv[1:3]
WORK = tempfile.TemporaryDirectory(prefix="quire_cache_test_")
BLOCK = 8


def make_model():
    """config.json and a tokenizer of letters, a token each."""
    folder = os.path.join(WORK.name, "model")
    os.makedirs(folder, exist_ok=True)
    tokenizer = {"version": "1.0", "added_tokens": [], "normalizer": None,
                 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                                   "use_regex": True},
                 "post_processor": None,
                 "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                           "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                           "vocab": {chr(c): c - 33 for c in range(33, 127)}, "merges": []}}
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 94, "hidden_size": 64,
              "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
              "rms_norm_eps": 1e-5, "max_position_embeddings": 256, "rope_theta": 10000.0, "eos_token_id": 93,
              "tie_word_embeddings": True}
    for name, value in (("config.json", config), ("tokenizer.json", tokenizer)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
            json.dump(value, out)
    return folder


class DaemonTest(unittest.TestCase):
    OPTIONS = []

    def setUp(self):
        self.daemon = subprocess.Popen(
            [QUIRED, "--model", make_model(), "--device", "sim", "--sim-time-scale", "0", "--http-listen", "", "--grpc-listen",
             "127.0.0.1:0", "--kv-blocks", "64", "--block-size", str(BLOCK), *self.OPTIONS],
            stderr=subprocess.PIPE, text=True)
        for line in self.daemon.stderr:
            match = re.match(r"quired: ready grpc=(\S+) .* block_size=8(?: admin=(\S+))?$", line)
            if match:
                self.address, self.admin_address = match.groups()
                return
        self.fail("quired did not start")

    def tearDown(self):
        self.daemon.terminate()
        self.daemon.communicate(timeout=60)
        self.assertEqual(self.daemon.returncode, 0)

    def quire(self, *args, code=0, text=None, server=None):
        result = subprocess.run([QUIRE, "--server", server or self.address, *args], input=text, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stdout if code == 0 else result.stderr

    def json(self, *args, **options):
        return [json.loads(line) for line in self.quire(*args, "--json", **options).splitlines()]


class CacheTest(DaemonTest):
    def test_life_of_a_prefix(self):
        prompt = "abcdefghijklmnopqrst"  # 20 tokens: two blocks and a half
        self.assertEqual(self.json("cache", "list"), [])
        self.assertEqual(self.json("cache", "warm", prompt, "--priority", "90", "--ttl", "600"),
                         [{"prompt_tokens": 20, "cached_tokens": 0, "computed_tokens": 20}])
        self.assertEqual(self.json("cache", "warm", "-", text=prompt),
                         [{"prompt_tokens": 20, "cached_tokens": 19, "computed_tokens": 1}])
        (prefix,) = self.json("cache", "list")
        self.assertEqual((prefix["tokens"], prefix["blocks"], prefix["priority"], prefix["in_use"]), (20, 3, 90, False))
        self.assertLessEqual(prefix["expires_in_seconds"], 600)
        self.assertIn("1 of 1 prefixes", self.quire("cache", "list"))

        *_, last = self.json("generate", prompt + "uv", "--max-tokens", "2")
        self.assertEqual(last["usage"]["cached_tokens"], 20)
        *_, last = self.json("generate", prompt, "--max-tokens", "1", "--salt", "s")
        self.assertEqual((last["usage"]["cached_tokens"], last["usage"]["cache_miss"]),
                         (0, {"reason": "other_root", "block": 0}))

        (dropped,) = self.json("cache", "drop", prompt, "--salt", "s")
        self.assertEqual(dropped["dropped_blocks"], 1)  # the half one: the two before hold no more than its beginning
        (dropped,) = self.json("cache", "drop", "--salt", "s")
        self.assertEqual(dropped["dropped_blocks"], 2)
        self.assertEqual(len(self.json("cache", "list", "--tenant", "nobody")), 0)
        self.assertGreater(self.json("cache", "reset")[0]["dropped_blocks"], 2)
        self.assertEqual(self.json("cache", "list"), [])
        *_, last = self.json("generate", prompt, "--max-tokens", "1")
        self.assertEqual(last["usage"]["cache_miss"]["reason"], "evicted")
        self.assertIn("3 blocks dropped", self.quire("cache", "drop", "--all"))

    def test_errors(self):
        self.assertIn("keep.priority: 101", self.quire("cache", "warm", "abc", "--priority", "101", code=1))
        self.assertIn("PROMPT or --ids", self.quire("cache", "warm", code=64))
        self.assertIn("--all", self.quire("cache", "drop", code=64))
        self.assertIn("--all", self.quire("cache", "drop", "--all", "--tenant", "t", code=64))
        self.assertIn("subcommand", self.quire("cache", code=64))
        self.assertIn("--kv-events", self.quire("cache", "events", code=1))


class EventsTest(DaemonTest):
    OPTIONS = ["--kv-events", "16", "--eviction-policy", "lru", "--max-pinned-share", "0.25",
               "--tenant-kv-quota", "0.5,big=0.75"]

    def test_events_are_told_and_resumed(self):
        self.quire("cache", "warm", "abcdefghijklmnopqrst")
        head, first, second = self.json("cache", "events", "--from", "0", "--count", "2")
        self.assertEqual((head["first"], head["lost"], head["block_size"]), (0, 0, BLOCK))
        self.assertEqual((first["number"], first["kind"], first["tier"]), (0, "stored", "device"))
        self.assertEqual((first["parent"], second["parent"]), (head["root"], first["key"]))
        self.assertEqual(first["token_ids"], [ord(c) - 33 for c in "abcdefgh"])
        self.quire("cache", "reset")
        text = self.quire("cache", "events", "--from", "2", "--count", "3")
        self.assertRegex(text, r"(?s)log [0-9a-f]{16} from event 2 on.* 3 removed +device.* 4 cleared +device")
        for letter in "ABCDEFGHIJ":
            self.quire("cache", "warm", letter * 20)
        head, *events = self.json("cache", "events", "--from", "0", "--count", "16")
        self.assertEqual((head["first"], head["lost"]), (9, 9))
        self.assertEqual([event["number"] for event in events], list(range(9, 25)))
        self.assertIn("from: 26 is beyond 25", self.quire("cache", "events", "--from", "26", code=1))
        self.assertIn("--from", self.quire("cache", "events", "--from", "x", code=64))

    def test_events_come_as_they_happen_and_end_with_the_daemon(self):
        watcher = subprocess.Popen([QUIRE, "--server", self.address, "cache", "events", "--json"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(json.loads(watcher.stdout.readline())["first"], 0)
        self.quire("cache", "warm", "abcdefghi")
        self.assertEqual(json.loads(watcher.stdout.readline())["kind"], "stored")
        self.daemon.terminate()
        _, said = watcher.communicate(timeout=60)
        self.assertEqual(watcher.returncode, 1)
        self.assertIn("shutting down", said)

    def test_an_interrupt_ends_the_tool_well(self):
        watcher = subprocess.Popen([QUIRE, "--server", self.address, "cache", "events"], stdout=subprocess.PIPE,
                                   text=True)
        self.assertIn("from event 0 on", watcher.stdout.readline())
        watcher.send_signal(signal.SIGINT)
        watcher.communicate(timeout=60)
        self.assertEqual(watcher.returncode, 0)


class AdminPortTest(DaemonTest):
    OPTIONS = ["--admin-listen", "127.0.0.1:0"]

    def test_administration_is_at_its_own_port_only(self):
        self.assertNotEqual(self.admin_address, self.address)
        self.assertEqual(self.json("cache", "warm", "abc", server=self.admin_address)[0]["computed_tokens"], 3)
        for command in (["cache", "list"], ["cache", "warm", "abc"], ["cache", "drop", "--all"], ["cache", "reset"],
                        ["cache", "events"], ["trace", "status"], ["trace", "start"], ["trace", "stop"]):
            self.assertIn("UNIMPLEMENTED", self.quire(*command, code=1))
        self.assertIn("UNIMPLEMENTED", self.quire("stats", code=1, server=self.admin_address))
        self.quire("stats")
        self.quire("health", "--service", "quire.v1.Admin", server=self.admin_address)
        taken = subprocess.run([QUIRED, "--model", make_model(), "--device", "sim", "--http-listen", "", "--grpc-listen", "127.0.0.1:0",
                                "--admin-listen", self.admin_address], stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(taken.returncode, 69)
        self.assertIn("--admin-listen: cannot listen", taken.stderr)
        wrong = subprocess.run([QUIRED, "--model", make_model(), "--device", "sim", "--http-listen", "", "--grpc-listen", "127.0.0.1:0",
                                "--admin-listen", "nowhere"], stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(wrong.returncode, 78)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
