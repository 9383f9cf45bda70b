// The oracle's cases: JSON Schema, regular expressions and EBNF, byte by byte.
#include <optional>

#include "tests/model/constraint/constraint_test_util.h"
#include "tests/testing/ref_data.h"

namespace quire::constraint::testing {
namespace {

using quire::testing::ReadJsonLines;
using quire::testing::RefPath;
using quire::testing::SourcePath;

void CheckCases(const std::string& path, size_t least) {
  const auto cases = ReadJsonLines(path);
  ASSERT_GE(cases.size(), least);
  const auto vocabulary = ByteVocabulary();
  for (const auto& c : cases) {
    SCOPED_TRACE(c.dump());
    const bool is_schema = c.contains("schema");
    const std::string text = c.at(is_schema ? "instance_text" : "text").get<std::string>();
    std::vector<JsonWhitespace> modes = {JsonWhitespace::kFree};
    if (is_schema && c.at("whitespace") == "compact") modes.push_back(JsonWhitespace::kCompact);
    for (const JsonWhitespace mode : modes) {
      const ConstraintOr constraint = is_schema ? CompileJsonSchema(c.at("schema").dump(), mode, vocabulary)
                                      : c.at("kind") == "regex"
                                          ? CompileRegex(c.at("grammar").get<std::string>(), vocabulary)
                                          : CompileGrammar(c.at("grammar").get<std::string>(), vocabulary);
      ASSERT_TRUE(constraint.ok()) << constraint.status();
      const Verdict verdict = Judge(*constraint, text);
      EXPECT_EQ(verdict.accepted, c.at("accepted").get<bool>());
      if (c.contains("prefix_bytes")) {
        EXPECT_EQ(verdict.prefix_bytes, c.at("prefix_bytes").get<int64_t>());
      }
      if (c.contains("prefix_ok")) {
        EXPECT_EQ(verdict.prefix_bytes == static_cast<int64_t>(text.size()), c.at("prefix_ok").get<bool>());
      }
    }
  }
}

void CheckShared(const std::string& name) {
  const auto path = RefPath(name);
  if (!path) GTEST_SKIP() << "no " << name;
  CheckCases(*path, 30);
}

TEST(ReferenceCasesTest, SharedJsonSchema) { CheckShared("json_schema.jsonl"); }
TEST(ReferenceCasesTest, SharedRegex) { CheckShared("regex.jsonl"); }
TEST(ReferenceCasesTest, SharedEbnf) { CheckShared("ebnf.jsonl"); }

TEST(ReferenceCasesTest, CommittedJsonSchema) { CheckCases(SourcePath("tests/data/constraint/json_schema.jsonl"), 60); }
TEST(ReferenceCasesTest, CommittedRegex) { CheckCases(SourcePath("tests/data/constraint/regex.jsonl"), 60); }
TEST(ReferenceCasesTest, CommittedEbnf) { CheckCases(SourcePath("tests/data/constraint/ebnf.jsonl"), 60); }

}  // namespace
}  // namespace quire::constraint::testing
