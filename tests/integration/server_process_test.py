"""Drives the real quired with --device sim: ready line, exit codes, drain under load, sockets,
killed clients, reflection.

Usage: server_process_test.py QUIRED. Needs python3-grpcio; exits 77 (skipped) without it. Messages are written and read
byte by byte here, so no protobuf for Python is needed.
"""
import atexit
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

try:
    import grpc
except ImportError:
    print("skipped: python3-grpcio is not installed")
    sys.exit(77)

QUIRED = sys.argv[1]
WORK = tempfile.TemporaryDirectory(prefix="quire_process_test_")


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def message(field, body):
    return varint(field << 3 | 2) + varint(len(body)) + body


def fields(data):
    """{number: last value} of a message; nested messages stay bytes."""
    found, at = {}, 0

    def read():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        tag = read()
        kind = tag & 7
        if kind == 0:
            found[tag >> 3] = read()
            continue
        size = {1: 8, 5: 4}.get(kind) or read()
        found[tag >> 3] = data[at:at + size]
        at += size
    return found


def make_model():
    """config.json and a tokenizer whose tokens are single bytes."""
    folder = os.path.join(WORK.name, "model")
    os.makedirs(folder, exist_ok=True)
    # The 256 characters that byte-level BPE writes bytes as.
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    spelling = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": 256, "content": "<eos>", "special": True, "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False}],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {spelling[b]: b for b in range(256)}, "merges": []},
    }
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 257, "hidden_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
        "rms_norm_eps": 1e-5, "max_position_embeddings": 2048, "rope_theta": 10000.0, "eos_token_id": 256,
        "tie_word_embeddings": True,
    }
    for name, value in (("config.json", config), ("tokenizer.json", tokenizer)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
            json.dump(value, out)
    return folder


MODEL = make_model()


# Reads the first message of 30 endless streams, says so and waits to be killed.
KILLED_CLIENT = """
import grpc, sys
channel = grpc.insecure_channel(sys.argv[1])
call = channel.unary_stream("/quire.v1.Generation/GenerateStream")
streams = [call(b"\\x1a\\x01a\\x3a\\x05\\x08\\xd0\\x0f\\x30\\x01") for _ in range(30)]  # max_tokens 2000, ignore_eos
for stream in streams:
    next(stream)
print("ready", flush=True)
sys.stdin.read()
"""


class Daemon:
    """A quired that serves, or its exit code if it never did."""

    def __init__(self, *args, listen="127.0.0.1:0", kv_blocks=512):
        self.process = subprocess.Popen([QUIRED, "--model", MODEL, "--device", "sim", "--http-listen", "", "--grpc-listen", listen,
                                         "--kv-blocks", str(kv_blocks), *args], stderr=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)  # a test that failed leaves it running
        self.lines = []
        self.address = None
        for line in self.process.stderr:
            self.lines.append(line)
            match = re.match(r"quired: ready grpc=(\S+) model=\S+ device=sim kv_blocks=\d+ block_size=\d+$", line)
            if match:
                self.address = match.group(1)
                break
        # Somebody has to empty the pipe.
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True)
        self.reader.start()

    def wait(self):
        code = self.process.wait(timeout=60)
        self.reader.join()
        return code

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        return self.wait()


def stream(channel, max_tokens=None):
    """Answers to a request without an end of its own; without max_tokens up to what a sequence may have."""
    call = channel.unary_stream("/quire.v1.Generation/GenerateStream", request_serializer=lambda b: b,
                                response_deserializer=lambda b: b)
    # GenerateRequest{text = 3, stopping = 7{max_tokens = 1, ignore_eos = 6}}
    limit = b"" if max_tokens is None else number(1, max_tokens)
    return call(message(3, b"hello") + message(7, limit + number(6, 1)))


def chat(channel, text, max_tokens=2):
    """The number of tokens of the prompt, or the error."""
    call = channel.unary_unary("/quire.v1.Generation/Chat", request_serializer=lambda b: b,
                               response_deserializer=lambda b: b)
    # ChatRequest{messages = 1{role = 1, content = 2}, request = 10{stopping = 7{max_tokens = 1, ignore_eos = 6}}}
    request = message(1, message(1, b"user") + message(2, text)) + message(
        10, message(7, number(1, max_tokens) + number(6, 1)))
    try:
        return fields(fields(call(request)).get(2, b"")).get(1)  # GenerateResponse{prompt = 2{prompt_tokens = 1}}
    except grpc.RpcError as error:
        return error


def completion_tokens(response):
    # GenerateResponse{usage = 4{completion_tokens = 3}}
    return fields(fields(response).get(4, b"")).get(3)


def running_and_waiting(channel):
    call = channel.unary_unary("/quire.v1.Generation/GetStats", request_serializer=lambda b: b,
                               response_deserializer=lambda b: b)
    # GetStatsResponse{requests_running = 2, requests_waiting = 3}
    stats = fields(call(b""))
    return stats.get(2, 0), stats.get(3, 0)


