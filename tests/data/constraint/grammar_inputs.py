"""Regular expressions, grammars and texts for make_cases.py."""

REGEXES = [
    (r"a+b?", ["a", "ab", "aab", "b", "abb", ""]),
    (r"(foo|bar)baz", ["foobaz", "barbaz", "foo", "fobaz"]),
    (r"[^a-c]+", ["xyz", "a", "xa", "\u00e9\u4f60"]),
    (r"\d{4}-\d{2}", ["2024-05", "2024-5", "20245", "2024-055"]),
    (r"(a{2}){2,3}", ["aaaa", "aaaaa", "aaaaaa", "aa", "aaaaaaaa"]),
    (r"x(yx)*", ["x", "xyx", "xy", "xyxyx", "yx"]),
    (r"\w+\s\w+", ["hello world", "hello", "hello  world", "a b"]),
    (r"(?:ab|a)(?:c|bcd)", ["abcd", "ac", "abc", "abbcd", "ab"]),
    (r"[\w.]+@[\w.]+", ["a.b@c.d", "a@", "@a"]),
    (r"(\+|-)?[1-9]\d*", ["+1", "-20", "0", "+", "7"]),
    (r"\(\d{3}\) \d{3}", ["(555) 123", "(555)", "555", "(555) 12"]),
    (r"[\u3040-\u309f]{1,2}", ["\u3042", "\u3042\u3044", "\u3042\u3044\u3046", "a"]),
    (r"a.c", ["abc", "a\u00e9c", "a\nc", "ac", "a\U0001f600c"]),
    (r"(yes|no|maybe)?", ["", "yes", "may", "nope"]),
    (r"[a-f0-9]{2}(:[a-f0-9]{2}){5}", ["00:1a:2b:3c:4d:5e", "00:1a", "00:1g"]),
    (r"<([a-z]+)>[^<]*</([a-z]+)>", ["<b>x</b>", "<b>", "<b></i>", "<B>"]),
    (r"a*?b+?", ["b", "aab", "aabb", "a", "ba"]),
    (r"\x41\u0042", ["AB", "A", "B", "ABC"]),
    (r"[-a]+", ["-a-", "a", "b"]),
    (r"\.\*\?\\", [".*?\\", ".*", "x"]),
    (r"(a|b|ab)*c", ["abababc", "c", "abab", "abd"]),
    (r"\D+\d", ["ab1", "1", "a1b"]),
]

ARITHMETIC = '''
root  ::= expr "=" ws term "\\n"
expr  ::= term ([-+*/] ws term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \\t]*
'''
LEFT = 'root ::= root "+" digit | digit\ndigit ::= [0-9]'
RIGHT = 'root ::= "a" root | "b"'
JSON = r'''
root ::= object
value ::= object | array | string | "true" | "null" | [0-9]+
object ::= "{" (string ":" value ("," string ":" value)*)? "}"
array ::= "[" (value ("," value)*)? "]"
string ::= "\"" [^"\\]* "\""
'''
GRAMMARS = [
    (ARITHMETIC, ["a=1\n", "a + b = c\n", "(1+2)*x=3\n", "(1+2=3\n", "a=", "1 + =", "a=1", "A=1\n"]),
    (LEFT, ["1", "1+2", "1+2+3", "+1", "1+", "12"]),
    (RIGHT, ["b", "ab", "aaaab", "aaa", "ba", ""]),
    (JSON, ["{}", '{"a":[1,true,{"b":null}]}', '{"a":}', "[]", '{"a":1', '{"a":1,}']),
    ('root ::= "x"{2,4} "y"{2}', ["xxyy", "xyy", "xxxxyy", "xxxxxyy", "xxy"]),
    ('root ::= ("a" | "b" "c")+ "d"?', ["a", "bc", "abcd", "ab", "bca", "ad", "d"]),
    ('root ::= pal\npal ::= "a" pal "a" | "b" pal "b" | "c"', ["c", "aca", "abcba", "ab", "abca", "aa"]),
    ('root ::= [^\\n]+ "\\n" | "-"', ["hello\n", "-", "\n", "ab", "-\n"]),
    ('root ::= "\\u00e9" [\\u4e00-\\u4eff]', ["\u00e9\u4e2d", "e", "\u00e9", "\u00e9a"]),
    ('# lists\nroot ::= item (\n  "," item\n)*\nitem ::= "a" | "b"  # two', ["a", "a,b", "a,", ",a", "a,b,a"]),
    ('root ::= e\ne ::= e "*" e | e "+" e | "n"', ["n", "n+n*n", "n+", "*n", "nn"]),
    ('root ::= a b\na ::= "x"?\nb ::= a a "y"', ["y", "xy", "xxy", "xxxy", "xxxxy", "x"]),
]
