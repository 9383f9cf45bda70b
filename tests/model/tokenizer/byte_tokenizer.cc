#include "tests/model/tokenizer/byte_tokenizer.h"

#include <cstdio>
#include <cstdlib>

#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/loaders.h"

namespace quire::testing {

nlohmann::json ByteTokenizerSpec() {
  auto vocab = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelling;
    byte_level::AppendSpelling(std::string(1, static_cast<char>(byte)), &spelling);
    vocab[spelling] = byte;
  }
  vocab["ab"] = 256;
  vocab["abab"] = 257;
  vocab["cc"] = 258;
  nlohmann::json spec = nlohmann::json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
    "added_tokens": [{"id": 259, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "merges": ["a b", ["ab", "ab"], "c c"]}})");
  spec["model"]["vocab"] = vocab;
  return spec;
}

std::unique_ptr<Tokenizer> LoadSpec(const nlohmann::json& spec) {
  auto tokenizer = LoadTokenizerJson(spec.dump());
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.status().ToString().c_str());
    std::abort();
  }
  return *std::move(tokenizer);
}

}  // namespace quire::testing
