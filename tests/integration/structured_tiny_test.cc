// Structured output with real arithmetic: every text keeps its constraint, and forced tokens, chunks, preemption,
// prefix hits, n and company change no token.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "model/constraint/matcher.h"
#include "model/constraint/token_constraint.h"
#include "scheduler/request.h"
#include "tests/scheduler/engine_test_util.h"
#include "tests/testing/ref_data.h"

namespace quire::testing {
namespace {

constexpr int32_t kVocabSize = 320, kEos = 2;

// Ids below 256 are bytes, the others longer pieces.
std::vector<std::string> MakeTokens() {
  std::vector<std::string> tokens;
  for (int i = 0; i < 256; ++i) tokens.push_back(std::string(1, static_cast<char>(i)));
  const std::vector<std::string> pieces = {"{\"", "\":",  "\",",   "\"}",  "name", "na",  "me\"",
                                           "tag", "true", "false", "null", "ing",  "re",  " the",
                                           "12",  "345",  "-1",    "]}",   "[\"",  "a\"", "yes"};
  for (int i = 0; tokens.size() < kVocabSize; ++i) {
    tokens.push_back(i < static_cast<int>(pieces.size()) ? pieces[i] : "w" + std::to_string(i));
  }
  return tokens;
}

std::string TextOf(const std::vector<int32_t>& ids) {
  static const std::vector<std::string> tokens = MakeTokens();
  std::string text;
  for (const int32_t id : ids) text += id == kEos ? "" : tokens[id];
  return text;
}

using ConstraintPtr = std::shared_ptr<const constraint::Constraint>;

std::vector<ConstraintPtr> MakeConstraints() {
  static const std::vector<std::string> texts = MakeTokens();
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const auto vocabulary = std::make_shared<const constraint::TokenVocabulary>(views, std::vector<int32_t>{kEos});
  const std::string person = R"({"type": "object", "additionalProperties": false, "required": ["name", "age", "tags"],
    "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
                   "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 3}}})";
  return {*CompileJsonSchema(person, constraint::JsonWhitespace::kCompact, vocabulary),
          *CompileJsonObject(constraint::JsonWhitespace::kFree, vocabulary),
          *CompileRegex("(yes|no), because (the )+[a-f]{2,4}\\.", vocabulary),
          *CompileChoices({"a rather long choice", "a rather long one", "b"}, vocabulary),
          *CompileGrammar("root ::= \"(\" root \")\" | [0-9] [0-9]*", vocabulary)};
}

struct Variant {
  const char* name;
  bool append_forced = true;
  bool caching = true;
  int32_t max_tokens_per_step = 256;
  int32_t num_blocks = 1000;
  int32_t max_seqs = 64;
  int32_t max_drafts = 0;
};

class StructuredTinyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = RefPath("tiny/llama_gqa");
    if (!model) GTEST_SKIP() << "no oracle data: tiny/llama_gqa";
    model_ = *model;
  }

  std::unique_ptr<Engine> Make(const Variant& variant) const {
    EngineOptions options;
    options.model_path = model_;
    options.device = DeviceKind::kCpu;
    options.num_threads = 1;
    options.max_model_len = 200;
    options.block_size = 8;
    options.num_kv_blocks = variant.num_blocks;
    options.append_forced_tokens = variant.append_forced;
    options.scheduler.enable_prefix_caching = variant.caching;
    options.scheduler.max_num_batched_tokens = variant.max_tokens_per_step;
    options.scheduler.max_num_seqs = variant.max_seqs;
    if (variant.max_drafts > 0) {
      options.scheduler.speculation = SpeculationMode::kNgram;
      options.scheduler.max_drafts = variant.max_drafts;
    }
    return *CreateEngine(options);
  }

  std::string model_;
};

std::vector<int32_t> Prompt(int32_t n, int32_t seed) {
  std::vector<int32_t> ids(n);
  for (int32_t i = 0; i < n; ++i) ids[i] = 32 + (i * i * 7 + i * 31 + i / 24 * seed * 13) % 90;  // begin alike
  return ids;
}

// All requests of the test at once; their outputs, sequence by sequence, with the steps and preemptions they took.
struct Answers {
  std::vector<OutputCollector::Sequence> sequences;
  std::vector<ConstraintPtr> constraints;
  int64_t steps = 0, preemptions = 0, hits = 0, accepted = 0, drafted = 0;
};

