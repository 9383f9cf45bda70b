"""The rules of the tree. Each is a function of a Tree and yields Findings; check_includes runs them, self_test.py plants a
violation of each. Standard library only."""

import dataclasses
import fnmatch
import json
import os
import re
import shutil
import subprocess

CPP_SUFFIXES = (".h", ".cc", ".cu", ".cuh")
TEXT_SUFFIXES = CPP_SUFFIXES + (".proto", ".py", ".md", ".txt", ".cmake", ".json", ".sh", ".yaml", ".yml", ".toml", ".service")
MAX_LINES, MAX_TEST_LINES = 600, 1000
# Quoted includes of other people's headers start so.
THIRD_PARTY = ("absl/", "gtest/", "gmock/", "nlohmann/", "CLI/", "spdlog/", "google/", "grpc/", "grpcpp/", "benchmark/",
               "openssl/", "boost/", "prometheus/", "utf8proc.h", "xxhash.h", "pcre2.h")


@dataclasses.dataclass(frozen=True)
class Finding:
    path: str
    line: int
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.message}"


class Tree:
    """The text files under a root, build folders, dot folders and test data left out."""

    def __init__(self, root):
        self.root = root
        self.paths = []
        self._text = {}
        for folder, names, files in os.walk(root):
            relative = os.path.relpath(folder, root)
            names[:] = sorted(n for n in names if not n.startswith(".") and n not in ("build", "__pycache__")
                              and os.path.join(relative, n) != os.path.join("tests", "data"))
            for name in sorted(files):
                path = os.path.normpath(os.path.join(relative, name))
                if not name.startswith(".") and (name.endswith(TEXT_SUFFIXES) or "." not in name):
                    self.paths.append(path)

    def text(self, path):
        if path not in self._text:
            with open(os.path.join(self.root, path), "rb") as file:
                self._text[path] = file.read().decode("utf-8", "surrogateescape")
        return self._text[path]

    def lines(self, path):
        return enumerate(self.text(path).split("\n"), start=1)

    def code_lines(self, path):
        """Lines without comments and the contents of literals."""
        return enumerate(strip_cpp(self.text(path)).split("\n"), start=1)

    def cpp(self):
        return [p for p in self.paths if p.endswith(CPP_SUFFIXES)]

    def exists(self, path):
        return os.path.exists(os.path.join(self.root, path))


_TOKEN = re.compile(r'R"([^(\s]{0,16})\((?:.|\n)*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![\w])\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*(?:.|\n)*?\*/')


def strip_cpp(text):
    """C++ text with comments and literals replaced by blanks; line numbers stay."""
    return _TOKEN.sub(lambda match: " " + "\n" * match.group(0).count("\n"), text)


