#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "model/chat/template.h"
#include "model/tokenizer/utf8.h"
#include "tests/testing/ref_data.h"

// Templates that were changed at random parse and render, or say what is wrong: no crash, no leak, bounded time.
namespace quire::jinja {
namespace {

// Cuts, doubles, swaps and replaces pieces.
std::string Mutate(std::string text, const std::string& other, std::mt19937_64& random) {
  const auto place = [&random](const std::string& of) { return static_cast<size_t>(random() % (of.size() + 1)); };
  for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
    const size_t at = place(text);
    const size_t length = std::min<size_t>(text.size() - at, random() % 20);
    switch (random() % 4) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, text.substr(at, length));
        break;
      case 2:
        text.insert(at, other.substr(std::min(place(other), other.size()), 1 + random() % 30));
        break;
      default:
        text.insert(at, 1, "{}%#()[]|.'\"~-+ \n\\"[random() % 18]);
    }
  }
  return text;
}

TEST(MutationTest, ChangedTemplatesAreSurvived) {
  auto cases = testing::ReadJsonLines(testing::SourcePath("tests/data/chat/generated.jsonl"));
  const nlohmann::ordered_json context = cases[0]["context"];
  cases.erase(cases.begin());
  Limits limits;
  limits.max_steps = 20'000;
  limits.max_depth = 300;
  limits.max_output_bytes = 1 << 16;
  std::mt19937_64 random(11);
  int rendered = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string text =
        Mutate(cases[random() % cases.size()]["template"], cases[random() % cases.size()]["template"], random);
    const auto compiled = Template::Compile(text, limits);
    if (!compiled.ok()) continue;
    const auto result = compiled->Render(context, absl::CivilSecond(2026, 11, 30));
    if (!result.ok()) continue;
    ++rendered;
    EXPECT_TRUE(utf8::IsValid(*result)) << text;
  }
  EXPECT_GT(rendered, 100);
}

}  // namespace
}  // namespace quire::jinja
