// Any bytes as a constraint: the first says of which kind, the rest is its source. An error, or a constraint whose
// masks are right along a text that they lead to. Seeds: lines of tests/data/constraint.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/check.h"
#include "model/constraint/constraint.h"
#include "model/constraint/matcher.h"

namespace quire::constraint {
namespace {

std::shared_ptr<const TokenVocabulary> MakeVocabulary() {
  static std::vector<std::string> texts;
  for (int i = 0; i < 256; ++i) texts.push_back(std::string(1, static_cast<char>(i)));
  for (const char* piece :
       {"</s>", "ab", "{\"", "\":", "\",\"", "]}", "\\u00", "\xC3\xA9", "\xE4\xBD", "12", " \n", "plain"}) {
    texts.push_back(piece);
  }
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  return std::make_shared<const TokenVocabulary>(views, std::vector<int32_t>{256});
}

ConstraintOr Compile(uint8_t kind, std::string_view source, const ConstraintLimits& limits) {
  static const auto vocabulary = MakeVocabulary();
  switch (kind % 4) {
    case 0:
      return CompileJsonSchema(source, JsonWhitespace::kFree, vocabulary, limits);
    case 1:
      return CompileRegex(source, vocabulary, limits);
    case 2:
      return CompileGrammar(source, vocabulary, limits);
    default:
      return CompileJsonSchema(source, JsonWhitespace::kCompact, vocabulary, limits);
  }
}

void Use(const ConstraintOr& constraint, uint32_t seed) {
  ConstraintMatcher matcher(*constraint);
  const TokenVocabulary& vocabulary = (*constraint)->vocabulary();
  std::vector<uint32_t> words(static_cast<size_t>(vocabulary.num_words()));
  for (int step = 0; step < 30; ++step) {
    if (!matcher.FillNextTokenBitmask(absl::MakeSpan(words)).ok()) return;
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      if ((words[id / 32] >> id % 32 & 1) != 0) allowed.push_back(id);
    }
    // What was read is a viable prefix: something may follow, if only the end.
    QUIRE_CHECK(!allowed.empty());
    seed = seed * 1664525 + 1013904223;
    const int32_t id = allowed[(seed >> 8) % allowed.size()];
    const absl::Status status = matcher.AcceptToken(id);
    QUIRE_CHECK(status.ok() || absl::IsResourceExhausted(status));
    if (!status.ok() || matcher.is_finished()) return;
  }
}

}  // namespace
}  // namespace quire::constraint

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  quire::constraint::ConstraintLimits limits;
  limits.max_states = 5'000;
  limits.max_steps = 300'000;
  limits.max_match_steps = 300'000;
  limits.max_cache_bytes = 4 << 20;
  const std::string_view source(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto constraint = quire::constraint::Compile(data[0], source, limits);
  if (constraint.ok()) quire::constraint::Use(constraint, static_cast<uint32_t>(size));
  return 0;
}
