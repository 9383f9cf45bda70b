"""Gives every malformed model file to the real quired, quire inspect and quire_offline: each must exit 66 with one line
that names the file and what is wrong, within a limit on memory and processor time; the controls must load.

Usage: malformed_process_test.py QUIRED QUIRE QUIRE_OFFLINE FOLDER... The first FOLDER that exists holds the files and
their manifest.json.
"""
import json
import os
import resource
import subprocess
import sys
import tempfile
import unittest

QUIRED, QUIRE, OFFLINE, *FOLDERS = sys.argv[1:]
FOLDER = next((os.path.abspath(f) for f in FOLDERS if os.path.exists(os.path.join(f, "manifest.json"))), None)
if FOLDER is None:
    print("skipped: no malformed files in", *FOLDERS)
    sys.exit(77)
MEMORY_BYTES, CPU_SECONDS = 256 << 20, 5
WORK = tempfile.TemporaryDirectory(prefix="quire_malformed_test_")


def limit():
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def path_of(case):
    """What --model is given: a lone safetensors file stands in a folder with a good config.json."""
    path = os.path.join(FOLDER, case["file"]).rstrip("/")
    if not path.endswith(".safetensors"):
        return path
    folder = os.path.join(WORK.name, os.path.basename(path)[:-len(".safetensors")])
    os.mkdir(folder)
    os.symlink(os.path.join(FOLDER, "config/ok/config.json"), os.path.join(folder, "config.json"))
    os.symlink(path, os.path.join(folder, "model.safetensors"))
    return folder


def run(command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", timeout=120,
                          preexec_fn=limit, stdin=subprocess.DEVNULL)


def commands(path):
    # The folders bring no tokenizer.
    tokenizer = [] if path.endswith(".gguf") else ["--tokenizer", os.path.join(FOLDER, "gguf/ok_model.gguf")]
    pool = ["--device", "cpu", "--kv-blocks", "8", "--threads", "1"]
    return {
        "quired": [QUIRED, "--model", path, "--check-config", "--http-listen", "", "--grpc-listen", f"unix:{WORK.name}/socket", *pool,
                   *tokenizer],
        "quire inspect": [QUIRE, "inspect", path],
        "quire_offline": [OFFLINE, "--model", path, "--requests", "/dev/null", *pool],
    }


class MalformedTest(unittest.TestCase):
    def check(self, case, path, result):
        said = result.stderr.lower()
        self.assertIn(result.returncode, (0, 66), said)
        # The container is good, but a model lacks everything.
        no_model = case["level"] == "container" and case["expect"] == "ok"
        if case["expect"] == "ok" and not no_model:
            self.assertEqual(result.returncode, 0, said)
        if case["expect"] == "error" or no_model:
            self.assertEqual(result.returncode, 66, said)
        if result.returncode == 0:
            return
        self.assertIn(path.lower(), said)
        self.assertEqual(len(result.stderr.splitlines()), 1, said)
        words = case.get("error_should_mention_one_of", [""])
        self.assertTrue(any(word.lower() in said.replace(path.lower(), "") for word in words), f"{words}: {said}")

    def test_every_case_of_the_manifest(self):
        with open(os.path.join(FOLDER, "manifest.json"), encoding="utf-8") as file:
            cases = json.load(file)["cases"]
        self.assertGreaterEqual(len(cases), 60)
        for case in cases:
            path = path_of(case)
            for program, command in commands(path).items():
                with self.subTest(file=case["file"], program=program):
                    self.check(case, path, run(command))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
