// What is refused and with which words, limits, and decisions where other engines differ.
#include "tests/model/constraint/constraint_test_util.h"

namespace quire::constraint::testing {
namespace {

ConstraintOr Schema(const std::string& schema, JsonWhitespace whitespace = JsonWhitespace::kFree) {
  return CompileJsonSchema(schema, whitespace, ByteVocabulary());
}
ConstraintOr Regex(const std::string& pattern) { return CompileRegex(pattern, ByteVocabulary()); }
ConstraintOr Grammar(const std::string& grammar) { return CompileGrammar(grammar, ByteVocabulary()); }

bool Accepts(const ConstraintOr& constraint, const std::string& text) {
  EXPECT_TRUE(constraint.ok()) << constraint.status();
  return constraint.ok() && Judge(*constraint, text).accepted;
}

void ExpectError(const ConstraintOr& constraint, absl::StatusCode code, const std::string& words) {
  ASSERT_FALSE(constraint.ok());
  EXPECT_EQ(constraint.status().code(), code);
  EXPECT_NE(std::string(constraint.status().message()).find(words), std::string::npos) << constraint.status();
}
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

TEST(CompileTest, UnsupportedKeywordsAreNamed) {
  for (const char* keyword : {"if", "then", "else", "not", "contains", "dependentRequired", "dependentSchemas",
                              "propertyNames", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef"}) {
    ExpectError(Schema(std::string("{\"items\":{\"") + keyword + "\":{}}}"), kInvalid,
                std::string("'") + keyword + "'");
  }
  ExpectError(Schema(R"({"uniqueItems":true})"), kInvalid, "'uniqueItems'");
  ExpectError(Schema(R"({"format":"iri"})"), kInvalid, "iri");
  ExpectError(Schema(R"({"$ref":"http://example.com/x"})"), kInvalid, "$ref");
  ExpectError(Schema(R"({"$ref":"#/$defs/missing"})"), kInvalid, "missing");
  ExpectError(Schema(R"({"$ref":"#/x","x":{"minLength":"1"}})"), kInvalid, "minLength");
  ExpectError(Schema(R"x({"pattern":"(?=a)"})x"), kInvalid, "lookaround");
}

CallSyntax Calls(const std::string& parameters) {
  CallSyntax syntax;
  syntax.before = "<c>";
  syntax.between = ";";
  syntax.after = "</c>";
  syntax.name_before = "{\"name\": ";
  syntax.arguments_before = ", \"arguments\": ";
  syntax.call_after = "}";
  syntax.functions = {{"f", parameters}, {"g\"", "{}"}};
  return syntax;
}

ConstraintOr Compiled(const CallSyntax& syntax, const ConstraintLimits& limits = {}) {
  return CompileCalls(syntax, JsonWhitespace::kFree, ByteVocabulary(), limits);
}

TEST(CompileTest, CallsAreWrittenInTheirForm) {
  CallSyntax syntax = Calls(R"({"properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"],
                                "additionalProperties": false, "$defs": {"n": {"enum": [1, null]}}})");
  const std::string f = R"({"name": "f", "arguments": {"a": null}})", g = R"({"name": "g\"", "arguments": {}})";
  const ConstraintOr one = Compiled(syntax);
  EXPECT_TRUE(Accepts(one, "<c>" + f + "</c>"));
  EXPECT_TRUE(Accepts(one, "<c>" + g + "</c>"));
  EXPECT_FALSE(Accepts(one, "<c>" + f + ";" + f + "</c>"));
  EXPECT_FALSE(Accepts(one, f));
  EXPECT_FALSE(Accepts(one, R"(<c>{"name": "f", "arguments": {"a": 2}}</c>)"));
  EXPECT_FALSE(Accepts(one, R"(<c>{"name": "g\"", "arguments": []}</c>)")) << "arguments are an object";
  syntax.repeats = true;
  const ConstraintOr many = Compiled(syntax);
  EXPECT_TRUE(Accepts(many, "<c>" + g + "</c>"));
  EXPECT_TRUE(Accepts(many, "<c>" + f + ";" + g + ";" + f + "</c>"));
  EXPECT_FALSE(Accepts(many, "<c>" + f + ";</c>"));
  EXPECT_FALSE(Accepts(many, "<c></c>"));
}

TEST(CompileTest, ArgumentsOfPythonAreItsLiterals) {
  CallSyntax syntax = Calls(R"({"properties": {"a": {"type": ["boolean", "null", "string"]}, "no name": {},
      "b": {"type": "array"}, "c": {"enum": [true, {"d": [false]}]}}, "required": ["b"], "type": "object"})");
  syntax.arguments = CallSyntax::Arguments::kPython;
  syntax.name_before = "";
  syntax.arguments_before = "(";
  syntax.call_after = ")";
  const ConstraintOr calls = Compiled(syntax);
  for (const char* const good : {"f(b=[])", "f(a=None, b=[True, {\"x\": None}, -1.5e3])",
                                 "f(a=\"\\n\\\\\", b=[], c=True)", "f(b=[ ], c={\"d\": [False]})"}) {
    EXPECT_TRUE(Accepts(calls, "<c>" + std::string(good) + "</c>")) << good;
  }
  for (const char* const bad :
       {"f()", "f(a=null, b=[])", "f(b=[true])", "f(b=[],c=True)", "f(b=[], a=None)", "f(b=[], e=1)", "f(b=[],)",
        "f(a=\"\\/\", b=[])", "f(a=\"\\ud83d\\ude00\", b=[])", "f(b=[], no name=1)", "f({\"b\":[]})"}) {
    EXPECT_FALSE(Accepts(calls, "<c>" + std::string(bad) + "</c>")) << bad;
  }
  syntax.functions = {{"f", R"({"required": ["no name"]})"}};
  ExpectError(Compiled(syntax), kInvalid, "'no name' is no name");
  syntax.functions = {{"f", R"({"enum": [{}]})"}};
  ExpectError(Compiled(syntax), kInvalid, "'enum'");
}

TEST(CompileTest, ErrorsOfCallsNameTheFunction) {
  ExpectError(Compiled(CallSyntax()), kInvalid, "no function");
  ExpectError(Compiled(Calls(R"({"not": {}})")), kInvalid, "function 'f': schema #/not: keyword 'not'");
  ExpectError(Compiled(Calls("{")), kInvalid, "function 'f': ");
  // One that could never be called, beside others that can.
  ExpectError(Compiled(Calls(R"({"type": "string"})")), kInvalid, "function 'f': its parameters allow no object");
  CallSyntax two = Calls("{}");
  two.functions.push_back({"g", R"({"$ref": "#", "type": "object", "properties": {"a": {"$ref": "#"}},
                                    "required": ["a"]})"});
  ExpectError(Compiled(two), kInvalid, "function 'g': its parameters allow no object");
  ConstraintLimits limits;
  limits.max_source_bytes = 100;
  ExpectError(Compiled(Calls(std::string(101, ' ') + "{}"), limits), kExhausted, "max_source_bytes");
}

TEST(CompileTest, ReasoningMayComeFirst) {
  const ConstraintOr may = CompileRegex("a+", ByteVocabulary(), {}, Reasoning::kMayCome);
  EXPECT_TRUE(Accepts(may, "aa"));
  EXPECT_TRUE(Accepts(may, "<think>\nb </thin \u00e9 <think></think>\n\na"));
  EXPECT_FALSE(Accepts(may, "<think>b</think>b"));
  EXPECT_FALSE(Accepts(may, "<think>b</think></think>a"));
  EXPECT_FALSE(Accepts(may, "<think>a"));
  const ConstraintOr open = CompileChoices({"x", "y"}, ByteVocabulary(), {}, Reasoning::kIsOpen);
  EXPECT_TRUE(Accepts(open, "</think>x"));
  EXPECT_TRUE(Accepts(open, "well</think>\ny"));
  EXPECT_FALSE(Accepts(open, "x"));
}

TEST(CompileTest, MalformedSchemasAreRefused) {
  ExpectError(Schema("{"), kInvalid, "JSON");
  ExpectError(Schema("[]"), kInvalid, "schema");
  ExpectError(Schema("\xFF"), kInvalid, "UTF-8");
  for (const char* schema :
       {R"({"type":"text"})", R"({"type":[]})", R"({"minLength":-1})", R"({"maxItems":1.5})", R"({"properties":[]})",
        R"({"required":[1]})", R"({"anyOf":[]})", R"({"enum":[]})", R"({"items":[{}]})", R"({"multipleOf":0})",
        R"({"minimum":"1"})", R"({"additionalProperties":1})", R"({"$ref":1})", R"({"pattern":"["})"}) {
    ExpectError(Schema(schema), kInvalid, "");
  }
  for (const char* schema :
       {"false", R"({"type":"string","enum":[1]})", R"({"type":"integer","minimum":3,"maximum":2})",
        R"({"$ref":"#/$defs/x","$defs":{"x":{"type":"array","minItems":1,"items":{"$ref":"#"}}}})",
        R"({"type":"string","minLength":3,"maxLength":2})",
        R"({"required":["a"],"properties":{"a":false},"type":"object"})"}) {
    ExpectError(Schema(schema), kInvalid, "matches no text");
  }
}

TEST(CompileTest, HostileSourcesMeetALimit) {
  std::string deep;
  for (int i = 0; i < 60'000; ++i) deep += "{\"items\":";
  deep += "true" + std::string(60'000, '}');
  ExpectError(Schema(deep), kExhausted, "max_depth");
  std::string wide = R"({"properties":{"x":{})";
  for (int i = 0; i < 5000; ++i) wide += ",\"" + std::to_string(i) + "\":{}";
  ExpectError(Schema(wide + "}}"), kExhausted, "members of one object");  // each name is compared with all before it
  ExpectError(Schema(R"({"type":"string","minLength":1000000000})"), kExhausted, "max_states");
  ExpectError(Schema(R"({"type":"array","minItems":1000000000})"), kExhausted, "max_states");
  ExpectError(Schema(R"({"type":"object","minProperties":1000000000})"), kExhausted, "max_states");
  ExpectError(Schema(R"({"type":"number","maximum":1e300,"multipleOf":0.123456789123})"), kExhausted, "multipleOf");
  ExpectError(Schema(R"({"pattern":"(a|b)*a(a|b){40}","maxLength":100})"), kExhausted, "max_st");
  ExpectError(Regex("(a{1000}){1000}"), kExhausted, "max_states");
  ExpectError(Regex("((((){1000}){1000}){1000}){1000}"), kExhausted, "max_st");
  ExpectError(Regex(std::string(30'000, '(') + std::string(30'000, ')')), kExhausted, "max_depth");
  ExpectError(Grammar(std::string(2 << 20, 'a')), kExhausted, "max_source_bytes");
  ExpectError(Regex(std::string(1'000'000, 'a')), kExhausted, "max_regex_bytes");
  ExpectError(Grammar("root ::= " + std::string(60'000, '(') + "\"a\"" + std::string(60'000, ')')), kExhausted,
              "max_depth");
  ExpectError(Grammar("root ::= \"a\"{1000000000}"), kExhausted, "max_states");
  // Many choices at once: 2^20 ways to combine.
  std::string all = "{\"allOf\":[";
  for (int i = 0; i < 20; ++i)
    all += std::string(i > 0 ? "," : "") + R"({"anyOf":[{"minLength":)" + std::to_string(i) + R"(},{"minLength":1}]})";
  ExpectError(Schema(all + "]}"), kExhausted, "max_st");
}

TEST(CompileTest, LongListsOfStringsAreCheap) {
  std::string schema = "{\"enum\":[";
  std::vector<std::string> choices;
  for (int i = 0; i < 5000; ++i) {
    choices.push_back("value number " + std::to_string(i * 7919));
    schema += (i > 0 ? ",\"" : "\"") + choices.back() + "\"";
  }
  EXPECT_TRUE(Accepts(CompileChoices(choices, ByteVocabulary()), choices[4321]));
  const std::string text = "\"" + choices[77] + "\"";
  EXPECT_TRUE(Accepts(Schema(schema + "]}"), text));
}

TEST(CompileTest, ChoicesAreChecked) {
  ExpectError(CompileChoices({}, ByteVocabulary()), kInvalid, "choices");
  ExpectError(CompileChoices({"a", ""}, ByteVocabulary()), kInvalid, "choices[1]");
  ExpectError(CompileChoices({"\xFF"}, ByteVocabulary()), kInvalid, "UTF-8");
}

TEST(CompileTest, UnsupportedRegexesAreNamed) {
  for (const auto& [pattern, words] :
       std::vector<std::pair<std::string, std::string>>{{"(?=a)", "lookaround"},
                                                        {"(?<!a)b", "lookaround"},
                                                        {"(a)\\1", "backreference"},
                                                        {"(?P<x>a)(?P=x)", "backreference"},
                                                        {"\\ba", "word boundary"},
                                                        {"a*+", "possessive"},
                                                        {"(?>a)", "atomic"},
                                                        {"(?i)a", "inline flag"},
                                                        {"(", "missing"},
                                                        {"a)", "unbalanced"},
                                                        {"[a", "unterminated"},
                                                        {"*a", "nothing to repeat"},
                                                        {"a**", "multiple repeat"},
                                                        {"[z-a]", "range"},
                                                        {"\\q", "bad escape"},
                                                        {"a{3,2}", "minimum"},
                                                        {"^*", "nothing to repeat"},
                                                        {"\\", "backslash"}}) {
    ExpectError(Regex(pattern), kInvalid, words);
  }
}

TEST(CompileTest, RegexesAreThoseOfPython) {
  EXPECT_TRUE(Accepts(Regex("^a$"), "a"));
  EXPECT_TRUE(Accepts(Regex("a$\\n"), "a\n"));  // before a last line end, too
  EXPECT_FALSE(Accepts(Regex("a\\Z\\n?"), "a\n"));
  EXPECT_TRUE(Accepts(Regex("a|^b|c$"), "c"));
  EXPECT_FALSE(Accepts(Regex("(a|^b)*"), "ab"));
  EXPECT_TRUE(Accepts(Regex("\\d\\w\\s"), "\u0663\u00e9\u3000"));
  EXPECT_TRUE(Accepts(Regex("a{,2}b"), "aab"));
  EXPECT_TRUE(Accepts(Regex("a{x}{"), "a{x}{"));
  EXPECT_TRUE(Accepts(Regex("[]a]+"), "]a"));
  EXPECT_TRUE(Accepts(Regex("\\101\\0"), std::string("A\0", 2)));
  EXPECT_TRUE(Accepts(Regex("(?P<n>x)(?#no)y"), "xy"));
  EXPECT_FALSE(Accepts(Regex("[^a]"), "\xED\xA0\x80"));  // no surrogates, no broken UTF-8
  EXPECT_FALSE(Accepts(Regex("."), "\xC0\x80"));
}

TEST(CompileTest, GrammarsAreChecked) {
  ExpectError(Grammar(""), kInvalid, "root");
  ExpectError(Grammar("root ::= a"), kInvalid, "a is used but not defined");
  ExpectError(Grammar("root ::= \"a\"\nroot ::= \"b\""), kInvalid, "line 2");
  ExpectError(Grammar("root ::= \"a"), kInvalid, "does not end");
  ExpectError(Grammar("root ::= [b-a]"), kInvalid, "order");
  ExpectError(Grammar("root ::= ( \"a\""), kInvalid, "')'");
  ExpectError(Grammar("root ::= root"), kInvalid, "matches no text");
  ExpectError(Grammar("root ::= \"\\q\""), kInvalid, "escape");
  EXPECT_TRUE(Accepts(Grammar("root ::= a a?\na ::= b | \"\"\nb ::= a \"x\""), "xxx"));
}

// README.md, "Where engines differ".
TEST(CompileTest, DecidedDisagreements) {
  EXPECT_TRUE(Accepts(Schema(R"({"type":"string"})"), R"("\n\u00e9\"\\")"));
  EXPECT_TRUE(Accepts(Schema(R"({"type":"string"})"), R"("\ud83d\ude00")"));
  EXPECT_FALSE(Accepts(Schema(R"({"type":"string"})"), R"("\ud83d")"));
  EXPECT_TRUE(Accepts(Schema(R"({"type":"string","maxLength":3})"), R"("\u00e9bc")"));
  EXPECT_TRUE(Accepts(Schema(R"({"type":"string","minLength":2,"maxLength":4})"), R"("\n\n")"));
  EXPECT_TRUE(Accepts(Schema(R"({"type":"string","maxLength":1})"), R"("\ud83d\ude00")"));
  EXPECT_FALSE(Accepts(Schema(R"({"type":"integer"})"), "1e3"));
  EXPECT_TRUE(Accepts(Schema(R"({"type":"integer"})"), "-0"));
  EXPECT_FALSE(Accepts(Schema(R"({"type":"integer","minimum":0})"), "-0"));
  const auto ordered = Schema(R"({"type":"object","properties":{"a":{},"b":{}},"required":["a","b"]})");
  EXPECT_TRUE(Accepts(ordered, R"({"a":1,"b":2,"c":3})"));
  EXPECT_FALSE(Accepts(ordered, R"({"b":1,"a":2})"));
  EXPECT_FALSE(Accepts(ordered, R"({"c":1,"a":2,"b":3})"));
  const auto merged = Schema(R"({"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"],"type":"object"},
                                          {"properties":{"a":{"minimum":5,"maximum":9}}}]})");
  EXPECT_FALSE(Accepts(merged, R"({"a":2})"));
  EXPECT_TRUE(Accepts(merged, R"({"a":7})"));
}

TEST(CompileTest, OneOfWantsDisjointBranches) {
  ExpectError(Schema(R"({"oneOf":[{"type":"integer"},{"type":"number"}]})"), kInvalid, "'oneOf'");
  ExpectError(Schema(R"({"oneOf":[{"pattern":"^a"},{"pattern":"b$"}],"type":"string"})"), kInvalid, "'oneOf'");
  EXPECT_TRUE(Accepts(Schema(R"({"oneOf":[{"pattern":"^a"},{"pattern":"^b"}],"type":"string"})"), R"("bx")"));
  EXPECT_TRUE(Accepts(Schema(R"({"oneOf":[{"type":"integer","maximum":1},{"type":"integer","minimum":2}]})"), "7"));
  EXPECT_TRUE(Accepts(Schema(R"({"oneOf":[{"const":1},{"enum":[2,3]}]})"), "3"));
}

TEST(CompileTest, KeywordsThatTheOraclesLack) {
  const auto patterned =
      Schema(R"({"type":"object","patternProperties":{"^x":{"type":"integer"}},"additionalProperties":false})");
  EXPECT_TRUE(Accepts(patterned, R"({"xa":1,"x":2})"));
  EXPECT_FALSE(Accepts(patterned, R"({"ya":1})"));
  const auto both =
      Schema(R"({"type":"object","properties":{"x":{"minimum":5}},"patternProperties":{"^x":{"type":"integer"}}})");
  EXPECT_TRUE(Accepts(both, R"({"x":5,"y":null})"));
  EXPECT_FALSE(Accepts(both, R"({"x":4})"));
  EXPECT_FALSE(Accepts(both, R"({"xx":"s"})"));
  EXPECT_TRUE(Accepts(Schema(R"({"type":"number","multipleOf":0.25})"), "1.750"));
  EXPECT_FALSE(Accepts(Schema(R"({"type":"number","multipleOf":0.25})"), "1.7"));
  EXPECT_TRUE(Accepts(Schema(R"({"type":"integer","multipleOf":7})"), "-49"));
  EXPECT_FALSE(Accepts(Schema(R"({"type":"integer","multipleOf":7})"), "50"));
  EXPECT_TRUE(Accepts(Schema(R"({"type":"string","pattern":"^a*$","minLength":2,"maxLength":3})"), R"("aaa")"));
  EXPECT_FALSE(Accepts(Schema(R"({"type":"string","pattern":"^a*$","minLength":2,"maxLength":3})"), R"("a")"));
  EXPECT_FALSE(Accepts(Schema(R"({"type":"string","format":"date"})"), R"("2023-02-29")"));
  EXPECT_TRUE(Accepts(Schema(R"({"type":"string","format":"date"})"), R"("2000-02-29")"));
  EXPECT_TRUE(Accepts(Schema(R"({"type":"string","format":"ipv6"})"), R"("::ffff:1.2.3.4")"));
  EXPECT_FALSE(Accepts(Schema(R"({"type":"string","format":"ipv6"})"), R"("1::2::3")"));
  EXPECT_TRUE(Accepts(Schema(R"({"type":"string","format":"uri"})"), R"("https://u@a.b:8/c?d#e")"));
  EXPECT_TRUE(Accepts(Schema(R"({"enum":[1.0]})"), "1"));
  EXPECT_TRUE(Accepts(Schema(R"({"$ref":"#node","$defs":{"n":{"$anchor":"node","type":"null"}}})"), "null"));
  EXPECT_TRUE(Accepts(CompileJsonObject(JsonWhitespace::kFree, ByteVocabulary()), R"({"a":[1,{}]})"));
  EXPECT_FALSE(Accepts(CompileJsonObject(JsonWhitespace::kCompact, ByteVocabulary()), R"({"a": 1})"));
}

}  // namespace
}  // namespace quire::constraint::testing
