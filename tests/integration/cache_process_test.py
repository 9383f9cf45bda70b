"""Drives the prefix cache of a real quired (--device sim) with the tool: quire cache list, warm, drop, reset.

Usage: cache_process_test.py QUIRED QUIRE.
"""
import json
import os
import re
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


class CacheTest(unittest.TestCase):
    def setUp(self):
        self.daemon = subprocess.Popen(
            [QUIRED, "--model", make_model(), "--device", "sim", "--sim-time-scale", "0", "--grpc-listen",
             "127.0.0.1:0", "--kv-blocks", "64", "--block-size", str(BLOCK)], stderr=subprocess.PIPE, text=True)
        for line in self.daemon.stderr:
            match = re.match(r"quired: ready grpc=(\S+)", line)
            if match:
                self.address = match.group(1)
                return
        self.fail("quired did not start")

    def tearDown(self):
        self.daemon.terminate()
        self.daemon.communicate(timeout=60)
        self.assertEqual(self.daemon.returncode, 0)

    def quire(self, *args, code=0, text=None):
        result = subprocess.run([QUIRE, "--server", self.address, *args], input=text, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stdout if code == 0 else result.stderr

    def json(self, *args, **options):
        return [json.loads(line) for line in self.quire(*args, "--json", **options).splitlines()]

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


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
