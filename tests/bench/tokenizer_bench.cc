// How long encoding takes, one thread: of text files, and of one word and one run of spaces, 64 KB and 1 MB long.
// tokenizer_compare runs it beside Hugging Face's `tokenizers` and prints ratios.
//
//     tokenizer_bench TOKENIZER TEXT...
//
// One line a text: its name, bytes, ids, and the best of three times in seconds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "model/tokenizer/tokenizer.h"

namespace {

double Seconds(const quire::Tokenizer& tokenizer, const std::string& text, size_t* num_ids) {
  double best = 1e9;
  for (int round = 0; round < 3; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    const auto ids = tokenizer.Encode(text, /*add_special_tokens=*/false);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (!ids.ok()) {
      std::fprintf(stderr, "%s\n", ids.status().ToString().c_str());
      std::exit(1);
    }
    *num_ids = ids->size();
    best = std::min(best, took.count());
  }
  return best;
}

// A word without a repetition that a tokenizer could use.
std::string LongWord(size_t bytes) {
  std::string word;
  uint32_t state = 1;
  while (word.size() < bytes) {
    state = state * 1664525 + 1013904223;
    word.push_back(static_cast<char>('a' + (state >> 16) % 26));
  }
  return word;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: tokenizer_bench TOKENIZER TEXT...\n");
    return 64;
  }
  const auto tokenizer = quire::LoadTokenizer(argv[1]);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.status().ToString().c_str());
    return 66;
  }
  std::vector<std::pair<std::string, std::string>> texts;
  for (int i = 2; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    texts.emplace_back(argv[i], std::string(std::istreambuf_iterator<char>(file), {}));
  }
  for (const size_t bytes : {size_t{64} << 10, size_t{1} << 20}) {
    texts.emplace_back("random_word", LongWord(bytes));
    texts.emplace_back("word_of_one_letter", std::string(bytes, 'a'));
    texts.emplace_back("spaces", std::string(bytes, ' '));
  }
  for (const auto& [name, text] : texts) {
    size_t num_ids = 0;
    const double seconds = Seconds(**tokenizer, text, &num_ids);
    std::printf("%s %zu %zu %.6f\n", name.c_str(), text.size(), num_ids, seconds);
  }
  return 0;
}