Answers RunAll(Engine& engine, const std::vector<ConstraintPtr>& constraints) {
  Answers answers;
  OutputCollector collector(engine, 1);
  uint64_t handle = 0;
  std::vector<int32_t> n_of;
  for (int32_t i = 0; i < 15; ++i) {
    SamplingParams params;
    params.n = 1 + i % 3;
    params.temperature = i % 4 == 0 ? 0 : 1;
    params.seed = 100 + i;
    params.max_tokens = 12 + i * 3;
    if (i % 7 == 6) params.logprobs = 1;
    if (i % 5 == 4) params.min_tokens = 8;
    EngineRequest request =
        MakeEngineRequest(Prompt(30 + i, 1 + i), params, engine.info().block_size, engine.info().key_context);
    request.handle = ++handle;
    const ConstraintPtr& constraint = constraints[i % constraints.size()];
    request.constraint = *MakeTokenConstraint(constraint);
    EXPECT_EQ(engine.Submit(std::move(request)), absl::OkStatus());
    n_of.push_back(params.n);
    answers.constraints.insert(answers.constraints.end(), params.n, constraint);
  }
  engine.Start();
  for (uint64_t h = 1; h <= handle; ++h) {
    const auto request = collector.Await(h);
    for (int32_t s = 0; s < n_of[h - 1]; ++s) answers.sequences.push_back(request.sequences.at(s));
  }
  EXPECT_TRUE(engine.WaitIdle(absl::InfiniteFuture()));
  EXPECT_EQ(engine.CheckInvariants(), absl::OkStatus());
  const EngineStats stats = engine.GetStats();
  answers.steps = stats.steps;
  answers.preemptions = stats.preemptions;
  answers.hits = stats.prefix_hit_tokens;
  answers.accepted = stats.accepted_tokens;
  answers.drafted = stats.drafted_tokens;
  engine.Stop();
  collector.Join();
  return answers;
}

void ExpectKept(const Answers& answers) {
  for (size_t i = 0; i < answers.sequences.size(); ++i) {
    const std::string text = TextOf(answers.sequences[i].tokens);
    SCOPED_TRACE(text);
    constraint::ConstraintMatcher matcher(answers.constraints[i]);
    EXPECT_EQ(matcher.AcceptBytes(text), absl::OkStatus());
    const FinishReason reason = answers.sequences[i].last.finish_reason;
    EXPECT_TRUE(reason == FinishReason::kLength || (reason == FinishReason::kStop && matcher.IsAccepting()));
  }
}

TEST_F(StructuredTinyTest, TextsKeepTheirConstraintsAndTokensAreTheSameHoweverTheyAreComputed) {
  const std::vector<ConstraintPtr> constraints = MakeConstraints();
  const Variant variants[] = {
      {.name = "one by one", .append_forced = false, .caching = false, .max_seqs = 1},
      {.name = "one by one, appended", .caching = false, .max_seqs = 1},
      {.name = "appended"},
      {.name = "together", .append_forced = false},
      {.name = "in chunks", .max_tokens_per_step = 7},
      {.name = "preempted", .num_blocks = 27},
      {.name = "preempted, without a cache", .caching = false, .num_blocks = 27, .max_seqs = 24},
      {.name = "drafted", .append_forced = false, .max_drafts = 8},
      {.name = "drafted and appended", .max_drafts = 3},
      {.name = "drafted, preempted", .num_blocks = 27, .max_drafts = 8},
  };
  std::vector<Answers> all;
  for (const Variant& variant : variants) {
    SCOPED_TRACE(variant.name);
    const auto engine = Make(variant);
    all.push_back(RunAll(*engine, constraints));
    ExpectKept(all.back());
    for (size_t i = 0; i < all.back().sequences.size(); ++i) {
      EXPECT_EQ(all.back().sequences[i].tokens, all[0].sequences[i].tokens) << i;
      EXPECT_EQ(all.back().sequences[i].last.finish_reason, all[0].sequences[i].last.finish_reason) << i;
      EXPECT_EQ(all.back().sequences[i].logprobs, all[0].sequences[i].logprobs) << i;
    }
  }
  int stops = 0;
  for (const auto& sequence : all[0].sequences) stops += sequence.last.finish_reason == FinishReason::kStop;
  EXPECT_GE(stops, 8) << "of " << all[0].sequences.size();
  EXPECT_LT(all[1].steps, all[0].steps) << "forced tokens take no steps of their own";
  EXPECT_GT(all[2].hits, 0);
  EXPECT_GT(all[5].preemptions, 0);
  EXPECT_GT(all[6].preemptions, 0);
  for (size_t i = 7; i < all.size(); ++i) EXPECT_GT(all[i].drafted, 0) << variants[i].name;
  EXPECT_GT(all[7].accepted, 0);
  EXPECT_GT(all[9].preemptions, 0);
}

TEST_F(StructuredTinyTest, AConstraintForAnotherVocabularyIsRefused) {
  const auto vocabulary = std::make_shared<const constraint::TokenVocabulary>(
      std::vector<std::string_view>{"a", "b", "c", "</s>"}, std::vector<int32_t>{3});
  const auto engine = Make({.name = "any"});
  EngineRequest request =
      MakeEngineRequest(Prompt(5, 1), SamplingParams(), engine->info().block_size, engine->info().key_context);
  request.handle = 1;
  request.constraint = *MakeTokenConstraint(*constraint::CompileRegex("a+", vocabulary));
  EXPECT_EQ(engine->Submit(std::move(request)),
            absl::InvalidArgumentError("the constraint is for 4 ids, the model has 320"));
}

}  // namespace
}  // namespace quire::testing
