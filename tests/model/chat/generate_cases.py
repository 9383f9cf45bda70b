#!/usr/bin/env python3
"""Random templates with the answers of jinja2 (3.1.6; set up as transformers does for chat templates), as JSON lines.

    pip install jinja2==3.1.6
    tests/model/chat/generate_cases.py --seed 1 --count 20000 > /tmp/cases.jsonl
    QUIRE_CHAT_CASES=/tmp/cases.jsonl build/core/bin/quire_chat_test --gtest_filter=*Environment*

tests/data/chat/generated.jsonl is what --seed 7 --count 400 wrote.
"""
import argparse
import datetime
import json
import random

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2026, 11, 30, 14, 5, 9)
CONTEXT = {
    "s": "Hello World", "e": "", "n": None, "i": 7, "f": 2.5, "t": True, "z": False, "neg": -7, "big": 2**40,
    "l": [3, 1, 2], "d": {"b": 1, "a": "x", "items": [1]}, "u": "\u00e9\u4f60\U0001f600\u00df", "w": "  two  words\n\tand tabs ",
    "o": [{"k": "a", "v": 1}, {"k": "b", "v": 2}, {"k": "a", "v": 3}, {"k": "C", "v": None}],
    "nest": {"p": {"q": [10, 20]}, "r": [[1, 2], [3]]}, "strs": ["b", "A", "c", "a"], "mixed": [1, "a", None, 2.0, True],
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <b>\"you\"</b> & 'me'"},
                 {"role": "assistant", "content": None,
                  "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1, "y": [True, None]}}}]}],
}


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_generation"), [], [], body).set_lineno(line)

    def _generation(self, caller):
        return caller()


class Raised(jinja2.exceptions.TemplateError):
    pass


def raise_exception(message):
    raise Raised(str(message))


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