_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def includes(tree, path):
    for number, line in tree.lines(path):
        match = _INCLUDE.match(line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def matches(path, patterns):
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def include_direction(tree, layers=None):
    """Every include of ours is allowed by include_rules.json; generated headers and gRPC only where the layer may."""
    if layers is None:
        with open(os.path.join(os.path.dirname(__file__), "include_rules.json"), encoding="utf-8") as file:
            layers = json.load(file)["layers"]
    for path in tree.cpp():
        layer = next((l for l in layers if matches(path, l["files"])), None)
        if layer is None:
            yield Finding(path, 1, "belongs to no layer of tests/lint/include_rules.json")
            continue
        for number, _, target in includes(tree, path):
            if target.endswith(".pb.h") or target.startswith(("grpc/", "grpcpp/", "google/protobuf/")):
                if not layer.get("wire", False):
                    yield Finding(path, number, f"layer {layer['name']} may not include wire header {target}")
                continue
            if not tree.exists(target) or "/" not in target:
                continue  # the standard library's, the system's, or a third party's
            allowed = matches(target, layer["files"] + layer["may_include"])
            if not allowed or matches(target, layer.get("never", [])):
                yield Finding(path, number, f"layer {layer['name']} may not include {target}")


def root_relative_includes(tree):
    """Quoted includes name a file from the root, a generated one or a third party's; never ../ or the own folder."""
    for path in tree.cpp():
        for number, quoted, target in includes(tree, path):
            if ".." in target.split("/"):
                yield Finding(path, number, f"include {target} leaves its folder: write the path from the root")
            elif quoted and not target.endswith(".pb.h") and not target.startswith(THIRD_PARTY) and not tree.exists(target):
                yield Finding(path, number, f"include {target} is no path from the root")


def own_header_first(tree):
    """A source file whose header has its name includes that first, so that what the header lacks shows there."""
    for path in tree.cpp():
        own = os.path.splitext(path)[0] + ".h"
        if not path.endswith(".cc") or not tree.exists(own):
            continue
        number, _, target = next(includes(tree, path), (1, True, "nothing"))
        if target != own:
            yield Finding(path, number, f"includes {target} before {own}")


# A header of the value brings what the key names.
_BROUGHT_BY = {"utility": {"algorithm", "array", "functional", "map", "memory", "optional", "string", "string_view", "tuple", "vector",
                           "variant", "absl/status/statusor.h", "absl/types/span.h"},
               "ostream": {"fstream", "iomanip", "iostream", "sstream"}, "istream": {"fstream", "iostream", "sstream"},
               "cstddef": {"cstdlib", "cstring", "string", "string_view", "vector", "array"},
               "initializer_list": {"string", "vector", "map", "algorithm", "array"}, "string_view": {"string"},
               "absl/status/status.h": {"absl/status/statusor.h"}, "absl/strings/string_view.h": {"absl/strings/str_cat.h", "absl/status/status.h", "absl/status/statusor.h"},
               "cmath": {"cuda_fp16.h"}}


def symbol_includes(tree):
    """What a file uses of the standard library and of Abseil it includes, itself or by headers of ours: precompiled headers would
    hide that it does not. include_symbols.json says which header a name is of."""
    with open(os.path.join(os.path.dirname(__file__), "include_symbols.json"), encoding="utf-8") as file:
        symbols = json.load(file)
    header_of = {(space, name): header for space, headers in symbols.items() for header, names in headers.items()
                 for name in names.split()}
    included = {path: [target for _, _, target in includes(tree, path)] for path in tree.cpp()}
    use = re.compile(r"\b(std|absl)::(\w+)|(?<![\w:.>])(u?int(?:8|16|32|64)_t)\b")
    for path in tree.cpp():
        reached, todo = set(), [path]
        while todo:
            for target in included.get(todo.pop(), []):
                if target not in reached:
                    reached.add(target)
                    todo.append(target)
        for number, line in tree.code_lines(path):
            for space, name, integer in use.findall(line):
                header = header_of.get((space or "std", name or integer))
                if header and header not in reached and not _BROUGHT_BY.get(header, set()) & reached:
                    reached.add(header)
                    yield Finding(path, number, f"{space or 'std'}::{name or integer} needs <{header}>")


def readme_in_every_folder(tree):
    """Each top-level folder, and each other one outside tests/ that holds C++, has a README.md."""
    folders = {p.split("/")[0] for p in tree.paths if "/" in p}
    folders |= {os.path.dirname(p) for p in tree.cpp() if not p.startswith("tests/")}
    for folder in sorted(folders):
        if folder and not tree.exists(os.path.join(folder, "README.md")):
            yield Finding(folder + "/README.md", 1, "the folder has none")


def file_length(tree):
    """Source files stay short: 600 lines, tests 1000."""
    for path in tree.cpp() + [p for p in tree.paths if p.endswith(".py")]:
        limit = MAX_TEST_LINES if path.startswith("tests/") else MAX_LINES
        count = tree.text(path).count("\n")
        if count > limit and "generated" not in tree.text(path)[:400].lower():
            yield Finding(path, limit + 1, f"{count} lines; at most {limit}")


def ascii_only(tree):
    """No other characters in code and documents."""
    for path in tree.paths:
        for number, line in tree.lines(path):
            if not line.isascii():
                yield Finding(path, number, "not ASCII: " + ascii(line.strip()[:60]))


# Spelled in parts, so that this file passes its own rule.
_MACHINE_PATH = re.compile(r"(?<![\w.}/-])/(?:" + "wo" + "rk|ro" + r"ot)/")


def machine_paths(tree):
    """Nothing of the machine where the code was written."""
    for path in tree.paths:
        for number, line in tree.lines(path):
            if _MACHINE_PATH.search(line):
                yield Finding(path, number, "a path of one machine: " + line.strip()[:80])


# (what, pattern on code without comments and literals, pattern of files it holds for, exceptions)
_BANNED = [
    ("std::cout: write to the stream you are given", re.compile(r"\bstd::cout\b"), "*",
     ["server/cli/*", "server/config/*", "server/offline*", "server/main.cc", "scheduler/trace/replay_main.cc",
      "tests/*"]),
    ("rand(): use a seeded engine", re.compile(r"(?<![\w.>:])(?:std::)?s?rand\s*\("), "*", []),
    ("random_device: seeds are fixed in tests", re.compile(r"\brandom_device\b"), "tests/*", []),
    ("a sleep in a test: wait for the event", re.compile(r"\b(?:sleep_for|sleep_until|SleepFor|usleep|nanosleep)\b|(?<![\w.>])sleep\s*\("),
     "tests/*", []),
    ("a test switched off", re.compile(r"\bDISABLED_"), "tests/*", []),
    ("exceptions do not cross folders: return a Status", re.compile(r"\bthrow\b"), "*",
     ["server/cli/app.cc", "server/config/*", "model/chat/*", "tests/*"]),
]
_UNFINISHED = re.compile(r"\b(?:TO" + "DO|FIX" + "ME|XX" + r"X)\b")


def banned_symbols(tree):
    """std::cout outside programs, rand(), sleeping or switched-off tests, exceptions, unfinished work."""
    for path in tree.cpp():
        for what, pattern, where, exceptions in _BANNED:
            if not fnmatch.fnmatchcase(path, where) or matches(path, exceptions):
                continue
            for number, line in tree.code_lines(path):
                if pattern.search(line):
                    yield Finding(path, number, what)
        for number, line in tree.lines(path):
            if _UNFINISHED.search(line):
                yield Finding(path, number, "unfinished: " + line.strip()[:80])


def pragma_once(tree):
    """Every header starts with it."""
    for path in tree.cpp():
        if path.endswith((".h", ".cuh")) and "#pragma once" not in tree.text(path):
            yield Finding(path, 1, "no #pragma once")


class Skipped(Exception):
    """A rule cannot run here; the message says why."""


def clang_format(tree):
    """.clang-format holds. Only version 14 is asked: others lay out differently."""
    tool = shutil.which("clang-format-14") or shutil.which("clang-format")
    version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout if tool else ""
    if "version 14." not in version:
        raise Skipped("no clang-format 14")
    paths = tree.cpp()
    if not paths:
        return
    result = subprocess.run([tool, "--dry-run", *paths], cwd=tree.root, capture_output=True, text=True, check=False)
    seen = set()
    for line in result.stderr.split("\n"):
        match = re.match(r"(\S+?):(\d+):\d+: (?:warning|error): ", line)
        if match and match.group(1) not in seen:
            seen.add(match.group(1))
            yield Finding(match.group(1), int(match.group(2)), "not formatted: run clang-format -i")


RULES = {rule.__name__: rule for rule in (include_direction, root_relative_includes, own_header_first, symbol_includes, readme_in_every_folder, file_length,
                                         ascii_only, machine_paths, banned_symbols, pragma_once, clang_format)}