def preemptions(channel):
    call = channel.unary_unary("/quire.v1.Generation/GetStats", request_serializer=lambda b: b,
                               response_deserializer=lambda b: b)
    return fields(call(b"")).get(11, 0)  # GetStatsResponse{preemptions = 11}


def health(channel, service=b""):
    call = channel.unary_unary("/grpc.health.v1.Health/Check", request_serializer=lambda b: b,
                               response_deserializer=lambda b: b)
    # HealthCheckRequest{service = 1}, HealthCheckResponse{status = 1: SERVING is 1}
    return call(b"\x0a" + bytes([len(service)]) + service) == b"\x08\x01"


class ProcessTest(unittest.TestCase):
    def test_drain_under_load(self):
        daemon = Daemon("--max-num-seqs", "16", "--sim-time-scale", "1", "--drain-timeout", "250")
        with grpc.insecure_channel(daemon.address) as channel:
            streams = [stream(channel, max_tokens=150 + i) for i in range(64)]
            while running_and_waiting(channel) != (16, 48):
                pass
            self.assertTrue(health(channel))
            self.assertTrue(health(channel, b"quire.v1.Generation"))
            daemon.process.send_signal(signal.SIGTERM)
            while health(channel):  # until the signal has been seen
                pass
            with self.assertRaises(grpc.RpcError) as refused:
                list(stream(channel, max_tokens=1))
            self.assertEqual(refused.exception.code(), grpc.StatusCode.UNAVAILABLE)
            details = dict(refused.exception.trailing_metadata())
            self.assertIn(b"google.rpc.RetryInfo", details["grpc-status-details-bin"])
            for i, messages in enumerate(streams):
                *_, last = messages
                self.assertEqual(completion_tokens(last), 150 + i)
        self.assertEqual(daemon.wait(), 0)
        self.assertGreaterEqual(sum(" request id=" in line and "status=OK" in line for line in daemon.lines), 64)
        self.assertFalse(any("hello" in line for line in daemon.lines))

    def test_drain_timeout_aborts_with_unavailable(self):
        daemon = Daemon("--sim-time-scale", "20", "--drain-timeout", "0")
        with grpc.insecure_channel(daemon.address) as channel:
            messages = stream(channel, max_tokens=2000)
            next(messages)
            daemon.process.send_signal(signal.SIGTERM)
            with self.assertRaises(grpc.RpcError) as raised:
                list(messages)
            self.assertEqual(raised.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertEqual(daemon.wait(), 0)

    def test_lame_duck_still_accepts_then_drains(self):
        daemon = Daemon("--lame-duck", "3600", "--sim-time-scale", "0")
        with grpc.insecure_channel(daemon.address) as channel:
            daemon.process.send_signal(signal.SIGTERM)
            while health(channel):  # until the signal has been seen
                pass
            for _ in range(20):
                self.assertEqual(completion_tokens(list(stream(channel, max_tokens=5))[-1]), 5)
            self.assertIsNone(daemon.process.poll())
        self.assertEqual(daemon.stop(), 0)  # a second signal

        daemon = Daemon("--lame-duck", "0.01", "--sim-time-scale", "0")
        self.assertEqual(daemon.stop(), 0)

    def test_second_signal_stops_at_once(self):
        daemon = Daemon("--sim-time-scale", "20", "--drain-timeout", "3600")
        with grpc.insecure_channel(daemon.address) as channel:
            messages = stream(channel, max_tokens=2000)
            next(messages)
            daemon.process.send_signal(signal.SIGINT)
            daemon.process.send_signal(signal.SIGTERM)
            with self.assertRaises(grpc.RpcError):
                list(messages)
        self.assertEqual(daemon.wait(), 0)

    def test_exit_codes(self):
        daemon = Daemon()
        for code, args in ((69, ["--grpc-listen", daemon.address]), (66, ["--model", "/no/such/model"]),
                           (64, ["--no-such-option"]), (69, ["--http-listen", "192.0.2.1:1"]), (64, ["--grpc-listen", ""]),
                           (78, ["--block-size", "3"]), (78, ["--grpc-listen", "nonsense"]), (78, ["--http-listen", "nonsense"])):
            with self.subTest(args=args):
                options = {"--device": "sim", "--http-listen": "", "--grpc-listen": "127.0.0.1:0", "--model": MODEL}
                options = [text for name, value in options.items() if name not in args for text in (name, value)]
                result = subprocess.run([QUIRED] + options + args, stderr=subprocess.PIPE, text=True, timeout=60)
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertTrue(result.stderr.strip())
        check = subprocess.run([QUIRED, "--model", MODEL, "--device", "sim", "--http-listen", "", "--grpc-listen", "127.0.0.1:0",
                                "--check-config"], timeout=60)
        self.assertEqual(check.returncode, 0)
        self.assertEqual(daemon.stop(), 0)

    def test_B129_a_chat_template_that_does_not_parse(self):
        def write(name, text):
            with open(os.path.join(WORK.name, name), "w", encoding="utf-8") as out:
                out.write(text)
            return out.name

        # Of the model: the daemon serves, and chats get the reason.
        path = write("model/chat_template.jinja", "{% for m in messages %}\n{% nonsense %}{% endfor %}")
        try:
            daemon = Daemon()
            with grpc.insecure_channel(daemon.address) as channel:
                self.assertEqual(completion_tokens(list(stream(channel, max_tokens=3))[-1]), 3)
                refused = chat(channel, b"hi")
                self.assertEqual(refused.code(), grpc.StatusCode.INVALID_ARGUMENT)
                self.assertIn("line 2", refused.details())
            self.assertEqual(daemon.stop(), 0)
            self.assertTrue(any("no chat" in line and "line 2" in line for line in daemon.lines), daemon.lines)
        finally:
            os.unlink(path)
        # Of the command line: the daemon does not start.
        for text in ("{% if %}", None):
            broken = write("broken.jinja", text) if text else os.path.join(WORK.name, "no_such.jinja")
            daemon = Daemon("--chat-template", broken)
            self.assertIsNone(daemon.address)
            self.assertEqual(daemon.wait(), 66, daemon.lines)
        daemon = Daemon("--chat-template", write("good.jinja", "{% for m in messages %}{{ m.content }}{% break %}{% endfor %}"))
        with grpc.insecure_channel(daemon.address) as channel:
            self.assertEqual(chat(channel, b"hello"), 5)
        self.assertEqual(daemon.stop(), 0)

    def test_unix_socket_is_not_shared_and_a_stale_one_is_taken_over(self):
        path = os.path.join(WORK.name, "socket")
        daemon = Daemon(listen=f"unix:{path}")
        self.assertEqual(daemon.address, f"unix:{path}")
        with grpc.insecure_channel(daemon.address) as channel:
            self.assertEqual(completion_tokens(list(stream(channel, max_tokens=3))[-1]), 3)
        second = Daemon(listen=f"unix:{path}")
        self.assertIsNone(second.address)
        self.assertEqual(second.wait(), 69)
        daemon.process.kill()
        daemon.wait()
        self.assertTrue(os.path.exists(path))
        third = Daemon(listen=f"unix:{path}")
        self.assertEqual(third.address, f"unix:{path}")
        self.assertEqual(third.stop(), 0)
        self.assertFalse(os.path.exists(path))

    def test_a_killed_client_leaves_nothing(self):
        daemon = Daemon("--sim-time-scale", "1")
        with grpc.insecure_channel(daemon.address) as channel:
            client = subprocess.Popen([sys.executable, "-c", KILLED_CLIENT, daemon.address], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE)
            client.stdout.readline()
            client.kill()
            client.communicate()
            while sum(running_and_waiting(channel)) > 0:  # or ctest's timeout
                pass
            self.assertEqual(completion_tokens(list(stream(channel, max_tokens=3))[-1]), 3)
        self.assertEqual(daemon.stop(), 0)

    def test_B056_an_overloaded_tiny_pool_keeps_its_log_short_and_answers(self):
        # On demand a minute: QUIRE_OVERLOAD_SECONDS=60.
        seconds = float(os.environ.get("QUIRE_OVERLOAD_SECONDS", "2"))
        daemon = Daemon("--block-size", "8", "--max-num-seqs", "16", "--sim-time-scale", "0.1", kv_blocks=20)
        with grpc.insecure_channel(daemon.address) as channel:
            end, tokens, errors = time.monotonic() + seconds, [], []

            def overload():
                try:
                    while time.monotonic() < end or not tokens:
                        tokens.append(completion_tokens(list(stream(channel))[-1]))
                except grpc.RpcError as error:
                    errors.append(error.details())

            clients = [threading.Thread(target=overload) for _ in range(32)]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
            self.assertEqual(errors, [])
            self.assertGreaterEqual(len(tokens), len(clients))
            self.assertEqual(len(set(tokens)), 1)  # each filled what a sequence may
            self.assertGreater(preemptions(channel), 0)
            self.assertEqual(running_and_waiting(channel), (0, 0))
            self.assertEqual(completion_tokens(list(stream(channel, max_tokens=3))[-1]), 3)
        self.assertEqual(daemon.stop(), 0)
        self.assertLess(sum(map(len, daemon.lines)), 1 << 20)

    def test_reflection_and_json_logs(self):
        daemon = Daemon("--log-format", "json")
        with grpc.insecure_channel(daemon.address) as channel:
            call = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                                         request_serializer=lambda b: b, response_deserializer=lambda b: b)
            listing = next(call(iter([b"\x3a\x01*"])))  # list_services = 7
            self.assertIn(b"quire.v1.Generation", listing)
            self.assertIn(b"grpc.health.v1.Health", listing)
            with self.assertRaises(grpc.RpcError):  # text = 3 that is no UTF-8: what the library says is no event
                channel.unary_unary("/quire.v1.Generation/Generate")(b"\x1a\x02\xc3\x28")
        self.assertEqual(daemon.stop(), 0)
        events = [json.loads(line) for line in daemon.lines if not line.startswith("quired: ready")]
        self.assertTrue(events)
        self.assertTrue(all({"time", "level", "message"} <= event.keys() for event in events))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