class Generator:
    """Grammar of what templates say; half-sensible so that many cases render."""

    def __init__(self, rng):
        self.r = rng
        self.names = []

    def pick(self, *options):
        return self.r.choice(options)

    def literal(self):
        return self.pick("0", "1", "2", "-1", "7", "2.5", "-0.5", "1e3", "0.1", "100000", "true", "false", "none", "''", "'a'",
                         "'b'", "\"it's\"", "'x y'", "'\\n'", "'\u00e9'", "' pad '", "'A,b,,C'", "[]", "[1, 2, 3]", "['a', 'b']", "{}",
                         "{'a': 1}", "{'k': 'v', 'z': [1]}", "(1,)", "(1, 'b')", "()", "'%s'", "'{}-{}'", "10 ** 20")

    def name(self):
        pool = list(CONTEXT) + self.names * 3 + ["missing"]
        return self.r.choice(pool)

    def text(self, depth):
        return self.pick("s", "u", "w", "e", "'a-b c'", "'Abc'", "s", "messages[0].content", "messages[1]['content']",
                         f"({self.expr(depth - 1)} | string)", f"({self.expr(depth - 1)} ~ {self.expr(depth - 1)})")

    def listing(self, depth):
        return self.pick("l", "o", "strs", "mixed", "nest.r", "messages", "[1, 2, 3]", "range(4)", "d", "d.items()", "u", "(1, 2)",
                         f"[{self.expr(depth - 1)}, {self.expr(depth - 1)}]", f"({self.text(depth - 1)}).split()",
                         f"({self.text(depth - 1)} | list)", "d.keys()", "d.values()", "missing", "n")

    def args(self, *options):
        return self.pick(*options)

    def text_filter(self, depth):
        x = self.text(depth)
        return x + self.pick(
            " | upper", " | lower", " | title", " | capitalize", " | trim", " | trim('a ')", " | replace('o', '0')",
            " | replace('', '-', 2)", " | length", " | list", " | reverse", " | first", " | last", " | center(15)", " | wordcount",
            " | truncate(8)", " | truncate(8, true)", " | truncate(6, false, '..', 0)", " | indent", " | indent(2, true)",
            " | indent('>', blank=true)", " | safe", " | e", " | escape | upper", " | string", " | int", " | int(5)", " | float",
            " | default('D')", " | default('D', true)", " | tojson", " | striptags", " | urlencode", " | join('.')", " | unique | list",
            " | sort", " | sort(reverse=true, case_sensitive=true)", " | batch(3) | list", " | slice(2) | list", " | format(1, 2)",
            " | map('upper') | list", " | select('in', 'abc') | join", " | forceescape", " | min", " | max", " | count")

    def method(self, depth):
        x = self.pick("s", "u", "w", "e", "'a-b-c'", f"({self.text(depth)})")
        a = self.pick("'o'", "'l'", "' '", "'a'", "'-'", "''", "'\u00e9'", "'lo'")
        return x + self.pick(
            ".upper()", ".lower()", ".title()", ".capitalize()", ".swapcase()", ".strip()", ".lstrip()", ".rstrip()", f".strip({a})",
            f".split({a})", ".split()", f".split({a}, 1)", f".rsplit({a}, 1)", ".splitlines()", ".splitlines(true)", f".startswith({a})",
            f".endswith({a})", f".startswith(({a}, 'H'))", f".find({a})", f".rfind({a}, 2)", f".count({a})", f".count({a}, 1, -1)",
            f".index({a})", f".replace({a}, '+')", f".replace({a}, '+', 1)", f".partition({a})", f".rpartition({a})", ".isdigit()",
            ".isalpha()", ".isspace()", ".islower()", ".istitle()", ".center(14, '*')", ".ljust(14)", ".rjust(14, '.')", ".zfill(14)",
            f".join(['x', 'y'])", ".format(1, 'b')", f".removeprefix({a})", f".removesuffix({a})", ".expandtabs(4)", ".nope", ".nope()",
            ".casefold()", ".isalnum()", ".isidentifier()", ".isprintable()", "[0]", "[-1]", "[1:3]", "[::-1]", "[::2]", "[-3:]", "[:-2]",
            "[50]", "[5:1]", "[1:50:3]", "[::-3]")

    def list_filter(self, depth):
        x = self.listing(depth)
        attr = self.pick("'k'", "'v'", "'role'", "'k.x'", "0", "'0'", "'missing'")
        lit = self.literal()
        return "(" + x + self.pick(
            ") | length", ") | list", ") | first", ") | last", ") | join(', ')", f") | join('+', attribute={attr})", ") | sort",
            f") | sort(attribute={attr})", f") | sort(reverse=true, attribute={attr})", f") | map(attribute={attr}) | list",
            f") | map(attribute={attr}, default='?') | list", ") | map('string') | list", ") | map('length') | list", f") | selectattr({attr}) | list",
            f") | selectattr({attr}, 'equalto', 'a') | list", f") | selectattr({attr}, 'defined') | list | length",
            f") | rejectattr({attr}, 'none') | list", ") | select | list", ") | reject('none') | list", ") | select('string') | list",
            ") | select('number') | list", f") | select('eq', {lit}) | list", f") | reject('gt', 1) | list", ") | unique | list", f") | unique(attribute={attr}) | list",
            ") | sum", f") | sum(attribute={attr})", ") | max", ") | min", f") | max(attribute={attr})", ") | reverse | list", ") | batch(2) | list",
            ") | batch(2, 'f') | list", ") | slice(2) | list", ") | slice(2, 'f') | list", f") | groupby({attr}) | list", ") | tojson", ") | tojson(indent=2)",
            ") | tojson(separators=(',', ':'))", ") | tojson(sort_keys=true)", ") | string", "))[0] is defined", ") | dictsort", ") | items | list",
            ") | default('D')", ")[0]", ")[-1]", ")[1:]", ")[::-1]", ") | count", ") | map('upper') | join('|')",
            f") | map('default', {lit}) | list", ") | xmlattr", ") | urlencode", ") | attr('k')").replace("))[0]", ")[0]")

    def number(self, depth):
        a = self.pick("i", "f", "neg", "big", "3", "0.1", "1e16", "t", "l[0]", self.expr(depth - 1))
        b = self.pick("2", "3", "-2", "0.5", "i", "f", "1", "0", "7")
        return self.pick(f"{a} + {b}", f"{a} - {b}", f"{a} * {b}", f"{a} / {b}", f"{a} // {b}", f"{a} % {b}", f"{self.pick('i', '2', 'neg', '0.5', 'f')} ** {self.pick('2', '3', '-1', '0')}", f"-{a}", f"+{a}",
                         f"({a}) | round", f"({a}) | round({self.pick('1', '2', '-1', '0')})", f"({a}) | round(1, '{self.pick('ceil', 'floor')}')",
                         f"({a}) | abs", f"({a}) | int", f"({a}) | float", f"'{self.pick('%d', '%5d', '%-5d|', '%05d', '%x', '%o', '%+d', '%.3d', '% d', '%i', '%c')}' % ({a})",
                         f"'{self.pick('%f', '%.2f', '%e', '%g', '%10.3f', '%-10.1f|', '%+.1e', '%.0f', '%#.0f', '%G')}' % ({a})",
                         f"'{self.pick('%s', '%r', '%10s', '%.3s', '%-8r|', '%%%s', '%a')}' % ({self.pick('(' + self.expr(depth - 1) + ',)', 's', 'n', a)})",
                         f"'{{:{self.pick('d', '5', '<5', '>8', '^9', '+', '08', ',', '_', '.2f', '.3', 'e', 'g', 'x', '#x', 'b', '%', '*^9', '=+8', '08.2f', ',.1f', 's', 'n')}}}'.format({a})",
                         f"'{{0!r:>8}}|{{x}}|{{0}}'.format({a}, x={b})", f"({a}) | filesizeformat", f"({a}) | string")

    def test(self, depth):
        x = self.expr(depth - 1)
        return f"({x}) is {self.pick('', '', 'not ')}" + self.pick(
            "defined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "boolean", "true", "false", "undefined",
            "odd", "even", "lower", "upper", "callable", "divisibleby 2", "eq 1", f"equalto({self.literal()})", "ne 'a'", "in [1, 'a']", "gt 1", "lt(2)",
            "ge 2", "le 'b'", "escaped", "sameas none", "test", "filter")

    def compare(self, depth):
        op = self.pick("==", "!=", "<", ">", "<=", ">=", "in", "not in")
        return f"{self.expr(depth - 1)} {op} {self.expr(depth - 1)}"

    def expr(self, depth):
        if depth <= 0:
            return self.pick(self.literal(), self.name(), self.name(), "d.a", "d['b']", "o[0].k", "nest.p.q[1]", "l[-1]", "d.get('zz')",
                             "messages[-1].tool_calls[0].function.arguments", "d.get('zz', 1)", "missing.x" if self.r.random() < 0.2 else "d.zz")
        kind = self.r.randrange(14)
        if kind <= 2:
            return self.text_filter(depth - 1)
        if kind <= 4:
            return self.method(depth - 1)
        if kind <= 7:
            return self.list_filter(depth - 1)
        if kind == 8:
            return self.number(depth - 1)
        if kind == 9:
            return self.test(depth)
        if kind == 10:
            return self.compare(depth)
        if kind == 11:
            return self.pick(f"{self.expr(depth - 1)} {self.pick('and', 'or')} {self.expr(depth - 1)}", f"not {self.expr(depth - 1)}",
                             f"({self.expr(depth - 1)} if {self.expr(depth - 1)} else {self.expr(depth - 1)})", f"({self.expr(depth - 1)} if {self.expr(depth - 1)})")
        if kind == 12:
            return self.pick(f"[{self.expr(depth - 1)}, {self.expr(depth - 1)}]", f"{{'a': {self.expr(depth - 1)}, 1: 2}}", f"({self.expr(depth - 1)},)",
                             f"dict(a={self.expr(depth - 1)})", f"[1] + [{self.expr(depth - 1)}]", f"{self.text(depth - 1)} + {self.text(depth - 1)}",
                             f"({self.text(depth - 1)} | safe) + {self.text(depth - 1)}", f"{self.text(depth - 1)} * 2", f"[{self.expr(depth - 1)}] * 2")
        return f"{self.expr(depth - 1)} ~ {self.expr(depth - 1)}"

    def open(self):
        return self.pick("{%", "{%", "{%-", "{%+" if self.r.random() < 0.2 else "{%-")

    def close(self):
        return self.pick("%}", "%}", "-%}")

    def tag(self, body):
        return f"{self.open()} {body} {self.close()}"

    def data(self):
        return self.pick("a", " ", "\n", "  \n", "text\n", "\n  ", " x ", "\t", "{# c #}", "{#- c -#}", "\n\n", "\u00e9")

    def out(self, depth):
        return f"{self.pick('{{', '{{-')} {self.expr(depth)} {self.pick('}}', '-}}')}"

    def block(self, depth):
        return "".join(self.statement(depth) for _ in range(self.r.randint(1, 3)))

    def loop_value(self):
        return "{{ loop." + self.pick("index", "index0", "first", "last", "length", "revindex", "revindex0", "depth", "previtem", "nextitem",
                                      "cycle('a', 'b')", "changed(x)", "nope") + " }}"

    def statement(self, depth):
        if depth <= 0:
            return self.pick(self.data(), self.out(1), self.out(2))
        kind = self.r.randrange(16)
        if kind <= 4:
            return self.data() + self.out(2)
        if kind <= 6:
            return self.tag(f"if {self.expr(2)}") + self.block(depth - 1) + self.pick(
                "", self.tag(f"elif {self.expr(1)}") + self.block(depth - 1)) + self.pick("", self.tag("else") + self.block(depth - 1)) + self.tag("endif")
        if kind <= 8:
            self.names.append("x")
            cond = self.pick("", "", f" if {self.pick('x', 'x != 1', 'loop is defined', self.expr(1))}")
            body = self.block(depth - 1) + self.pick("", self.loop_value(), self.loop_value()) + self.pick("", "", self.tag(f"if {self.expr(1)}") + self.tag(self.pick("break", "continue")) + self.tag("endif"))
            return self.tag(f"for x in {self.listing(1)}{cond}") + "{{ x }}" + body + self.pick("", self.tag("else") + self.block(depth - 1)) + self.tag("endfor")
        if kind == 9:
            name = self.pick("v", "x", "s", "l")
            self.names.append(name)
            return self.tag(f"set {name} = {self.expr(2)}")
        if kind == 10:
            self.names.append("b")
            return self.tag("set b" + self.pick("", " | upper", " | trim | length")) + self.block(depth - 1) + self.tag("endset") + "{{ b }}"
        if kind == 11:
            return self.tag("set ns = namespace(c=0, a=[])") + self.tag("for y in l") + self.tag(self.pick("set ns.c = ns.c + y", "set ns.a = ns.a + [y]")) + self.tag("endfor") + "{{ ns.c }}{{ ns.a }}"
        if kind == 12:
            return (self.tag("macro m(p, q=" + self.expr(1) + ")") + self.block(depth - 1) + "{{ p }}|{{ q }}" + self.pick("", "{{ varargs }}", "{{ kwargs }}", "{{ caller() if caller }}")
                    + self.tag("endmacro") + self.pick("{{ m(1) }}", "{{ m(1, 2) }}", "{{ m() }}", "{{ m(q=3, p=s) }}", "{{ m(1, 2, 3) }}", "{{ m(1, zz=4) }}", "{% call m(1) %}c{% endcall %}", "{{ m.arguments }}"))
        if kind == 13:
            return self.tag("filter " + self.pick("upper", "trim", "indent(2)", "replace('a', 'b')", "length")) + self.block(depth - 1) + self.tag("endfilter")
        if kind == 14:
            return self.tag(f"with w = {self.expr(1)}, y = s") + self.block(depth - 1) + "{{ w }}" + self.tag("endwith")
        return self.pick(self.tag("raw") + "{{ x }}" + self.tag("endraw"), self.tag("generation") + self.block(depth - 1) + self.tag("endgeneration"),
                         "{{ strftime_now('%Y-%m-%d %H:%M') }}", "{{ raise_exception('stop ' ~ i) }}" if self.r.random() < 0.3 else "", "{{ range(3) }}",
                         self.tag("for a, b in d.items()") + "{{ a }}={{ b }}" + self.tag("endfor"), self.tag("print s"), "{{ cycler('a', 'b').next() }}")

    def template(self):
        self.names = []
        if self.r.random() < 0.4:
            return "{{ " + self.expr(3) + " }}"
        return self.block(2)


