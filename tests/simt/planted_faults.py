#!/usr/bin/env python3
"""Plants faults in the current kernel sources and expects the tests to find each.

usage: planted_faults.py BUILD_FOLDER [--only NAME] [--some COUNT] [--check]

Each entry of planted_faults.json replaces one piece of a file of kernels/cuda, in a copy; the kernel file that holds or
includes it is compiled again as one of the builds has it, linked with the rest of that test, and run. A fault is found
if the test fails; the first one is also built without its fault, and must pass. A piece that is not there exactly once is an error: the fault has to be rewritten with the source.

--check  only looks whether every fault still applies
--some   that many of them, others on each day (a day of the year is a place to begin)
Exits 0 if all were found, 1 if not, 77 without what it needs (the builds of tests/simt)."""

import datetime
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
EVIDENCE = re.compile(r"\[[a-z0-9.-]+\] .*|: Failure.*|AddressSanitizer.*|runtime error.*|terminate called.*")
ROOT = os.path.dirname(os.path.dirname(HERE))


def read_faults():
    with open(os.path.join(HERE, "planted_faults.json"), encoding="utf-8") as file:
        return json.load(file)


def mutated(fault):
    """The text of the file with the fault in it."""
    with open(os.path.join(ROOT, fault["file"]), encoding="utf-8") as file:
        text = file.read()
    if text.count(fault["find"]) != 1:
        raise ValueError(f"{fault['name']}: its text occurs {text.count(fault['find'])} times in {fault['file']}")
    return text.replace(fault["find"], fault["replace"])


