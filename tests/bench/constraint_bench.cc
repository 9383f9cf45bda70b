// Time of constrained decoding over the accepted cases of json_schema.jsonl with a real vocabulary: compiling, and one
// mask with the step to the next token, where a state is seen first and again. constraint_peers.py prints the same
// table for xgrammar and llguidance.
//
// All of it several times, of which the least counts, so that other load on the machine says little.
//
//     constraint_bench [TOKENIZER [CASES [ROUNDS]]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/base/check.h"
#include "model/constraint/constraint.h"
#include "model/constraint/matcher.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/testing/ref_data.h"

namespace quire::constraint {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

void Print(const char* what, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
  };
  std::printf("%-24s %8zu %10.2f %10.2f %10.2f\n", what, values.size(), at(0.5), at(0.99), values.back());
}

// The time of each mask and step along `ids`, in `best` where it is less than what is there.
void Walk(const std::shared_ptr<const Constraint>& constraint, const std::vector<int32_t>& ids, double* best) {
  ConstraintMatcher matcher(constraint);
  std::vector<uint32_t> words(static_cast<size_t>(constraint->vocabulary().num_words()));
  for (const int32_t id : ids) {
    const Clock::time_point begin = Clock::now();
    QUIRE_CHECK(matcher.FillNextTokenBitmask(absl::MakeSpan(words)).ok());
    QUIRE_CHECK(matcher.AcceptToken(id).ok());
    const double time = MicrosecondsSince(begin);
    *best = std::min(*best, time), ++best;
    QUIRE_CHECK((words[id / 32] >> id % 32 & 1) != 0);
  }
}

int Main(int argc, char** argv) {
  const auto folder = quire::testing::SharedTokenizerPath("llama3_1");
  const auto shared_cases = quire::testing::RefPath("json_schema.jsonl");
  if ((argc < 2 && !folder) || (argc < 3 && !shared_cases)) {
    std::printf("no tokenizer or cases\n");
    return 77;
  }
  const auto tokenizer = LoadTokenizer(argc > 1 ? argv[1] : *folder);
  if (!tokenizer.ok()) {
    std::printf("%s\n", std::string(tokenizer.status().message()).c_str());
    return 1;
  }
  Clock::time_point begin = Clock::now();
  const int32_t end = (*tokenizer)->TokenId("<|eot_id|>");
  const auto vocabulary =
      std::make_shared<const TokenVocabulary>(**tokenizer, std::vector<int32_t>{end}, (*tokenizer)->vocab_size());
  std::printf("vocabulary of %d tokens: %.0f us\n", vocabulary->size(), MicrosecondsSince(begin));

  const int rounds = argc > 3 ? std::atoi(argv[3]) : 5;
  constexpr double kForever = 1e12;
  std::vector<double> compile, first, warm;
  for (const auto& c : quire::testing::ReadJsonLines(argc > 2 ? argv[2] : *shared_cases)) {
    if (!c.at("accepted").get<bool>()) continue;
    const std::string schema = c.at("schema").dump();
    std::vector<int32_t> ids =
        (*tokenizer)->Encode(c.at("instance_text").get<std::string>(), /*add_special_tokens=*/false).value();
    ids.push_back(end);
    compile.push_back(kForever);
    first.resize(first.size() + ids.size(), kForever);
    warm.resize(first.size(), kForever);
    double* const first_of_case = &first[first.size() - ids.size()];
    double* const warm_of_case = &warm[first.size() - ids.size()];
    for (int round = 0; round < rounds; ++round) {
      begin = Clock::now();
      const ConstraintOr constraint = CompileJsonSchema(schema, JsonWhitespace::kFree, vocabulary);
      compile.back() = std::min(compile.back(), MicrosecondsSince(begin));
      QUIRE_CHECK(constraint.ok());
      Walk(*constraint, ids, first_of_case);
      for (int i = 0; i < 3; ++i) Walk(*constraint, ids, warm_of_case);
    }
  }
  std::printf("%-24s %8s %10s %10s %10s\n", "microseconds", "count", "p50", "p99", "max");
  Print("compile", std::move(compile));
  Print("first mask + step", std::move(first));
  Print("warm mask + step", std::move(warm));
  return 0;
}

}  // namespace
}  // namespace quire::constraint

int main(int argc, char** argv) { return quire::constraint::Main(argc, argv); }