def answer(env, template):
    case = {"template": template}
    try:
        case["rendered"] = env.from_string(template).render(**json.loads(json.dumps(CONTEXT)))
        case["rendered"].encode()
    except Raised as error:
        case["error"], case["error_kind"] = str(error), "raise_exception"
    except Exception as error:  # whatever Python raises: only that it fails is compared
        case.pop("rendered", None)
        case["error"], case["error_kind"] = f"{type(error).__name__}: {error}", "other"
    return case


def comparable(case):
    """Addresses, random text, numbers beyond 127 bits and what takes long are no cases."""
    text = case.get("rendered", case.get("error", ""))
    if " at 0x" in text or "generator object" in text or "built-in method" in text or len(text) > 4000:
        return False
    digits = "".join(c if c.isdigit() else " " for c in text).split()
    return all(len(run) < 36 for run in digits) and not ("rendered" not in case and "complex" in text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--count", type=int, default=400)
    options = parser.parse_args()
    generator = Generator(random.Random(options.seed))
    env = environment()
    print(json.dumps({"context": CONTEXT, "now": NOW.isoformat()}))  # of all cases below
    done = 0
    seen = set()
    while done < options.count:
        template = generator.template()
        if template in seen:
            continue
        seen.add(template)
        case = answer(env, template)
        if not comparable(case):
            continue
        print(json.dumps({"name": f"generated/{options.seed}/{done}", **case}))
        done += 1


if __name__ == "__main__":
    main()
