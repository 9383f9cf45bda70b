#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "model/chat/template.h"
#include "tests/testing/ref_data.h"

// Every case of the reference data, byte for byte.
namespace quire::jinja {
namespace {

using Json = nlohmann::ordered_json;

absl::CivilSecond ParseClock(const std::string& text) {
  absl::CivilSecond time;
  EXPECT_TRUE(absl::ParseCivilTime(text, &time)) << text;
  return time;
}

absl::StatusOr<std::string> Render(const Json& test, const Json& shared) {
  auto compiled = Template::Compile(test["template"].get<std::string>());
  if (!compiled.ok()) return compiled.status();
  return compiled->Render(shared["context"], ParseClock(shared["now"]));
}

// Renders one case and tells whether it came out as it should; what differs is printed.
bool IsAsTheOracle(const Json& test, const Json& shared) {
  const auto rendered = Render(test, shared);
  if (test.contains("rendered")) {
    const std::string shown = rendered.ok() ? *rendered : "ERROR " + std::string(rendered.status().message());
    EXPECT_EQ(shown, test["rendered"].get<std::string>());
    return rendered.ok() && shown == test["rendered"].get<std::string>();
  }
  const bool raised = test["error_kind"] == "raise_exception";
  EXPECT_FALSE(rendered.ok()) << *rendered << " instead of " << test["error"];
  if (rendered.ok()) return false;
  EXPECT_EQ(Template::IsRaised(rendered.status()), raised) << rendered.status();
  if (raised) {
    EXPECT_EQ(rendered.status().message(), test["error"].get<std::string>());
  }
  return Template::IsRaised(rendered.status()) == raised;
}

// Of a name, what stands before the slash.
std::string Head(const std::string& name) { return name.substr(0, name.find('/')); }

// Those whose name begins so. Prints and counts what differs, so that one run shows all.
void RunCases(const std::string& path, const std::string& prefix = "") {
  int passed = 0;
  int cases = 0;
  Json shared;  // context and clock of cases that have none of their own
  for (const Json& test : testing::ReadJsonLines(path)) {
    if (test.contains("continue_final_message")) continue;  // chat_template_test
    if (!test.contains("template")) {
      shared = test;
      continue;
    }
    if (test["name"].get<std::string>().rfind(prefix, 0) != 0) continue;
    ++cases;
    SCOPED_TRACE(test["name"].get<std::string>() + ": " + test["template"].dump());
    passed += IsAsTheOracle(test, test.contains("context") ? test : shared);
  }
  EXPECT_GT(cases, 0);
  std::printf("%d of %d cases as the oracle\n", passed, cases);
}

// Templates of models, and templates shaped like them, with the same conversations: what render_conversations.py wrote.
TEST(ReferenceTest, B135TemplatesOfModelsRenderAsTheOracle) {
  const auto path = testing::RefPath("chat_templates.jsonl");
  if (!path.has_value()) GTEST_SKIP() << "no chat_templates.jsonl in ../shared/ref or tests/data/ref";
  std::map<std::string, Json> templates;  // the first case of each
  for (const Json& test : testing::ReadJsonLines(*path)) templates.try_emplace(Head(test["name"]), test);
  Json shared;  // the conversations
  std::map<std::string, int> passed;
  for (const Json& test : testing::ReadJsonLines(testing::SourcePath("tests/data/chat/conversations.jsonl"))) {
    if (!test.contains("name")) {
      shared = test;
      continue;
    }
    SCOPED_TRACE(test["name"]);
    const std::string name = test["name"], model = Head(name);
    ASSERT_EQ(templates.count(model), 1u) << "render_conversations.py was run with other reference data";
    Json whole = test;
    whole["template"] = templates[model]["template"];
    whole["now"] = shared["now"];
    whole["context"] = shared["conversations"][name.substr(model.size() + 1)];
    for (const char* const token : {"bos_token", "eos_token"}) {
      if (test.contains(token)) whole["context"][token] = test[token];
    }
    passed[model] += IsAsTheOracle(whole, whole);
  }
  EXPECT_GE(passed.size(), 15u);
  for (const auto& [model, count] : passed) EXPECT_EQ(count, 8) << model;
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