class Builder:
    """Compiles and links with the commands of a build folder."""

    def __init__(self, folder):
        self.folder = os.path.abspath(folder)

    def commands(self, target):
        result = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", "-s", target], capture_output=True, text=True,
                                check=False)
        return result.stdout.strip().split("\n")[-1] if result.returncode == 0 else ""

    def object_of(self, stem, kind):
        return next((line for line in subprocess.run(
            ["ninja", "-C", self.folder, "-t", "targets", "all"], capture_output=True, text=True, check=True).stdout.split("\n")
            if f"simt_kernel_{stem}_{kind}.dir/" in line and ".cu.o:" in line), "").split(":")[0]

    def run(self, command, timeout=600, environment=None):
        return subprocess.run(command, cwd=self.folder, shell=True, capture_output=True, text=True, timeout=timeout, check=False,
                              env={**os.environ, **(environment or {})})

    def has(self, test, kind):
        return os.path.exists(os.path.join(self.folder, "bin", f"{test}_{kind}"))

    def program(self, fault, kind, overlay, scratch):
        """Builds the test with the fault; None with the compiler's words if that fails."""
        target = self.object_of(fault["kernel"], kind)
        words = shlex.split(self.commands(target))
        words = words[next(i for i, w in enumerate(words) if w.endswith(("c++", "g++"))):]  # without ccache
        source = os.path.join(ROOT, fault["file"])
        words = [os.path.join(overlay, fault["file"]) if w == source else w for w in words]
        mutant = os.path.join(scratch, "mutant.o")
        words[words.index("-o") + 1] = mutant
        for flag in ("-MF", "-MT"):
            words[words.index(flag) + 1] = mutant + ".d"
        words.insert(1, "-I" + overlay)
        words.append("-Wno-error")  # a fault may leave something unused
        compiled = self.run(shlex.join(words))
        if compiled.returncode != 0:
            return None, compiled.stderr
        program = os.path.join(scratch, "program")
        link = self.commands(f"bin/{fault['test']}_{kind}").replace(target, mutant)
        link = link.replace(f"-o bin/{fault['test']}_{kind}", f"-o {program}")
        linked = self.run(link)
        return (program, "") if linked.returncode == 0 else (None, linked.stderr + linked.stdout)

    def ptx(self, fault, overlay, scratch):
        """nvcc's PTX of the kernel with the fault, among the PTX files of the test."""
        nvcc = os.path.join(self.folder, "tests/simt/nvcc", fault["kernel"])
        command = shlex.split(self.commands(os.path.relpath(os.path.join(nvcc, fault["kernel"] + ".o"), self.folder)))
        at = next(i for i, w in enumerate(command) if w.endswith("nvcc.sh"))
        compiler, source, arch = command[at + 1], command[at + 2], command[at + 5]
        if source == os.path.join(ROOT, fault["file"]):
            source = os.path.join(overlay, fault["file"])
        mutant = os.path.join(scratch, "mutant.ptx")
        made = self.run(shlex.join([compiler, "-std=c++20", "-O3", f"-arch=compute_{arch}", "-I" + overlay, "-I" + ROOT, "-ptx", source,
                                    "-o", mutant]))
        if made.returncode != 0:
            return None, made.stderr
        stems = [w.split("simt_kernel_")[1].split("_plain.dir")[0] for w in self.commands(f"bin/{fault['test']}_plain").split()
                 if "simt_kernel_" in w]
        paths = [mutant if s == fault["kernel"] else os.path.join(self.folder, "tests/simt/nvcc", s, s + ".ptx") for s in stems]
        return ":".join(paths), ""

    def find(self, fault, kind, text):
        """What the test of that build says against `text` as the fault's file; empty if it passes."""
        with tempfile.TemporaryDirectory() as scratch:
            overlay = os.path.join(scratch, "overlay")
            path = os.path.join(overlay, fault["file"])
            os.makedirs(os.path.dirname(path))
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            environment = {"ASAN_OPTIONS": "detect_leaks=0"}
            if kind == "ptx":
                paths, words = self.ptx(fault, overlay, scratch)
                program = os.path.join(self.folder, "bin", fault["test"] + "_plain")
                environment["QUIRE_SIMT_PTX"] = paths or ""
                built = paths is not None
            else:
                program, words = self.program(fault, kind, overlay, scratch)
                built = program is not None
            if not built:
                raise ValueError(f"{fault['name']}: does not compile\n{words[:2000]}")
            try:
                run = self.run(f"{program} --gtest_brief=1 --gtest_filter={shlex.quote(fault.get('filter', '*'))}", 300, environment)
            except subprocess.TimeoutExpired:
                return "it does not end"
            said = EVIDENCE.search(run.stdout + run.stderr)
            if run.returncode != 0 and said is None:
                raise ValueError(f"{fault['name']}: exit {run.returncode} without a reason\n{(run.stdout + run.stderr)[-2000:]}")
            return said.group(0)[:100] if run.returncode != 0 else ""


def main(arguments):
    if not arguments or arguments[0].startswith("--"):
        print(__doc__, file=sys.stderr)
        return 64
    faults = read_faults()
    for fault in faults:
        mutated(fault)
    print(f"{len(faults)} faults apply to the sources")
    if "--check" in arguments:
        return 0
    if "--only" in arguments:
        faults = [f for f in faults if f["name"] == arguments[arguments.index("--only") + 1]]
    if "--some" in arguments:
        count = int(arguments[arguments.index("--some") + 1])
        first = datetime.date.today().timetuple().tm_yday * count
        faults = [faults[(first + i) % len(faults)] for i in range(min(count, len(faults)))]
    builder = Builder(arguments[0])
    missed = []
    controlled = False
    for fault in faults:
        kind = fault["build"]
        if not builder.has(fault["test"], "plain" if kind == "ptx" else kind):
            print(f"skipped: {fault['test']} is not built")
            return 77
        if not controlled:
            with open(os.path.join(ROOT, fault["file"]), encoding="utf-8") as file:
                said = builder.find(fault, kind, file.read())
            if said:
                raise ValueError(f"the test fails without a fault: {said}")
            controlled = True
        found = builder.find(fault, kind, mutated(fault))
        print(f"{'found' if found else 'MISSED'} by {kind}: {fault['name']}: {found}", flush=True)
        if not found:
            missed.append(fault["name"])
    return 1 if missed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as error:
        print(error)
        sys.exit(1)
