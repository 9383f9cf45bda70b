#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "model/chat/template.h"
#include "tests/testing/ref_data.h"

// Every case of the reference data, byte for byte.
namespace quire::jinja {
namespace {

absl::CivilSecond ParseClock(const std::string& text) {
  absl::CivilSecond time;
  EXPECT_TRUE(absl::ParseCivilTime(text, &time)) << text;
  return time;
}

absl::StatusOr<std::string> Render(const nlohmann::ordered_json& test, const nlohmann::ordered_json& shared) {
  auto compiled = Template::Compile(test["template"].get<std::string>());
  if (!compiled.ok()) return compiled.status();
  return compiled->Render(shared["context"], ParseClock(shared["now"]));
}

// Those whose name begins so. Prints and counts what differs, so that one run shows all.
void RunCases(const std::string& path, const std::string& prefix = "") {
  int passed = 0;
  int cases = 0;
  nlohmann::ordered_json shared;  // context and clock of cases that have none of their own
  for (const auto& test : testing::ReadJsonLines(path)) {
    if (test.contains("continue_final_message")) continue;  // chat_template_test
    if (!test.contains("template")) {
      shared = test;
      continue;
    }
    if (test["name"].get<std::string>().rfind(prefix, 0) != 0) continue;
    ++cases;
    SCOPED_TRACE(test["name"].get<std::string>() + ": " + test["template"].dump());
    const auto rendered = Render(test, test.contains("context") ? test : shared);
    if (test.contains("rendered")) {
      const std::string shown = rendered.ok() ? *rendered : "ERROR " + std::string(rendered.status().message());
      EXPECT_EQ(shown, test["rendered"].get<std::string>());
      passed += rendered.ok() && shown == test["rendered"].get<std::string>();
      continue;
    }
    const bool raised = test["error_kind"] == "raise_exception";
    EXPECT_FALSE(rendered.ok()) << *rendered << " instead of " << test["error"];
    if (rendered.ok()) continue;
    EXPECT_EQ(Template::IsRaised(rendered.status()), raised) << rendered.status();
    if (raised) {
      EXPECT_EQ(rendered.status().message(), test["error"].get<std::string>());
    }
    passed += Template::IsRaised(rendered.status()) == raised;
  }
  EXPECT_GT(cases, 0);
  std::printf("%d of %d cases as the oracle\n", passed, cases);
}

TEST(ReferenceTest, B135TemplatesOfModelsRenderAsTheOracle) {
  const auto path = testing::RefPath("chat_templates.jsonl");
  if (!path.has_value()) GTEST_SKIP() << "no chat_templates.jsonl in ../shared/ref or tests/data/ref";
  RunCases(*path, "real_");
}

TEST(ReferenceTest, RendersEveryCaseAsTheOracle) {
  const auto path = testing::RefPath("chat_templates.jsonl");
  if (!path.has_value()) GTEST_SKIP() << "no chat_templates.jsonl in ../shared/ref or tests/data/ref";
  RunCases(*path);
}

// What generate_cases.py wrote.
TEST(ReferenceTest, RendersGeneratedTemplatesAsTheOracle) {
  RunCases(testing::SourcePath("tests/data/chat/generated.jsonl"));
}

// More of them, for whoever generates them.
TEST(ReferenceTest, RendersTheCasesThatTheEnvironmentNames) {
  const char* path = std::getenv("QUIRE_CHAT_CASES");
  if (path == nullptr) GTEST_SKIP() << "QUIRE_CHAT_CASES names no file of generate_cases.py";
  RunCases(path);
}

}  // namespace
}  // namespace quire::jinja
