#!/usr/bin/env python3
"""Each rule of rules.py against a small tree that obeys and one with a planted violation."""

import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import rules  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
GOOD = {
    "README.md": "text\n",
    "model/README.md": "text\n",
    "model/a.h": '#pragma once\n\n#include <vector>\n\n#include "absl/status/status.h"\n#include "kernels/b.h"\n',
    "kernels/README.md": "text\n",
    "kernels/b.h": "#pragma once\n",
    "tests/README.md": "text\n",
    "tests/t.cc": '#include "model/a.h"\n',
}


class RulesTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        for path, text in GOOD.items():
            self.write(path, text)

    def write(self, path, text):
        full = os.path.join(self.folder.name, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)

    def findings(self, rule):
        return [str(f) for f in rules.RULES[rule](rules.Tree(self.folder.name))]

    def expect(self, rule, path, line, part):
        """Exactly one finding, at that place, that says `part`."""
        found = self.findings(rule)
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(f"{path}:{line}: "), found)
        self.assertIn(part, found[0])

    def test_the_good_tree_has_no_findings(self):
        for rule in rules.RULES:
            try:
                self.assertEqual(self.findings(rule), [], rule)
            except rules.Skipped as reason:
                print(f"{rule} not tried: {reason}")

    # Include direction: each line of the table of layers.

    def plant_include(self, path, target, allowed):
        if not os.path.exists(os.path.join(self.folder.name, target)):
            self.write(target, "#pragma once\n")
        self.write(path, f'\n#include "{target}"\n')
        if allowed:
            self.assertEqual(self.findings("include_direction"), [], (path, target))
        else:
            self.expect("include_direction", path, 2, target)
        os.remove(os.path.join(self.folder.name, path))

    def test_forbidden_edges(self):
        for path, target in [
            ("kernels/base/x.cc", "kernels/ops.h"), ("kernels/cpu/x.cc", "kernels/cuda/y.h"),
            ("kernels/cuda/x.cu", "kernels/cpu/y.h"), ("kernels/x.cc", "model/a.h"),
            ("block_manager/x.cc", "scheduler/request.h"), ("block_manager/x.cc", "kernels/b.h"),
            ("model/x.cc", "scheduler/request.h"), ("model/x.cc", "block_manager/block.h"),
            ("model/x.cc", "kernels/cpu/y.h"), ("scheduler/scheduler.cc", "model/config.h"),
            ("scheduler/scheduler.cc", "server/frontend/f.h"), ("scheduler/engine.cc", "server/frontend/f.h"),
            ("server/frontend/x.cc", "block_manager/block.h"), ("server/frontend/x.cc", "scheduler/scheduler.h"),
            ("server/frontend/x.cc", "server/grpc/g.h"), ("server/grpc/x.cc", "scheduler/engine.h"),
            ("server/cli/x.cc", "scheduler/engine.h"), ("server/offline_main.cc", "server/grpc/g.h"),
            ("tests/block_manager/x.cc", "scheduler/request.h"),
        ]:
            with self.subTest(path=path, target=target):
                self.plant_include(path, target, allowed=False)

    def test_allowed_edges(self):
        for path, target in [
            ("kernels/base/x.cc", "kernels/base/y.h"), ("kernels/cpu/x.cc", "kernels/ops.h"),
            ("block_manager/x.cc", "kernels/base/y.h"), ("model/x.cc", "kernels/ops.h"),
            ("scheduler/engine.cc", "model/config.h"), ("scheduler/scheduler.cc", "block_manager/block.h"),
            ("server/frontend/x.cc", "scheduler/engine.h"), ("server/grpc/x.cc", "server/frontend/f.h"),
            ("server/main.cc", "server/grpc/g.h"), ("tests/server/x.cc", "scheduler/engine.h"),
        ]:
            with self.subTest(path=path, target=target):
                self.plant_include(path, target, allowed=True)

    def test_wire_headers_only_where_the_wire_is(self):
        for include in ('"quire/v1/generation.pb.h"', "<grpcpp/grpcpp.h>", '"quire/v1/generation.grpc.pb.h"'):
            for path in ("server/frontend/x.cc", "server/offline_main.cc", "scheduler/engine.cc", "tests/model/x.cc"):
                with self.subTest(path=path, include=include):
                    self.write(path, f"#include {include}\n")
                    self.expect("include_direction", path, 1, "wire header")
                    os.remove(os.path.join(self.folder.name, path))
            for path in ("server/grpc/x.cc", "server/cli/x.cc", "server/main.cc", "tests/server/x.cc"):
                with self.subTest(path=path, include=include):
                    self.write(path, f"#include {include}\n")
                    self.assertEqual(self.findings("include_direction"), [])

    def test_a_file_of_no_layer(self):
        self.write("elsewhere/x.cc", "")
        self.expect("include_direction", "elsewhere/x.cc", 1, "no layer")

    # The other rules.

    def test_symbols_and_their_headers(self):
        self.write("model/c.h", '#pragma once\n#include "model/a.h"\nstd::vector<std::string> F(std::vector<int> x);\n')
        self.expect("symbol_includes", "model/c.h", 3, "std::string needs <string>")
        self.write("model/c.h", '#pragma once\n#include "model/a.h"\nabsl::Status F(std::vector<int> x); // std::string\n')
        self.assertEqual(self.findings("symbol_includes"), [])
        self.write("model/c.cc", "uint8_t x;\n")
        self.expect("symbol_includes", "model/c.cc", 1, "std::uint8_t needs <cstdint>")

    def test_parent_include(self):
        self.write("model/x.cc", '#include "../kernels/b.h"\n')
        self.expect("root_relative_includes", "model/x.cc", 1, "leaves its folder")

    def test_folder_relative_include(self):
        self.write("model/x.cc", '\n#include "a.h"\n')
        self.expect("root_relative_includes", "model/x.cc", 2, "no path from the root")

    def test_own_header_behind_another(self):
        self.write("model/a.cc", '#include <vector>\n\n#include "model/a.h"\n')
        self.expect("own_header_first", "model/a.cc", 1, "vector before model/a.h")
        self.write("model/a.cc", "int f();\n")
        self.expect("own_header_first", "model/a.cc", 1, "nothing before model/a.h")
        self.write("model/a.cc", '#include "model/a.h"\n\n#include <vector>\n')
        self.assertEqual(self.findings("own_header_first"), [])

    def test_folder_without_readme(self):
        self.write("model/tokenizer/x.cc", "")
        self.expect("readme_in_every_folder", "model/tokenizer/README.md", 1, "none")

    def test_top_folder_without_readme(self):
        self.write("deploy/Dockerfile", "")
        self.expect("readme_in_every_folder", "deploy/README.md", 1, "none")

    def test_long_file(self):
        self.write("model/x.cc", "\n" * 600)
        self.write("tests/y.cc", "\n" * 1000)
        self.assertEqual(self.findings("file_length"), [])
        self.write("model/x.cc", "\n" * 601)
        self.expect("file_length", "model/x.cc", 601, "601 lines")
        self.write("model/x.cc", "")
        self.write("tests/y.cc", "\n" * 1001)
        self.expect("file_length", "tests/y.cc", 1001, "1001 lines")

    def test_other_characters(self):
        self.write("model/README.md", "a\n\u2192\n")
        self.expect("ascii_only", "model/README.md", 2, "not ASCII")

    def test_machine_path(self):
        for path in ("/".join(["", "work", "x"]), "/".join(["", "root", "x"])):
            self.write("model/README.md", f"see `{path}`\n")
            self.expect("machine_paths", "model/README.md", 1, path)
        self.write("model/README.md", "see a/root/x and https://example.org/root/x\n")
        self.assertEqual(self.findings("machine_paths"), [])

    def test_banned_symbols(self):
        for path, code in [
            ("model/x.cc", "std::cout << 1;"), ("model/x.cc", "int r = rand();"), ("model/x.cc", "srand(1);"),
            ("model/x.cc", "throw 1;"), ("tests/x.cc", "std::this_thread::sleep_for(x);"), ("tests/x.cc", "sleep(1);"),
            ("tests/x.cc", "absl::SleepFor(x);"), ("tests/x.cc", "TEST(A, DISABLED_B) {}"),
            ("tests/x.cc", "std::random_device d;"), ("model/x.cc", "// TO" + "DO: later"),
        ]:
            with self.subTest(code=code):
                self.write(path, "\n" + code + "\n")
                self.expect("banned_symbols", path, 2, "")
                self.write(path, "")

    def test_banned_words_in_comments_and_literals_are_none(self):
        self.write("tests/x.cc", '// std::cout, rand()\n/* sleep(1)\n throw */ const char* s = "rand() \\" throw";\nbrand();\n')
        self.assertEqual(self.findings("banned_symbols"), [])

    def test_code_behind_a_literal_is_seen(self):
        self.write("model/x.cc", "const char* a = R\"(\n\" // )\"; char q = '\"'; int n = 1'000; throw 1;\n")
        self.expect("banned_symbols", "model/x.cc", 2, "exceptions")

    def test_missing_pragma_once(self):
        self.write("model/x.h", "int f();\n")
        self.expect("pragma_once", "model/x.h", 1, "pragma once")

    def test_unformatted_code(self):
        self.write("model/x.cc", "int  f( ) ;\n")
        try:
            self.expect("clang_format", "model/x.cc", 1, "not formatted")
        except rules.Skipped as reason:
            self.skipTest(str(reason))

    def test_build_folders_and_test_data_are_not_read(self):
        for path in ("build/release/x.cc", "tests/data/x.md", ".git/x.md"):
            self.write(path, "\u2192\n")
        self.assertEqual(self.findings("ascii_only"), [])

    # The program.

    def run_program(self, *arguments):
        return subprocess.run([sys.executable, os.path.join(HERE, "check_includes"), *arguments], capture_output=True,
                              text=True, check=False)

    def test_exit_codes(self):
        self.assertEqual(self.run_program(self.folder.name, "pragma_once").returncode, 0)
        self.write("model/x.h", "")
        result = self.run_program(self.folder.name, "pragma_once")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stdout, "model/x.h:1: no #pragma once [pragma_once]\n")
        self.assertEqual(self.run_program().returncode, 64)
        self.assertEqual(self.run_program(self.folder.name, "nonsense").returncode, 64)


class HeaderTest(unittest.TestCase):
    """The compiler call of all_headers fails for a header that needs another one before it."""

    def compile(self, header):
        compiler = os.environ.get("CXX", "c++")
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "header.h"), "w", encoding="ascii") as file:
                file.write("#pragma once\n" + header)
            source = os.path.join(folder, "header.cc")
            with open(source, "w", encoding="ascii") as file:
                file.write('#include "header.h"  // IWYU pragma: keep\n')
            return subprocess.run([compiler, "-std=c++20", "-I", folder, "-fsyntax-only", source], capture_output=True,
                                  check=False).returncode

    def test_headers(self):
        self.assertEqual(self.compile("#include <string>\nstd::string f();\n"), 0)
        self.assertNotEqual(self.compile("std::string f();\n"), 0)


if __name__ == "__main__":
    unittest.main()
