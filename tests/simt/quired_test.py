"""The daemon and CUDA devices. Class EmulatedTest: on the emulated device it serves, it ends with 0 when told to, and with
70 when the device fails. Class NoDeviceTest: without a device it refuses --device=cuda with 69, and serves on the CPU.

Usage: quired_test.py CLASS QUIRED QUIRE MODEL [REASON]     REASON: a pattern, what NoDeviceTest expects to be told
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

CLASS, QUIRED, QUIRE, MODEL = sys.argv[1:5]


class Daemon:
    """A quired that serves at a socket of its own."""

    def __init__(self, folder, device, *flags):
        self.failure_file = os.path.join(folder, "failed")
        self.process = subprocess.Popen(
            [QUIRED, "--model", MODEL, "--device", device, "--kv-blocks", "64", "--host-kv-memory", "1MiB", "--grpc-listen",
             "unix:" + os.path.join(folder, "socket"), "--http-listen", "", *flags],
            stderr=subprocess.PIPE, text=True, env={**os.environ, "QUIRE_SIMT_FAILURE_FILE": self.failure_file})
        self.log = ""
        self.server = ""
        for line in self.process.stderr:
            self.log += line
            if ready := re.match(rf"quired: ready grpc=(\S+) .*device={device} ", line):
                self.server = ready.group(1)
                break

    def generate(self):
        return subprocess.run([QUIRE, "--server", self.server, "generate", "--ids", "1,2,3", "--max-tokens", "4",
                               "--temperature", "0", "--ignore-eos", "--no-stream", "--json"],
                              capture_output=True, text=True, check=False)

    def exit_code(self):
        self.log += self.process.stderr.read()
        return self.process.wait()


class DaemonTest(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="quired_simt_"))

    def start(self, device, *flags):
        daemon = Daemon(self.folder, device, *flags)
        self.addCleanup(daemon.process.stderr.close)
        self.addCleanup(daemon.process.wait)
        self.addCleanup(daemon.process.kill)
        self.assertTrue(daemon.server, daemon.log)
        return daemon

    def generated_ids(self, daemon):
        answer = daemon.generate()
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return [i for line in answer.stdout.splitlines() for s in json.loads(line).get("sequences", [])
                for i in s.get("token_ids", [])]

    def end(self, daemon):
        daemon.process.terminate()
        self.assertEqual(daemon.exit_code(), 0, daemon.log)

    def refusal(self, *flags):
        """Exit code and words of a start that cannot succeed; 0 if it could."""
        result = subprocess.run([QUIRED, "--model", MODEL, "--kv-blocks", "64", "--host-kv-memory", "1MiB", "--grpc-listen",
                                 "unix:" + os.path.join(self.folder, "socket"), "--http-listen", "", "--check-config", *flags],
                                capture_output=True, text=True, check=False)
        return result.returncode, result.stderr


class EmulatedTest(DaemonTest):
    def test_serves_and_ends(self):
        daemon = self.start("cuda")
        self.assertEqual(len(self.generated_ids(daemon)), 4)
        self.end(daemon)

    def test_a_failed_device_fails_the_request_and_exits_70(self):
        daemon = self.start("cuda")
        self.assertEqual(daemon.generate().returncode, 0)
        with open(daemon.failure_file, "w", encoding="utf-8"):
            pass
        answer = daemon.generate()
        self.assertEqual(answer.returncode, 1, answer.stdout)
        self.assertEqual(daemon.exit_code(), 70, daemon.log)
        self.assertIn("the device has failed", daemon.log)

    def test_serves_with_caches_of_other_types(self):
        for dtype in ("bf16", "fp8_e4m3", "int8"):
            daemon = self.start("cuda", "--kv-cache-dtype", dtype)
            self.assertEqual(len(self.generated_ids(daemon)), 4)
            self.end(daemon)

    def test_a_device_of_another_number_is_not_there(self):
        code, words = self.refusal("--device", "cuda:7")
        self.assertEqual(code, 69, words)
        self.assertIn("device cuda:7", words)


class NoDeviceTest(DaemonTest):
    def test_cuda_is_refused(self):
        code, words = self.refusal("--device", "cuda")
        if code == 0:
            self.skipTest("a CUDA device is there")
        self.assertEqual(code, 69, words)
        self.assertRegex(words, sys.argv[5])

    def test_types_of_cache_that_a_device_lacks(self):
        for device, dtype, built in (("cpu", "fp8_e4m3", "f32, f16, bf16, int8"), ("reference", "bf16", "f32"),
                                     ("reference", "fp8_e4m3", "f32"), ("reference", "int8", "f32")):
            code, words = self.refusal("--device", device, "--kv-cache-dtype", dtype)
            self.assertEqual(code, 78, words)
            self.assertIn(f"--kv-cache-dtype {dtype} is not built for device {device}, which has {built}", words)

    def test_serves_on_the_cpu(self):
        daemon = self.start("cpu")
        self.assertEqual(len(self.generated_ids(daemon)), 4)
        self.end(daemon)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], defaultTest=CLASS)
