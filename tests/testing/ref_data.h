#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

// Where oracle data and the real model are. Tests that need what is not there say so and skip.
namespace quire::testing {

// Path of `name` ("tiny/llama_gqa", "stop_strings.jsonl") in the oracle data: ../shared/ref beside the checkout, else
// the committed part of it in tests/data/ref. Nullopt if in neither.
std::optional<std::string> RefPath(const std::string& name);

// Path of a tokenizer folder ("smollm2") in ../shared/tokenizers. Nullopt without it.
std::optional<std::string> SharedTokenizerPath(const std::string& name);

// Path of a file of the repository, "tests/data/x".
std::string SourcePath(const std::string& name);

// The SmolLM2 file: $QUIRE_TEST_MODEL, else the cache folder that deploy/quickstart and tests/run fill. Nullopt if
// absent.
std::optional<std::string> SmolLm2Path();

// Whole file as JSON, or one JSON value a line (split on \n only). Ends the test program if it cannot be read.
nlohmann::json ReadJson(const std::string& path);
std::vector<nlohmann::ordered_json> ReadJsonLines(const std::string& path);
std::string ReadFile(const std::string& path);

}  // namespace quire::testing
