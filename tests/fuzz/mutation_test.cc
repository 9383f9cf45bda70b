// The fuzzing seeds and cheap random changes of them, in every build: what the libFuzzer targets find stays found.

#include <algorithm>
#include <filesystem>
#include <random>

#include "gtest/gtest.h"
#include "tests/fuzz/parsers.h"
#include "tests/testing/ref_data.h"

namespace quire::testing {
namespace {

struct Kind {
  const char* name;
  const char* folder;     // of malformed/
  const char* file_name;  // suffix of the seeds in it
  void (*parse)(const uint8_t*, size_t);
};

constexpr Kind kKinds[] = {
    {"gguf", "gguf", ".gguf", &ParseAsGguf},
    {"safetensors", "safetensors", ".safetensors", &ParseAsSafetensors},
    {"config", "config", "config.json", &ParseAsConfig},
};

std::vector<std::string> Seeds(const std::string& folder, const std::string& suffix) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string path = entry.path();
    if (path.size() >= suffix.size() && path.compare(path.size() - suffix.size(), suffix.size(), suffix) == 0) {
      paths.push_back(path);
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// One change: a bit, a byte, a number of eight bytes, a cut, or a piece twice.
void Mutate(std::mt19937& random, std::string* bytes) {
  constexpr uint64_t kNumbers[] = {
      0, 1, 0x7f, 0xff, 0xffff, uint64_t{1} << 31, ~uint64_t{0}, uint64_t{1} << 63, uint64_t{1} << 60};
  if (bytes->empty()) return bytes->push_back(static_cast<char>(random()));
  const size_t at = random() % std::min<size_t>(bytes->size(), 4096);  // headers matter most
  switch (random() % 5) {
    case 0:
      (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 << random() % 8));
      break;
    case 1:
      (*bytes)[at] = static_cast<char>(random());
      break;
    case 2: {
      const uint64_t number = kNumbers[random() % std::size(kNumbers)];
      for (size_t i = 0; i < 8 && at + i < bytes->size(); ++i) (*bytes)[at + i] = static_cast<char>(number >> (8 * i));
      break;
    }
    case 3:
      bytes->resize(at);
      break;
    case 4:
      bytes->insert(at, bytes->substr(at, 1 + random() % 64));
      break;
  }
}

TEST(ParserMutationTest, SeedsAndTheirMutationsAreSurvived) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    const auto folder = RefPath(std::string("malformed/") + kind.folder);
    if (!folder) GTEST_SKIP() << "no malformed files";
    const std::vector<std::string> seeds = Seeds(*folder, kind.file_name);
    ASSERT_GE(seeds.size(), 20u);
    std::mt19937 random(7);
    for (const std::string& path : seeds) {
      const std::string seed = ReadFile(path);
      for (int round = 0; round < 20; ++round) {
        std::string bytes = seed;
        for (int change = 0; change < round % 4; ++change) Mutate(random, &bytes);
        kind.parse(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      }
    }
  }
}

}  // namespace
}  // namespace quire::testing
