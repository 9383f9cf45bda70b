"""Real clients at quired's HTTP port: OpenAI's own (whole, streamed, n, scores, errors, chat), Prometheus' parser, and
the requests that lm-eval's `local-completions` makes, whose scores must be those of quire_offline; lm-eval itself where
`build/lm_eval` has it (tests/README.md).

Usage: http_clients_test.py PYTHON QUIRED QUIRE_OFFLINE SOURCE_FOLDER. PYTHON is that of a virtual environment with the
packages `openai` and `prometheus-client`, which tests/run makes; exits 77 (skipped) without it.
"""
import glob
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request
from typing import Literal

PYTHON, QUIRED, OFFLINE, SOURCE = sys.argv[1:5]
LM_EVAL = os.path.join(SOURCE, "build/lm_eval/bin/lm_eval")
if not os.path.exists(PYTHON):
    print("skipped: no Python packages openai and prometheus-client (no package index when tests/run was last run)")
    sys.exit(77)
if os.path.dirname(PYTHON) != os.path.join(sys.prefix, "bin"):
    os.execv(PYTHON, [PYTHON, *sys.argv])

import openai  # noqa: E402
import pydantic  # noqa: E402
from prometheus_client.parser import text_string_to_metric_families  # noqa: E402

WORK = tempfile.TemporaryDirectory(prefix="quire_clients_test_")
MODEL = os.path.join(SOURCE, "tests/data/ref/tiny/llama_gqa")
FIRST_BYTE = 4  # ids 0 to 3 are special


CHAT = ("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}")
# As Hermes and Qwen write calls.
TOOLS = ("{% for t in tools or [] %}{{ t['function']['name'] }}\n{% endfor %}{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}"
         "{% for c in m['tool_calls'] %}<tool_call>\n{\"name\": \"{{ c['function']['name'] }}\", \"arguments\": "
         "{{ c['function']['arguments'] | tojson }}}\n</tool_call>{% endfor %}\n{% endfor %}"
         "{% if add_generation_prompt %}assistant: {% endif %}")


