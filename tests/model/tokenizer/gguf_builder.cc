#include "tests/model/tokenizer/gguf_builder.h"

#include <algorithm>
#include <map>

#include "nlohmann/json.hpp"
#include "tests/testing/ref_data.h"

namespace quire::testing {
namespace {

struct Vocab {
  std::vector<std::string> texts;
  std::vector<int32_t> types;

  void Set(size_t id, const std::string& text, int32_t type) {
    for (size_t i = texts.size(); i <= id; ++i) {
      texts.push_back("~" + std::to_string(i));
      types.push_back(5);
    }
    texts[id] = text;
    types[id] = type;
  }
};

bool IsByteToken(const std::string& text) { return text.size() == 6 && text.starts_with("<0x") && text[5] == '>'; }

// Of the template, if the post-processor has one.
std::string FirstSpecialToken(const nlohmann::json& post) {
  if (!post.is_object()) return "";
  if (post.at("type") == "Sequence") return FirstSpecialToken(post.at("processors").back());
  return post.contains("single") ? post.at("single")[0].at("SpecialToken").at("id").get<std::string>() : "";
}

}  // namespace

std::string GgufOfTokenizerJson(const std::string& path, const std::string& pre) {
  const nlohmann::json file = ReadJson(path);
  const bool scored = pre.empty();
  Vocab vocab;
  for (const auto& [text, id] : file.at("model").at("vocab").items()) {
    vocab.Set(id.get<size_t>(), text, scored && IsByteToken(text) ? 6 : 1);
  }
  const auto unk = file.at("model").value("unk_token", nlohmann::json());
  for (const auto& token : file.at("added_tokens")) {
    const auto text = token.at("content").get<std::string>();
    vocab.Set(token.at("id").get<size_t>(), text, unk == text ? 2 : token.at("special").get<bool>() ? 3 : 4);
  }
  std::vector<std::string> merges;
  std::map<std::string, float> scores;  // of what merges make: the earlier, the higher
  for (const auto& merge : file.at("model").at("merges")) {
    const std::string line =
        merge.is_string() ? merge.get<std::string>() : merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    std::string made = line;
    made.erase(made.find(' '), 1);
    scores.emplace(made, -static_cast<float>(merges.size()));
    merges.push_back(line);
  }
  GgufBuilder gguf;
  gguf.String("general.architecture", "llama").String("tokenizer.ggml.model", scored ? "llama" : "gpt2");
  gguf.Strings("tokenizer.ggml.tokens", vocab.texts).Ints("tokenizer.ggml.token_type", vocab.types);
  if (const std::string bos = FirstSpecialToken(file.at("post_processor")); !bos.empty()) {
    const auto at = std::find(vocab.texts.begin(), vocab.texts.end(), bos);
    gguf.Uint("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(at - vocab.texts.begin()));
  }
  if (!scored) return gguf.String("tokenizer.ggml.pre", pre).Strings("tokenizer.ggml.merges", merges).File();
  std::vector<float> by_id;
  for (const std::string& text : vocab.texts) by_id.push_back(scores.contains(text) ? scores[text] : -1e9f);
  gguf.Bool("tokenizer.ggml.add_space_prefix", file.at("normalizer").at("type") == "Sequence");
  return gguf.Floats("tokenizer.ggml.scores", by_id).File();
}

}  // namespace quire::testing
