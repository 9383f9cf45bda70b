#!/usr/bin/env python3
"""Whole templates with the answers of jinja2 (3.1.6; set up as transformers does) to the same conversations, as JSON lines.

    pip install jinja2==3.1.6
    tests/model/chat/render_conversations.py ../shared/ref/chat_templates.jsonl > tests/data/chat/conversations.jsonl
    tests/model/chat/render_conversations.py --folder TEMPLATES > /tmp/cases.jsonl
    QUIRE_CHAT_CASES=/tmp/cases.jsonl build/core/bin/quire_chat_test --gtest_filter=*Environment*

The first form leaves the templates out: they stand in the reference data under the same names. The second takes
*.jinja files, of models say, and writes cases with their templates.
"""
import argparse
import json
import pathlib
import sys

import generate_cases

# Those of models, or shaped like them; the others of the reference data try single features.
TEMPLATES = """real_gemma3 real_qwen3 real_llama3_1 real_smollm2 chatml chatml_default_system llama2_inst llama31_tools
    mistral_tools qwen_tools_reasoning gemma_first zephyr vicuna alpaca phi3 command_rag functions_typescript deepseek_like
    oss_channels granite_roles arithmetic_roles""".split()

TOOL = {"type": "function", "function": {"name": "weather", "description": "What it's like \u00e0 \"Nice\"", "parameters": {
    "type": "object", "required": ["place"], "properties": {
        "place": {"type": "string", "description": "A town"}, "days": {"type": "integer", "enum": [1, 3]}}}}}


def call(name, arguments, number):
    return {"id": f"call{number:05d}", "type": "function", "function": {"name": name, "arguments": arguments}}


USER = {"role": "user", "content": "What is 2 + 2?"}
SYSTEM = {"role": "system", "content": "Be brief."}
CONVERSATIONS = {
    "user": {"messages": [USER]},
    "turns": {"messages": [SYSTEM, USER, {"role": "assistant", "content": "4"}, {"role": "user", "content": "And <b>&\"3\"</b>?"}]},
    "whole": {"messages": [USER, {"role": "assistant", "content": "It is 4."}], "add_generation_prompt": False},
    "spaces": {"messages": [{"role": "user", "content": "  \n\u00e9\u4f60 \U0001f600\t "}, {"role": "assistant", "content": "\n a  "},
                            {"role": "user", "content": "'x' {{ y }} {% z %}"}]},
    "calls": {"messages": [SYSTEM, USER, {"role": "assistant", "content": "", "tool_calls": [
        call("weather", {"place": "Nice", "days": 3}, 1)]}, {"role": "tool", "tool_call_id": "call00001", "name": "weather",
                                                            "content": "{\"sun\": true}"}], "tools": [TOOL]},
    "parallel": {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": [
        call("weather", {"place": "\u00e9"}, 1), call("weather", {"place": "b", "more": [1.5, None, {"k": False}]}, 2)]},
        {"role": "tool", "tool_call_id": "call00001", "name": "weather", "content": "1"},
        {"role": "tool", "tool_call_id": "call00002", "name": "weather", "content": "2"},
        {"role": "assistant", "content": "Both."}, USER], "tools": [TOOL]},
    "reasoning": {"messages": [USER, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nFour.", "reasoning_content": "hm"},
                               {"role": "user", "content": "Sure?"}]},
    "roles": {"messages": [{"role": "assistant", "content": "Hi"}, SYSTEM, USER, USER]},
}
WHOLE = {"tools": None, "documents": None, "add_generation_prompt": True}


def answer(env, template, context):
    """The text, or what was raised, or None for another error."""
    try:
        return {"rendered": env.from_string(template).render(**json.loads(json.dumps(context)))}
    except generate_cases.Raised as error:
        return {"error": str(error), "error_kind": "raise_exception"}
    except Exception as error:  # whatever Python raises: only that it fails is compared
        return {"error": f"{type(error).__name__}: {error}", "error_kind": "other"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reference", nargs="?", help="chat_templates.jsonl")
    parser.add_argument("--folder", type=pathlib.Path)
    options = parser.parse_args()
    env = generate_cases.environment()
    now = generate_cases.NOW.isoformat()
    contexts = {name: {**WHOLE, **talk} for name, talk in CONVERSATIONS.items()}
    if options.folder:
        tokens = {"bos_token": "<s>", "eos_token": "</s>"}
        for file in sorted(options.folder.glob("*.jinja")):
            template = file.read_text(encoding="utf-8")
            for name, context in contexts.items():
                context = {**context, **tokens}
                print(json.dumps({"name": f"{file.stem}/{name}", "template": template, "context": context, "now": now,
                                  **answer(env, template, context)}))
        return
    if not options.reference:
        sys.exit("give chat_templates.jsonl or --folder")
    print(json.dumps({"now": now, "conversations": contexts}))
    known = {}
    with open(options.reference, encoding="utf-8") as lines:
        for line in lines.read().rstrip("\n").split("\n"):
            case = json.loads(line)
            known.setdefault(case["name"].split("/")[0], case)
    for name in TEMPLATES:
        case = known[name]
        tokens = {key: value for key, value in case["context"].items() if key.endswith("_token")}
        for talk, context in contexts.items():
            print(json.dumps({"name": f"{name}/{talk}", **tokens, **answer(env, case["template"], {**context, **tokens})}))


if __name__ == "__main__":
    main()