def make_tokenizer(name, post_processor=None, template=CHAT):
    """A folder with a tokenizer whose tokens are bytes, for a tiny model that has none."""
    folder = os.path.join(WORK.name, name)
    os.makedirs(folder)
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    spelling = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    special = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    names = ["<pad>", "<s>", "</s>", "<unk>"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = {
        "version": "1.0", "added_tokens": [{"id": i, "content": name, **special} for i, name in enumerate(names)],
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": post_processor, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {spelling[b]: FIRST_BYTE + b for b in range(256)}, "merges": []},
    }
    config = {"eos_token": "</s>", "bos_token": "<s>", "chat_template": template,
              "tokenizer_class": "PreTrainedTokenizerFast"}
    for name, value in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
            json.dump(value, out)
    return folder


TOKENIZER = make_tokenizer("tokenizer")


class Daemon:
    def __init__(self, *options, tokenizer=TOKENIZER):
        self.process = subprocess.Popen(
            [QUIRED, "--model", MODEL, "--tokenizer", tokenizer, "--served-model-name", "tiny", "--device", "cpu", "--threads", "1", "--seed", "1",
             "--grpc-listen", "", "--http-listen", "127.0.0.1:0", "--kv-blocks", "256", *options],
            stderr=subprocess.PIPE, text=True)
        line = ""
        for line in self.process.stderr:
            if line.startswith("quired: ready"):
                break
        found = re.search(r"http=(\S+)", line)
        assert found, line
        self.url = "http://" + found[1]
        self.log = []
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self.reader.start()

    def client(self, api_key="none"):
        return openai.OpenAI(base_url=self.url + "/v1", api_key=api_key, max_retries=0)

    def get(self, path):
        with urllib.request.urlopen(self.url + path) as reply:
            return reply.read().decode()

    def metrics(self):
        """{(name, labels): value}, by Prometheus' own parser."""
        found = {}
        for family in text_string_to_metric_families(self.get("/metrics")):
            for sample in family.samples:
                found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
        return found

    def metric(self, name):
        return sum(value for (known, _), value in self.metrics().items() if known == name)

    def stop(self):
        self.process.terminate()
        code = self.process.wait()
        self.reader.join()
        return code


class OpenAiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.api = cls.daemon.client()
        cls.whole = {"model": "tiny", "prompt": "The quick brown", "max_tokens": 12, "temperature": 0,
                     "extra_body": {"ignore_eos": True}}

    @classmethod
    def tearDownClass(cls):
        cls.api.close()
        assert cls.daemon.stop() == 0

    def test_models(self):
        models = self.api.models.list().data
        self.assertEqual([m.id for m in models], ["tiny"])
        self.assertEqual(self.api.models.retrieve("tiny").owned_by, "quire")

    def test_completions_whole_and_streamed(self):
        whole = self.api.completions.create(**self.whole)
        self.assertEqual(whole.choices[0].finish_reason, "length")
        self.assertEqual((whole.usage.prompt_tokens, whole.usage.completion_tokens), (15, 12))
        parts = list(self.api.completions.create(**self.whole, stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(p.choices[0].text for p in parts if p.choices), whole.choices[0].text)
        self.assertEqual(parts[-1].usage.total_tokens, whole.usage.total_tokens)
        self.assertEqual([p.choices[0].finish_reason for p in parts if p.choices][-1], "length")

    def test_several_sequences(self):
        asked = {**self.whole, "n": 3, "temperature": 1, "seed": 7}
        whole = self.api.completions.create(**asked)
        self.assertEqual([c.index for c in whole.choices], [0, 1, 2])
        texts = ["", "", ""]
        for part in self.api.completions.create(**asked, stream=True):
            texts[part.choices[0].index] += part.choices[0].text
        self.assertEqual(texts, [c.text for c in whole.choices])

    def test_scores(self):
        scores = self.api.completions.create(**self.whole, logprobs=2).choices[0].logprobs
        self.assertEqual({len(scores.tokens), len(scores.token_logprobs), len(scores.top_logprobs), len(scores.text_offset)},
                         {12})
        for token, score, top in zip(scores.tokens, scores.token_logprobs, scores.top_logprobs):
            self.assertEqual(max(top.values()), score)  # greedy
            self.assertIn(token, top)

    def test_errors_have_their_classes(self):
        create = self.api.completions.create
        with self.assertRaises(openai.NotFoundError):
            create(**{**self.whole, "model": "other"})
        with self.assertRaises(openai.BadRequestError) as bad:
            create(**{**self.whole, "temperature": -1})
        self.assertEqual(bad.exception.param, "temperature")
        for stream in (False, True):
            with self.assertRaises(openai.BadRequestError):
                create(**{**self.whole, "prompt": "x" * 600}, stream=stream)

    def test_chat_whole_and_streamed(self):
        asked = {"model": "tiny", "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 8, "temperature": 0,
                 "extra_body": {"ignore_eos": True}}
        whole = self.api.chat.completions.create(**asked)
        self.assertEqual(whole.choices[0].message.role, "assistant")
        text = "".join(p.choices[0].delta.content or "" for p in self.api.chat.completions.create(**asked, stream=True)
                       if p.choices)
        self.assertEqual(text, whole.choices[0].message.content)

    def test_metrics_follow_what_is_asked(self):
        before = self.daemon.metrics()
        for _ in range(3):
            self.api.completions.create(**self.whole)
        after = self.daemon.metrics()
        self.assertLessEqual(before.keys(), after.keys())
        grown = {name: after[name, labels] - before.get((name, labels), 0) for name, labels in after
                 if not name.endswith("_bucket") and len(labels) == 1}
        self.assertEqual(grown["quire_generation_tokens_total"], 36)
        self.assertEqual(grown["quire_prompt_tokens_total"], 45)
        self.assertEqual(grown["quire_e2e_request_latency_seconds_count"], 3)
        self.assertEqual(grown["quire_inter_token_latency_seconds_count"], 33)
        self.assertTrue(all(value >= 0 for name, value in grown.items() if name.endswith(("_total", "_count"))))
        done = ("quire_requests_total", (("model_name", "tiny"), ("outcome", "length")))
        self.assertEqual(after[done] - before[done], 3)

    def test_openapi_names_every_path(self):
        document = json.loads(self.daemon.get("/openapi.json"))
        self.assertTrue(document["openapi"].startswith("3."))
        for path in ("/v1/completions", "/v1/models", "/tokenize", "/detokenize", "/health", "/metrics"):
            self.assertIn(path, document["paths"])


class Wanted(pydantic.BaseModel):
    """Few answers, so that those of a random model end."""
    size: Literal["small", "large"]
    gift: bool


class ToolsTest(unittest.TestCase):
    """Calls and structured answers, with the helpers of OpenAI's client that check them."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(tokenizer=make_tokenizer("tools", template=TOOLS))
        cls.api = cls.daemon.client()
        cls.asked = {"model": "tiny", "messages": [{"role": "user", "content": "Buy."}], "max_tokens": 150, "seed": 3}
        cls.tools = {"tools": [openai.pydantic_function_tool(Wanted, name="buy")], "tool_choice": "required",
                     "parallel_tool_calls": False}

    @classmethod
    def tearDownClass(cls):
        cls.api.close()
        assert cls.daemon.stop() == 0

    def test_a_required_call_is_one_and_its_result_goes_back(self):
        choice = self.api.chat.completions.parse(**self.asked, **self.tools).choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        (call,) = choice.message.tool_calls
        self.assertIsInstance(call.function.parsed_arguments, Wanted)
        follow = [*self.asked["messages"], choice.message.model_dump(exclude={"parsed"}),
                  {"role": "tool", "tool_call_id": call.id, "content": "done"}]
        answer = self.api.chat.completions.create(**{**self.asked, "messages": follow, "max_tokens": 2})
        self.assertEqual(answer.choices[0].message.role, "assistant")

    def test_streamed_calls_are_assembled(self):
        wanted = self.api.chat.completions.parse(**self.asked, **self.tools).choices[0].message.tool_calls[0].function
        with self.api.chat.completions.stream(**self.asked, **self.tools, stream_options={"include_usage": True}) as stream:
            kinds = {event.type for event in stream}
            whole = stream.get_final_completion()
        self.assertIn("tool_calls.function.arguments.done", kinds)
        (call,) = whole.choices[0].message.tool_calls
        self.assertEqual((call.function.name, call.function.arguments), (wanted.name, wanted.arguments))
        self.assertEqual(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens)

    def test_several_calls_have_names_and_arguments_of_the_tools(self):
        several = {**self.asked, **self.tools, "parallel_tool_calls": True, "n": 3, "max_tokens": 400}
        for choice in self.api.chat.completions.create(**several).choices:
            if choice.finish_reason == "length":
                continue
            for call in choice.message.tool_calls:
                self.assertEqual(call.function.name, "buy")
                Wanted.model_validate_json(call.function.arguments)

    def test_a_response_format_is_parsed(self):
        answer = self.api.chat.completions.parse(**self.asked, response_format=Wanted, n=2, logprobs=True, top_logprobs=2)
        for choice in answer.choices:
            self.assertIsInstance(choice.message.parsed, Wanted)
            self.assertEqual("".join(entry.token for entry in choice.logprobs.content[:-1]), choice.message.content)
        with self.api.chat.completions.stream(**self.asked, response_format=Wanted) as stream:
            self.assertIsInstance(stream.get_final_completion().choices[0].message.parsed, Wanted)

    def test_refusals_name_what_the_client_called_it(self):
        for fields, param in (({"max_completion_tokens": 0}, "max_completion_tokens"),
                              ({"logprobs": True, "top_logprobs": 99}, "top_logprobs"),
                              ({**self.tools, "tool_choice": {"type": "function", "function": {"name": "sell"}}}, "tool_choice")):
            for stream in (False, True):
                with self.assertRaises(openai.BadRequestError) as bad:
                    self.api.chat.completions.create(**{**self.asked, **fields}, stream=stream, extra_headers={"X-Request-Id": "mine"})
                self.assertEqual((bad.exception.param, bad.exception.request_id), (param, "mine"))


class OverloadTest(unittest.TestCase):
    def test_what_is_too_much_is_a_rate_limit_error(self):
        daemon = Daemon("--max-num-seqs", "1", "--max-queued-requests", "1")
        with daemon.client() as api:
            asked = {"model": "tiny", "prompt": "a", "max_tokens": 480, "temperature": 0, "extra_body": {"ignore_eos": True}}
            refused = []

            def ask():
                try:
                    api.completions.create(**asked)
                except openai.RateLimitError as error:
                    refused.append(error.response.headers["retry-after"])

            threads = [threading.Thread(target=ask) for _ in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertGreaterEqual(len(refused), 1)
            api.completions.create(**{**asked, "max_tokens": 1})
        self.assertEqual(daemon.stop(), 0)


class EndIdTest(unittest.TestCase):
    def test_B128_a_tokenizer_that_appends_an_end_id_still_answers(self):
        sequence, end = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}
        appends = {"type": "TemplateProcessing", "single": [sequence, end], "pair": [sequence, end],
                   "special_tokens": {"</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}}
        daemon = Daemon(tokenizer=make_tokenizer("appends", appends))
        with daemon.client() as api:
            answer = api.completions.create(model="tiny", prompt="hello", max_tokens=4, extra_body={"ignore_eos": True})
        self.assertEqual((answer.usage.prompt_tokens, answer.usage.completion_tokens), (6, 4))
        self.assertEqual(daemon.stop(), 0)


class KeysTest(unittest.TestCase):
    def test_keys_are_needed_and_read_again_at_a_hangup(self):
        path = os.path.join(WORK.name, "keys")

        def write(text):
            with open(path, "w", encoding="utf-8") as out:
                out.write(text)

        write("first-key team user\n")
        daemon = Daemon("--api-key-file", path)
        asked = {"model": "tiny", "prompt": "a", "max_tokens": 2}
        with daemon.client("first-key") as first, daemon.client("second-key") as second:
            first.completions.create(**asked)
            with self.assertRaises(openai.AuthenticationError):
                second.completions.create(**asked)
            with self.assertRaises(urllib.error.HTTPError):
                daemon.get("/metrics")
            daemon.get("/health")
            write("broken line of a file second-key\n")
            daemon.process.send_signal(signal.SIGHUP)
            write("second-key\n")
            daemon.process.send_signal(signal.SIGHUP)
            while True:
                try:
                    second.completions.create(**asked)
                    break
                except openai.AuthenticationError:
                    pass
            with self.assertRaises(openai.AuthenticationError):
                first.completions.create(**asked)
        self.assertEqual(daemon.stop(), 0)
        self.assertNotIn("first-key", "".join(daemon.log))
        self.assertNotIn("second-key", "".join(daemon.log))


def rows():
    with open(os.path.join(SOURCE, "tests/data/lm_eval/counting.jsonl"), encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def ids_of(text):
    return [FIRST_BYTE + byte for byte in text.encode()]


def single(value):
    """The 32-bit number that was printed, however many digits it was printed with."""
    return struct.unpack("f", struct.pack("f", value))[0]


class LmEvalTest(unittest.TestCase):
    """What lm-eval asks and reads. lm-eval itself brings most of a gigabyte of packages, so it is run only if it is there."""

    def setUp(self):
        self.asked = [(ids_of(row["question"]), ids_of(choice)) for row in rows() for choice in row["choices"]]
        self.assertEqual(len(rows()), 200)

    def offline(self):
        requests = os.path.join(WORK.name, "requests.jsonl")
        with open(requests, "w", encoding="utf-8") as out:
            for i, (context, continuation) in enumerate(self.asked):
                out.write(json.dumps({"id": str(i), "prompt_ids": context + continuation, "max_tokens": 1, "temperature": 0,
                                      "prompt_logprobs": 0}) + "\n")
        done = subprocess.run([OFFLINE, "--model", MODEL, "--tokenizer", TOKENIZER, "--device", "cpu", "--threads", "1", "--requests", requests, "--out", "-"],
                              check=True, capture_output=True, text=True)
        scores = [0.0] * len(self.asked)
        for line in done.stdout.splitlines():
            result = json.loads(line)
            context, continuation = self.asked[int(result["id"])]
            positions = result["prompt_logprobs"][len(context):]
            scores[int(result["id"])] = sum(single(dict(map(tuple, entries))[token])
                                            for entries, token in zip(positions, continuation, strict=True))
        return scores

    def online(self, url, batch):
        scores = []
        for begin in range(0, len(self.asked), batch):
            part = self.asked[begin:begin + batch]
            body = {"model": "tiny", "prompt": [context + continuation for context, continuation in part], "temperature": 0,
                    "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
            request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as reply:
                choices = sorted(json.load(reply)["choices"], key=lambda choice: choice["index"])
            for (context, _), choice in zip(part, choices, strict=True):
                values = choice["logprobs"]["token_logprobs"]
                self.assertIsNone(values[0])
                self.assertEqual(len(values), len(choice["logprobs"]["top_logprobs"]))
                scores.append(sum(map(single, values[len(context):-1])))
        return scores

    def test_scores_are_those_of_quire_offline_in_any_batch(self):
        wanted = self.offline()
        daemon = Daemon()
        for batch in (1, 16):
            got = self.online(daemon.url, batch)
            self.assertEqual(len(got), len(wanted))
            self.assertLess(max(abs(a - b) for a, b in zip(got, wanted)), 1e-6, f"batch {batch}")
            self.assertEqual(self.accuracy(got), self.accuracy(wanted))
        self.assertEqual(daemon.stop(), 0)

    @unittest.skipUnless(os.path.exists(LM_EVAL), "no lm-eval in build/lm_eval")
    def test_lm_eval_itself_finds_the_scores_of_quire_offline(self):
        wanted = self.offline()
        daemon = Daemon()
        for batch in (1, 16):
            out = os.path.join(WORK.name, f"lm_eval_{batch}")
            model = f"model=tiny,base_url={daemon.url}/v1/completions,tokenizer={TOKENIZER},max_length=512,max_retries=1"
            subprocess.run([LM_EVAL, "--model", "local-completions", "--model_args", model, "--tasks", "counting", "--include_path",
                            "tests/data/lm_eval", "--batch_size", str(batch), "--output_path", out, "--log_samples"], cwd=SOURCE,
                           check=True, capture_output=True, env={**os.environ, "HF_HUB_OFFLINE": "1", "OPENAI_API_KEY": "none"})
            with open(*glob.glob(out + "/**/samples_counting_*.jsonl", recursive=True), encoding="utf-8") as lines:
                samples = sorted(map(json.loads, lines), key=lambda sample: sample["doc_id"])
            got = [float(choice[0][0]) for sample in samples for choice in sample["resps"]]
            self.assertEqual(len(got), len(wanted))
            self.assertLess(max(abs(a - b) for a, b in zip(got, wanted)), 1e-6, f"batch {batch}")
            with open(*glob.glob(out + "/**/results_*.json", recursive=True), encoding="utf-8") as file:
                self.assertEqual(json.load(file)["results"]["counting"]["acc,none"], self.accuracy(wanted))
        self.assertEqual(daemon.stop(), 0)

    @staticmethod
    def accuracy(scores):
        right, at = 0, 0
        for row in rows():
            mine = scores[at:at + len(row["choices"])]
            at += len(mine)
            right += mine.index(max(mine)) == row["answer"]
        return right / len(rows())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
