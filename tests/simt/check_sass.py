#!/usr/bin/env python3
"""What nvcc made of the kernels, against tests/simt/sass_budget.json: registers, spills, stack, shared memory, and which
units of the chip the code uses. No GPU is asked.

usage: check_sass.py FOLDER [--record]     FOLDER: the nvcc folder of tests/simt in a build tree

--record writes what is there as the new budget; the required and forbidden opcodes of a kernel stay as they are."""

import json
import os
import re
import struct
import subprocess
import sys

BUDGET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sass_budget.json")
# The low 12 bits of an instruction name the operation (sm_70 and later, 16 bytes an instruction); found by compiling
# one-instruction probes for sm_80 and sm_90a.
OPCODES = {0x23c: "HMMA", 0x9f0: "HGMMA", 0x83b: "LDSM", 0xfae: "LDGSTS", 0x5b4: "UTMALDG", 0x983: "LDL", 0x387: "STL",
           0x981: "LDG", 0x986: "STG", 0x984: "LDS", 0x388: "STS", 0x988: "STS", 0xb1d: "BAR", 0xf89: "SHFL", 0x589: "SHFL",
           0x308: "MUFU"}
SIZED = {"LDG", "STG"}  # bits 73..75: 4 is 32 bits wide, 5 is 64, 6 is 128
WIDTHS = {4: ".32", 5: ".64", 6: ".128"}


def sections(data):
    """Names and contents of an ELF file's sections."""
    table, = struct.unpack_from("<Q", data, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * entry_size) for i in range(count)]
    names = headers[names_index][4]
    for header in headers:
        start = names + header[0]
        name = data[start:data.index(b"\0", start)].decode()
        yield name, data[header[4]:header[4] + header[5]] if header[1] != 8 else b""


def opcodes_of(code):
    """How often each known operation occurs, wide loads and stores by their width too."""
    counts = {}
    for at in range(0, len(code) - 15, 16):
        low, high = struct.unpack_from("<QQ", code, at)
        name = OPCODES.get(low & 0xFFF)
        if name is None:
            continue
        counts[name] = counts.get(name, 0) + 1
        if name in SIZED:
            sized = name + WIDTHS.get((high >> 9) & 7, ".other")
            counts[sized] = counts.get(sized, 0) + 1
    return counts


def demangle(names):
    result = subprocess.run(["c++filt", *names], capture_output=True, text=True, check=True).stdout.split("\n")
    # void quire::cuda::Kernel<64, (quire::cuda::KvStorage)1>(quire::cuda::Params) -> Kernel<64, 1>
    return {n: re.sub(r"\(quire::cuda::\w+\)", "", r).split("(")[0].replace("void ", "").split("::")[-1]
            for n, r in zip(names, result)}


def ptxas_of(text):
    """Mangled name -> figures, from `ptxas -v`."""
    kernels, current = {}, None
    for line in text.split("\n"):
        if match := re.search(r"Compiling entry function '(\w+)' for 'sm_(\w+)'", line):
            # Of several chips the oldest counts: its SASS is what was kept.
            current = kernels.setdefault(match.group(1), {}) if match.group(2) == "80" else None
        if current is None:
            continue
        if match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            current["stack"], current["spills"] = int(match.group(1)), int(match.group(2)) + int(match.group(3))
        if match := re.search(r"Used (\d+) registers", line):
            current["registers"] = int(match.group(1))
            shared = re.search(r"(\d+) bytes smem", line)
            current["shared"] = int(shared.group(1)) if shared else 0
    return kernels


def measure(folder):
    """Kernel -> figures and opcodes, of all kernels of kernels/cuda that were compiled."""
    found = {}
    for root, _, files in sorted(os.walk(folder)):
        for name in files:
            if not name.endswith(".ptxas"):
                continue
            stem = os.path.join(root, name[:-len(".ptxas")])
            with open(stem + ".ptxas", encoding="utf-8") as file:
                kernels = ptxas_of(file.read())
            with open(stem + ".cubin", "rb") as file:
                code = {n[6:]: c for n, c in sections(file.read()) if n.startswith(".text.")}
            names = demangle([n for n in kernels if "5quire4cuda" in n])
            for mangled, short in names.items():
                found[short] = {**kernels[mangled], "opcodes": opcodes_of(code[mangled])}
    return found


def compare(budget, found):
    """What breaks the budget, a line each."""
    for name, figures in sorted(found.items()):
        allowed = budget.get(name)
        if allowed is None:
            yield f"{name}: not in the budget: --record it"
            continue
        for what in ("registers", "shared", "stack", "spills"):
            if figures[what] > allowed[what]:
                yield f"{name}: {figures[what]} {what}, at most {allowed[what]}"
        for opcode in allowed.get("must", []):
            if opcode not in figures["opcodes"]:
                yield f"{name}: no {opcode}"
        for opcode in ("LDL", "STL"):
            if opcode in figures["opcodes"] and allowed["spills"] == 0 and allowed["stack"] == 0:
                yield f"{name}: local memory ({opcode})"


def requirements(name):
    """Opcodes that a kernel is not itself without."""
    if name.startswith("Paged"):
        eight_bit = name.endswith((", 2>", ", 3>"))
        return ["HMMA", "LDGSTS"] + ([] if eight_bit else ["LDSM"])
    if "LinearKernel<" in name:
        return ["HMMA", "LDG.128"]
    if name.startswith("EmbeddingKernel"):
        return ["STG.128"]
    if name in ("PrepareRowsKernel", "AddRmsNormKernel", "GatedActivationKernel", "GatherRowsKernel", "CopyBlocksKernel"):
        return ["LDG.128", "STG.128"]
    return []


def main(arguments):
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 64
    found = measure(arguments[0])
    if not found:
        print("skipped: nvcc has compiled no kernel here")
        return 77
    with open(BUDGET, encoding="utf-8") as file:
        budget = json.load(file)
    if "--record" in arguments:
        for name, figures in found.items():
            budget[name] = {w: figures[w] for w in ("registers", "shared", "stack", "spills")}
            budget[name]["must"] = requirements(name)
        lines = [f"  {json.dumps(n)}: {json.dumps(budget[n])}" for n in sorted(budget)]
        with open(BUDGET, "w", encoding="utf-8") as file:
            file.write("{\n" + ",\n".join(lines) + "\n}\n")
        return 0
    broken = list(compare(budget, found))
    print("\n".join(broken) or f"{len(found)} kernels within their budget")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
