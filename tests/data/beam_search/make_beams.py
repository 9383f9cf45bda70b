#!/usr/bin/env python3
"""Writes tiny.jsonl: what Hugging Face's beam search finds with the models of ref/tiny.

    python3 -m venv hf && hf/bin/pip install torch==2.15.0 transformers==5.24.0
    hf/bin/python tests/data/beam_search/make_beams.py tests/data/ref/tiny > tests/data/beam_search/tiny.jsonl

`generate(num_beams=4)` on the CPU, eager attention, by models in float64, without the penalties of their
generation_config.json, which Quire's search leaves out, too. A search is kept if models in float32 find the same
hypotheses: others hang on rounding. Fields of a line:

  model, input_ids, max_tokens, min_tokens, length_penalty, early_stopping (false, true or "never"), stop_token_ids
  outputs  the n best, best first, each up to and with its ending id
  scores   of these
"""

import json
import pathlib
import random
import sys

import torch
from transformers import AutoModelForCausalLM

NUM_BEAMS = 4
VOCAB = 320
FIRST_ID = 4
PER_MODEL = 8


def make_search(generator, index):
    length = generator.choice([1, 5, 16, 33, 60])
    ends = sorted(generator.sample(range(FIRST_ID, VOCAB), generator.choice([1, 8, 24])))
    return {"input_ids": [generator.randrange(FIRST_ID, VOCAB) for _ in range(length)],
            "n": 1 + index % NUM_BEAMS, "max_tokens": generator.randrange(6, 25), "min_tokens": generator.choice([0, 0, 3]),
            "length_penalty": generator.choice([1.0, 1.0, 0.0, 2.0, -0.5]),
            "early_stopping": [False, True, "never"][index % 3], "stop_token_ids": ends}


def run(model, search):
    prompt = torch.tensor([search["input_ids"]])
    found = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), do_sample=False, repetition_penalty=1.0, num_beams=NUM_BEAMS,
        num_return_sequences=search["n"],
        max_new_tokens=search["max_tokens"], min_new_tokens=search["min_tokens"] or None,
        length_penalty=search["length_penalty"], early_stopping=search["early_stopping"],
        eos_token_id=search["stop_token_ids"], pad_token_id=0, return_dict_in_generate=True, output_scores=True)
    outputs = []
    for row in found.sequences[:, prompt.shape[1]:].tolist():
        end = next((i for i, token in enumerate(row) if token in search["stop_token_ids"]), len(row) - 1)
        outputs.append(row[:end + 1])
    return outputs, found.sequences_scores.tolist()


def main():
    torch.manual_seed(0)
    for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
        if not folder.is_dir():
            continue
        models = [AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
                  for dtype in (torch.float64, torch.float32)]
        generator = random.Random(folder.name)
        for index in range(PER_MODEL):
            search = make_search(generator, index)
            (outputs, scores), (single, _) = (run(model, search) for model in models)
            if outputs != single:
                continue
            del search["n"]
            print(json.dumps({"model": folder.name, **search, "outputs": outputs,
                              "scores": [round(score, 6) for score in scores]}))


if __name__ == "__main__":
    main()
