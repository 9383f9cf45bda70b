#include "tests/model/tokenizer/reference_cases.h"

#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/tokenizer/incremental_decoder.h"
#include "tests/testing/ref_data.h"

namespace quire::testing {

void CheckEncodeCase(const Tokenizer& tokenizer, const nlohmann::ordered_json& row) {
  const auto text = row.at("text").get<std::string>();
  const auto want = row.at("ids").get<std::vector<int32_t>>();
  SCOPED_TRACE(::testing::PrintToString(text));
  const bool has_offsets = row.contains("offsets");
  const auto encoding = tokenizer.EncodeWith(
      text, {.add_special_tokens = row.at("add_special_tokens").get<bool>(), .with_offsets = has_offsets});
  ASSERT_TRUE(encoding.ok()) << encoding.status();
  EXPECT_EQ(encoding->ids, want);
  if (has_offsets) {
    std::vector<size_t> offsets;
    for (const TextRange& range : encoding->offsets) offsets.insert(offsets.end(), {range.begin, range.end});
    EXPECT_EQ(offsets, row.at("offsets").get<std::vector<size_t>>());
  }
  EXPECT_EQ(tokenizer.Decode(want, /*skip_special_tokens=*/false), row.at("decoded").get<std::string>());
  EXPECT_EQ(tokenizer.Decode(want, /*skip_special_tokens=*/true), row.at("decoded_skip").get<std::string>());
}

int CheckEncodeCases(const Tokenizer& tokenizer, const std::string& path,
                     const std::map<std::string, std::vector<int32_t>>& other_ids) {
  int checked = 0;
  for (const auto& row : ReadJsonLines(path)) {
    SCOPED_TRACE(::testing::Message() << "line " << checked << " category " << row.at("category"));
    ++checked;
    const auto text = row.at("text").get<std::string>();
    const auto other = other_ids.find(text);
    if (other == other_ids.end()) {
      CheckEncodeCase(tokenizer, row);
      continue;
    }
    const auto ids = tokenizer.Encode(text, /*add_special_tokens=*/false);
    EXPECT_TRUE(ids.ok() && *ids == other->second) << ::testing::PrintToString(text);
  }
  return checked;
}

int CheckStreamCases(const Tokenizer& tokenizer, const std::string& path) {
  int checked = 0;
  for (const auto& row : ReadJsonLines(path)) {
    SCOPED_TRACE(::testing::Message() << "line " << checked << " " << row.at("name"));
    IncrementalDecoder decoder(tokenizer, row.at("skip_special_tokens").get<bool>());
    // A prompt: what came before the stream is not sent again.
    if (row.contains("prefix_ids")) decoder.Continue(row.at("prefix_ids").get<std::vector<int32_t>>());
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
    // A stream that has sent a character of a run which breaks later cannot take it back.
    if (!row.value("diverges", false)) {
      EXPECT_EQ(all + last, row.at("full").get<std::string>());
    }
    ++checked;
  }
  return checked;
}

}  // namespace quire::testing
