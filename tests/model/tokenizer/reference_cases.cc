#include "tests/model/tokenizer/reference_cases.h"

#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/tokenizer/incremental_decoder.h"
#include "tests/testing/ref_data.h"

namespace quire::testing {

int CheckEncodeCases(const Tokenizer& tokenizer, const std::string& path) {
  int checked = 0;
  for (const auto& row : ReadJsonLines(path)) {
    const auto text = row.at("text").get<std::string>();
    const auto want = row.at("ids").get<std::vector<int32_t>>();
    SCOPED_TRACE(::testing::Message() << "line " << checked << " category " << row.at("category") << " text "
                                      << ::testing::PrintToString(text));
    const auto ids = tokenizer.Encode(text, row.at("add_special_tokens").get<bool>());
    EXPECT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(ids.value_or(std::vector<int32_t>()), want);
    EXPECT_EQ(tokenizer.Decode(want, /*skip_special_tokens=*/false), row.at("decoded").get<std::string>());
    EXPECT_EQ(tokenizer.Decode(want, /*skip_special_tokens=*/true), row.at("decoded_skip").get<std::string>());
    ++checked;
  }
  return checked;
}

int CheckStreamCases(const Tokenizer& tokenizer, const std::string& path) {
  int checked = 0;
  for (const auto& row : ReadJsonLines(path)) {
    SCOPED_TRACE(::testing::Message() << "line " << checked << " " << row.at("name"));
    IncrementalDecoder decoder(tokenizer, row.at("skip_special_tokens").get<bool>());
    // A prompt: what came before the stream is not sent again.
    std::string prompt;
    if (row.contains("prefix_ids")) {
      for (const auto& id : row.at("prefix_ids")) decoder.Push(id.get<int32_t>(), &prompt);
    }
    const auto ids = row.at("ids").get<std::vector<int32_t>>();
    std::vector<std::string> pieces;
    std::string all;
    for (const int32_t id : ids) {
      pieces.emplace_back();
      decoder.Push(id, &pieces.back());
      all += pieces.back();
    }
    std::string last;
    decoder.Flush(&last);
    EXPECT_EQ(pieces, row.at("pieces").get<std::vector<std::string>>());
    EXPECT_EQ(last, row.at("final").get<std::string>());
    EXPECT_EQ(all + last, row.at("full").get<std::string>());
    ++checked;
  }
  return checked;
}

}  // namespace quire::testing
