#include "server/frontend/stop_checker.h"

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/tokenizer/utf8.h"
#include "tests/testing/ref_data.h"

namespace quire {
namespace {

struct Found {
  std::string text;
  int32_t stop = -1;
  size_t tokens = 0;

  friend bool operator==(const Found&, const Found&) = default;
};

// What the rule says, on the whole text: the match that completes first behind min_tokens tokens, list order on ties.
Found Naive(const std::vector<std::string>& pieces, const std::vector<std::string>& stops, bool include,
            size_t min_tokens) {
  std::string text;
  for (size_t token = 0; token < pieces.size(); ++token) {
    for (char c : pieces[token]) {
      text += c;
      if (token < min_tokens) continue;
      for (size_t s = 0; s < stops.size(); ++s) {
        const std::string& stop = stops[s];
        if (text.size() < stop.size() || text.compare(text.size() - stop.size(), stop.size(), stop) != 0) continue;
        return {include ? text : text.substr(0, text.size() - stop.size()), static_cast<int32_t>(s), token + 1};
      }
    }
  }
  return {text, -1, pieces.size()};
}

// Longest proper prefix of any stop that the text ends with: all that may be held back.
size_t LongestHeld(const std::string& text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t n = 1; n < stop.size() && n <= text.size(); ++n) {
      if (text.compare(text.size() - n, n, stop, 0, n) == 0) longest = std::max(longest, n);
    }
  }
  return longest;
}

TEST(StopCheckerTest, AgreesWithTheReferenceCases) {
  const auto path = testing::RefPath("stop_strings.jsonl");
  if (!path) GTEST_SKIP() << "no stop_strings.jsonl";
  int cases = 0;
  for (const auto& c : testing::ReadJsonLines(*path)) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const auto pieces = c["pieces"].get<std::vector<std::string>>();
    const auto stops = c["stop"].get<std::vector<std::string>>();
    const bool include = c["include_stop_str_in_output"];
    const StopStrings strings(stops);
    StopChecker checker(strings, include, c["min_tokens"].get<int>());
    const auto& expected = c["expected"];
    std::string sent;
    int32_t found = -1;
    size_t consumed = 0;
    while (consumed < pieces.size() && found < 0) {
      // The last piece of an end by a stop token is that token's own text.
      const bool is_stop_token = c["end"] == "stop_token" && consumed + 1 == pieces.size();
      std::string chunk;
      found = checker.Push(is_stop_token && !include ? "" : pieces[consumed], &chunk);
      ++consumed;
      if (found < 0 && consumed == pieces.size()) checker.Flush(&chunk);
      for (const auto& never : expected["stream_chunks_must_never_contain"].get<std::vector<std::string>>()) {
        EXPECT_EQ(chunk.find(never), std::string::npos);
      }
      sent += chunk;
      EXPECT_LE(sent.size(), expected["max_emitted_bytes"][consumed - 1].get<size_t>());
    }
    EXPECT_EQ(sent, expected["text"].get<std::string>());
    EXPECT_EQ(consumed, expected["tokens_consumed"].get<size_t>());
    if (expected["stop_reason"].is_string()) {
      ASSERT_GE(found, 0);
      EXPECT_EQ(stops[found], expected["stop_reason"].get<std::string>());
    } else {
      EXPECT_EQ(found, -1);
    }
    ++cases;
  }
  EXPECT_GE(cases, 60);
}

TEST(StopCheckerTest, AgreesWithTheWholeTextOnRandomTextsAndHoldsNoMoreThanAPrefix) {
  std::mt19937 random(7);
  const std::vector<std::string> alphabet = {"a", "b", "\xC3\xA9", "\xC3\xA8", "aa", ""};
  const auto text = [&](int max) {
    std::string out;
    for (int i = static_cast<int>(random() % max); i >= 0; --i) out += alphabet[random() % 4];
    return out;
  };
  int stopped = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops, pieces;
    for (int i = static_cast<int>(random() % 4); i > 0; --i) stops.push_back(text(5));
    for (int i = static_cast<int>(random() % 16); i > 0; --i) pieces.push_back(alphabet[random() % alphabet.size()]);
    const bool include = random() % 2 == 0;
    const size_t min_tokens = random() % 2 == 0 ? 0 : random() % 8;
    const StopStrings strings(stops);
    StopChecker checker(strings, include, static_cast<int32_t>(min_tokens));
    Found found;
    std::string seen;
    while (found.tokens < pieces.size() && found.stop < 0) {
      seen += pieces[found.tokens];
      found.stop = checker.Push(pieces[found.tokens++], &found.text);
      if (found.stop < 0) {
        const size_t least = seen.size() - LongestHeld(seen, stops);
        ASSERT_LE(found.text.size(), least);
        if (min_tokens == 0) {
          ASSERT_EQ(found.text.size(), least);
        }
        ASSERT_TRUE(utf8::IsValid(found.text));
      }
    }
    if (found.stop < 0) checker.Flush(&found.text);
    stopped += found.stop >= 0;
    ASSERT_EQ(found, Naive(pieces, stops, include, min_tokens)) << "round " << round;
  }
  EXPECT_GT(stopped, 2000);
}

}  // namespace
}  // namespace quire
