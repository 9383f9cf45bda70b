#include "tests/testing/ref_data.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "kernels/base/check.h"

namespace quire::testing {
namespace {

std::optional<std::string> IfExists(const std::filesystem::path& path) {
  if (std::filesystem::exists(path)) return path.string();
  return std::nullopt;
}

std::filesystem::path SourceDir() { return QUIRE_SOURCE_DIR; }

}  // namespace

std::optional<std::string> RefPath(const std::string& name) {
  if (auto shared = IfExists(SourceDir().parent_path() / "shared" / "ref" / name)) return shared;
  return IfExists(SourceDir() / "tests" / "data" / "ref" / name);
}

std::optional<std::string> SharedTokenizerPath(const std::string& name) {
  return IfExists(SourceDir().parent_path() / "shared" / "tokenizers" / name);
}

std::string SourcePath(const std::string& name) { return (SourceDir() / name).string(); }

std::optional<std::string> SmolLm2Path() {
  if (const char* path = std::getenv("QUIRE_TEST_MODEL")) return IfExists(path);
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path base = cache != nullptr && *cache != 0
                                   ? std::filesystem::path(cache)
                                   : std::filesystem::path(home != nullptr ? home : "/root") / ".cache";
  return IfExists(base / "quire" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf");
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  QUIRE_CHECK(in.good());
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

nlohmann::json ReadJson(const std::string& path) { return nlohmann::json::parse(ReadFile(path)); }

std::vector<nlohmann::ordered_json> ReadJsonLines(const std::string& path) {
  std::vector<nlohmann::ordered_json> values;
  std::istringstream in(ReadFile(path));
  for (std::string line; std::getline(in, line, '\n');) {
    if (!line.empty()) values.push_back(nlohmann::ordered_json::parse(line));
  }
  return values;
}

}  // namespace quire::testing
