#include "tests/testing/fake_runner.h"

#include <algorithm>
#include <array>
#include <utility>

#include "gtest/gtest.h"
#include "tests/testing/naive_beam_search.h"

namespace quire {
namespace {

// splitmix64's finalizer (public domain, S. Vigna).
uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t KeyValue(uint64_t before, int32_t token, int32_t position) {
  return Mix(before, Mix(static_cast<uint64_t>(token), static_cast<uint64_t>(position)));
}

int32_t Choose(uint64_t context, const SampleRow& row) {
  uint64_t hash = context;
  if (row.temperature > 0) hash = Mix(hash, Mix(row.seed, Mix(row.sequence_index, row.output_position)));
  for (int32_t tries = 0;; ++tries) {
    const bool of_few = row.top_k > 0 && tries < 32;  // unless none of these may come
    const auto token = static_cast<int32_t>(hash % (of_few ? row.top_k : FakeRunner::kVocabSize));
    const auto [banned_ids, mask] = std::pair(row.extras().banned_ids, row.extras().allowed_mask);
    const bool banned = std::find(banned_ids.begin(), banned_ids.end(), token) != banned_ids.end();
    const bool allowed = mask.empty() || (mask[token / 32] >> token % 32 & 1) != 0;
    if (allowed && !banned) return token;
    hash = Mix(hash, 1);
  }
}

// Of each id after a context, best first. Coarse, so that equal ones are frequent.
std::vector<TokenLogprob> Distribution(uint64_t context) {
  constexpr uint64_t kLevels = 40;
  std::array<uint8_t, FakeRunner::kVocabSize> level;
  std::array<uint8_t, kLevels + 1> begin = {};  // of the ids of a level, once it is summed up
  for (uint64_t id = 0; id < level.size(); ++id) ++begin[1 + (level[id] = Mix(context, id) % kLevels)];
  for (uint64_t i = 0; i < kLevels; ++i) begin[i + 1] += begin[i];
  std::vector<TokenLogprob> best(level.size());
  for (int32_t id = 0; id < FakeRunner::kVocabSize; ++id) {
    best[begin[level[id]]++] = {id, -0.125f * static_cast<float>(1 + level[id])};
  }
  return best;
}

float LogprobOf(uint64_t context) { return -static_cast<float>(context % 1000) / 100; }

// Tokens without blocks: the K/V of the last one, and what a row behind it sees.
struct Text {
  uint64_t before = 0, context = 0;
  int32_t length = 0;
  void Add(int32_t token) {
    before = KeyValue(before, token, length++);
    context = Mix(context, before);
  }
};

uint64_t ContextOf(absl::Span<const int32_t> tokens) {
  Text text;
  for (const int32_t token : tokens) text.Add(token);
  return text.context;
}

// A row with rules knows all tokens before it, and the state that each of them left: 1 more than the one before.
void CheckRules(const SampleRow& row, uint64_t context) {
  const SampleExtras& extras = row.extras();
  ASSERT_EQ(extras.tokens.size(), extras.prompt_len + row.output_position);
  ASSERT_EQ(ContextOf(extras.tokens), context) << "other tokens than the row has seen";
  if (extras.rules->mirostat_tau == 0) return;  // it leaves none
  ASSERT_EQ(extras.mirostat_bound, 2 * extras.rules->mirostat_tau + static_cast<float>(row.output_position));
}

std::vector<int32_t> Continue(Text text, const EngineRequest& request, int32_t index, int32_t max_output,
                              absl::Span<const int32_t> ending) {
  const SamplingParams& params = request.params;
  const auto constraint = request.constraint == nullptr ? nullptr : request.constraint->Clone();
  std::vector<uint32_t> mask(constraint == nullptr ? 0 : (FakeRunner::kVocabSize + 31) / 32);
  std::vector<int32_t> output;
  while (static_cast<int32_t>(output.size()) < max_output) {
    SampleExtras extras;
    SampleRow row;
    row.more = &extras;
    row.temperature = params.temperature;
    row.top_k = params.top_k;
    row.seed = params.seed;
    row.sequence_index = static_cast<uint32_t>(index);
    row.output_position = static_cast<uint32_t>(output.size());
    const bool may_end = static_cast<int32_t>(output.size()) >= params.min_tokens;
    if (!may_end) extras.banned_ids = ending;
    if (constraint != nullptr) {
      constraint->FillMask(absl::MakeSpan(mask));
      extras.allowed_mask = mask;
      std::vector<uint32_t> left = mask;
      for (const int32_t id : extras.banned_ids) left[id / 32] &= ~(1u << id % 32);
      if (std::all_of(left.begin(), left.end(), [](uint32_t word) { return word == 0; })) extras.banned_ids = {};
    }
    output.push_back(Choose(text.context, row));
    if (may_end && std::find(ending.begin(), ending.end(), output.back()) != ending.end()) break;
    if (constraint != nullptr) {
      EXPECT_EQ(constraint->Accept(output.back()), absl::OkStatus());
      if (constraint->num_allowed() == 0) break;
    }
    text.Add(output.back());
  }
  return output;
}

}  // namespace

FakeRunner::FakeRunner(const BlockManager* blocks, int32_t num_places)
    : blocks_(blocks),
      block_size_(blocks->block_size()),
      num_places_(num_places),
      memory_(int64_t{num_places} * blocks->block_size()),
      contexts_(memory_.size()),
      written_in_(memory_.size()) {
  for (Step& step : steps_) step.places.reserve(num_places);  // tests count allocations
}

BlockId FakeRunner::PlaceOf(int32_t group, BlockId block) const {
  const GroupPages* pages = blocks_->pages();
  return pages == nullptr ? block : BlockId{static_cast<int32_t>(pages->page(group, block))};
}

int32_t FakeRunner::FirstSeen(int32_t group, int32_t position) const {
  const int32_t window = blocks_->pages() == nullptr ? 0 : blocks_->pages()->window(group);
  return window == 0 ? 0 : std::max(0, position - window + 1);
}

void FakeRunner::Submit(const SchedulePlan& plan) {
  ASSERT_LT(num_in_flight_, 2);
  Step& step = steps_[num_in_flight_++];
  step.plan = plan;
  step.executed = false;
  step.places.clear();
  step.tokens.clear();
  step.first_place.clear();
  step.table_size.clear();
  step.findable.clear();
  CheckCopies(plan);
  for (const ScheduledSequence& entry : plan.sequences) {
    CheckWrites(entry);
    TakeTokens(entry, &step);
    TakeTable(entry, &step);
  }
  if (blocks_->integrity_enabled()) {
    step.findable.resize(num_places_);
    for (int32_t i = 1; i < blocks_->num_block_ids(); ++i) {
      for (int32_t group = 0; group < num_groups() && blocks_->IsFindable(BlockId{i}); ++group) {
        step.findable[static_cast<int32_t>(PlaceOf(group, BlockId{i}))] = true;
      }
    }
  }
  if (eager) Execute(&step);
}

// Those within the device go to blocks that only their sequence knows.
void FakeRunner::CheckCopies(const SchedulePlan& plan) const {
  for (size_t i = 0; i < plan.copies.size(); ++i) {
    const BlockCopy& copy = plan.copies[i];
    ASSERT_NE(copy.dst, kNullBlock);
    if (blocks_->pages() != nullptr || blocks_->IsHost(copy.src) || blocks_->IsHost(copy.dst)) continue;
    // One whose sequence was stopped again may have got another content, even one that can be found.
    const auto later = [&copy](const BlockCopy& other) { return other.dst == copy.dst; };
    if (std::any_of(plan.copies.begin() + i + 1, plan.copies.end(), later)) continue;
    ASSERT_LE(blocks_->count(copy.dst), 1) << "a copy goes to a shared block";
    ASSERT_FALSE(blocks_->IsFindable(copy.dst)) << "a copy goes to a findable block";
  }
}

void FakeRunner::TakeTable(const ScheduledSequence& entry, Step* step) const {
  const absl::Span<const BlockId> table = entry.sequence->table.blocks();
  step->first_place.push_back(static_cast<int64_t>(step->places.size()));
  step->table_size.push_back(static_cast<int32_t>(table.size()));
  if (blocks_->pages() == nullptr) {
    step->places.insert(step->places.end(), table.begin(), table.end());
    return;
  }
  for (int32_t group = 0; group < num_groups(); ++group) {
    const auto [begin, end] = entry.sequence->table.paged(group);
    for (int32_t i = 0; i < static_cast<int32_t>(table.size()); ++i) {
      step->places.push_back(begin <= i && i < end ? PlaceOf(group, table[i]) : kNullBlock);
    }
  }
}

void FakeRunner::Wait(StepResult* result) {
  ASSERT_GT(num_in_flight_, 0);
  if (!steps_[0].executed) Execute(&steps_[0]);
  std::swap(*result, steps_[0].result);
  std::swap(steps_[0], steps_[1]);
  --num_in_flight_;
}

void FakeRunner::Lose() {
  ASSERT_GT(num_in_flight_, 0);
  for (const IntegrityWork::Item& item : steps_[0].plan.integrity.checksums) sealed_[item.block] = {};
  if (!steps_[0].executed) last_samples_.assign(steps_[0].plan.samples.size(), {});
  std::swap(steps_[0], steps_[1]);
  --num_in_flight_;
}

void FakeRunner::CheckWrites(const ScheduledSequence& entry) {
  const Sequence& sequence = *entry.sequence;
  ASSERT_GE(entry.num_tokens, 1);
  ASSERT_LE(blocks_->BlocksFor(entry.start + entry.num_tokens), sequence.table.size());
  for (int32_t position = entry.start; position < entry.start + entry.num_tokens; ++position) {
    const BlockId block = sequence.table.blocks()[position / block_size_];
    ASSERT_EQ(blocks_->count(block), 1) << "a shared block is written";
    ASSERT_FALSE(blocks_->IsFindable(block)) << "a findable block is written";
  }
}

void FakeRunner::TakeTokens(const ScheduledSequence& entry, Step* step) const {
  const absl::Span<const int32_t> tokens = entry.text();
  if (entry.token_from_sample >= 0) {
    ASSERT_EQ(entry.num_tokens, 1);
    ASSERT_EQ(entry.start, static_cast<int32_t>(tokens.size()));
    step->tokens.push_back(-1);
    return;
  }
  ASSERT_LE(entry.start + entry.num_tokens, static_cast<int32_t>(tokens.size()));
  const auto first = tokens.begin() + entry.start;
  step->tokens.insert(step->tokens.end(), first, first + entry.num_tokens);
}

void FakeRunner::Execute(Step* step) {
  const SchedulePlan& plan = step->plan;
  step->executed = true;
  CheckSealed(plan.integrity);
  for (const BlockCopy& copy : plan.copies) Copy(copy);
  Poison(plan.integrity.poison);
  for (size_t i = 0; i < plan.sequences.size(); ++i) Store(*step, i);
  CheckAllSealed(*step);
  step->result.samples.clear();
  step->result.scores.clear();
  step->result.logprobs.clear();
  for (size_t i = 0; i < plan.sequences.size(); ++i) Answer(*step, i, &step->result);
  last_samples_ = step->result.samples;
}

void FakeRunner::Store(const Step& step, size_t index) {
  const ScheduledSequence& entry = step.plan.sequences[index];
  for (int32_t i = 0; i < entry.num_tokens; ++i) {
    const int32_t position = entry.start + i;
    int32_t token = step.tokens[entry.first_row + i];
    if (entry.token_from_sample >= 0) {
      ASSERT_LT(entry.token_from_sample, static_cast<int32_t>(last_samples_.size()));
      token = last_samples_[entry.token_from_sample].token_id;
    }
    for (int32_t group = 0; group < num_groups(); ++group) {
      const int64_t slot = Slot(step, index, group, position);
      ASSERT_NE(written_in_[slot], step.plan.step) << "a slot is written twice in one step";
      written_in_[slot] = step.plan.step;
      const int64_t before = position == 0 ? -1 : Slot(step, index, group, position - 1);
      memory_[slot] = KeyValue(before < 0 ? 0 : memory_[before], token, position);
      contexts_[slot] = Mix(before < 0 ? 0 : contexts_[before], memory_[slot]);
    }
    ++tokens_computed_;
  }
}

void FakeRunner::Answer(const Step& step, size_t index, StepResult* result) {
  const ScheduledSequence& entry = step.plan.sequences[index];
  const auto context_of = [&](int32_t row) {
    const int32_t position = entry.start + row - entry.first_row;
    uint64_t context = Attend(step, index, 0, position);
    for (int32_t group = 1; group < num_groups(); ++group) {
      const uint64_t other = Attend(step, index, group, position);
      if (other != context) context = Mix(context, other);
    }
    return context;
  };
  const auto report = [result](int32_t token, uint64_t context) {
    SampledToken sampled;
    sampled.token_id = token;
    sampled.logprobs_begin = static_cast<int32_t>(result->logprobs.size());
    sampled.logprobs_count = 1;
    sampled.rank = 1;
    result->logprobs.push_back({token, LogprobOf(context)});
    return sampled;
  };
  for (int32_t i = entry.scores_begin; i < entry.scores_begin + entry.scores_count; ++i) {
    const ScoreRow& row = step.plan.scores[i];
    result->scores.push_back(report(row.target_id, context_of(row.logits_row)));
  }
  if (entry.sample < 0) return;
  const auto sample = [&](int32_t sample_index) {
    ASSERT_EQ(sample_index, static_cast<int32_t>(result->samples.size())) << "those of a row stand next to each other";
    const SampleRow& row = step.plan.samples[sample_index];
    const uint64_t context = context_of(row.logits_row);
    // If the step before failed, the row has seen nothing that means anything; its sequence has ended.
    const bool is_lost = entry.sequence->state == SequenceState::kFinished;
    const SampleExtras& extras = row.extras();
    if (extras.rules != nullptr && !is_lost) CheckRules(row, num_groups() == 1 ? context : ContextOf(extras.tokens));
    result->samples.push_back(report(Choose(context, row), context));
    result->samples.back().mirostat_bound = extras.mirostat_bound + 1;
    if (row.num_logprobs > 0) {
      const std::vector<TokenLogprob> best = Distribution(context);
      const int32_t count = std::min(row.num_logprobs, kVocabSize);
      result->logprobs.insert(result->logprobs.end(), best.begin(), best.begin() + count);
      result->samples.back().logprobs_count += count;
    }
    if (std::erase(bad_seeds, row.seed) == 0) return;
    result->samples.back() = {};
    result->samples.back().bad_logits = true;
  };
  for (int32_t i = 0; i <= entry.num_drafts; ++i) sample(entry.sample + i);
  for (int32_t i = entry.riders_begin; i < entry.riders_begin + entry.riders_count; ++i) {
    sample(step.plan.riders[i].sample);
  }
}

int64_t FakeRunner::Slot(const Step& step, size_t index, int32_t group, int32_t position) const {
  const int64_t table = step.first_place[index] + int64_t{group} * step.table_size[index];
  const BlockId place = step.places[table + position / block_size_];
  if (place == kNullBlock) ADD_FAILURE() << "group " << group << " has nothing for position " << position;
  return int64_t{static_cast<int32_t>(place)} * block_size_ + position % block_size_;
}

uint64_t FakeRunner::Attend(const Step& step, size_t index, int32_t group, int32_t position) const {
  int32_t p = FirstSeen(group, position);
  uint64_t context = p == 0 ? 0 : contexts_[Slot(step, index, group, p++)];
  for (; p <= position; ++p) context = Mix(context, memory_[Slot(step, index, group, p)]);
  return context;
}

void FakeRunner::Copy(const BlockCopy& copy) {
  if (blocks_->IsHost(copy.src) || blocks_->IsHost(copy.dst)) sealed_[copy.dst] = {};  // what it holds now is new
  const int64_t src = int64_t{static_cast<int32_t>(copy.src)} * block_size_;
  const int64_t dst = int64_t{static_cast<int32_t>(copy.dst)} * block_size_;
  std::copy_n(memory_.begin() + src, block_size_, memory_.begin() + dst);
  std::copy_n(contexts_.begin() + src, block_size_, contexts_.begin() + dst);
}

uint64_t FakeRunner::Checksum(BlockId place, int32_t num_tokens) const {
  uint64_t sum = 0;
  const auto begin = memory_.begin() + int64_t{static_cast<int32_t>(place)} * block_size_;
  for (auto value = begin; value != begin + num_tokens; ++value) sum = Mix(sum, *value);
  return sum;
}

void FakeRunner::CheckSealed(const IntegrityWork& work) {
  for (const IntegrityWork::Item& item : work.checksums) {
    sealed_[item.block] = {item.num_tokens, Checksum(item.block, item.num_tokens)};
  }
  for (const IntegrityWork::Item& item : work.verify) {
    const Sealed& sealed = sealed_.at(item.block);
    ASSERT_EQ(sealed.num_tokens, item.num_tokens);
    ASSERT_EQ(Checksum(item.block, item.num_tokens), sealed.checksum) << "a block changed before it was found";
  }
}

void FakeRunner::Poison(absl::Span<const BlockId> places) {
  for (const BlockId place : places) {
    const int64_t begin = int64_t{static_cast<int32_t>(place)} * block_size_;
    std::fill_n(memory_.begin() + begin, block_size_, 0xdeadbeef);
    std::fill_n(contexts_.begin() + begin, block_size_, 0xdeadbeef);
  }
}

void FakeRunner::CheckAllSealed(const Step& step) {
  for (const auto& [place, sealed] : sealed_) {
    if (step.findable.empty() || !step.findable[static_cast<int32_t>(place)] || sealed.num_tokens == 0) continue;
    ASSERT_EQ(Checksum(place, sealed.num_tokens), sealed.checksum) << "a step wrote to a findable block";
  }
}

std::vector<TokenLogprob> FakeRunner::Continuations(absl::Span<const int32_t> tokens) {
  Text text;
  for (const int32_t token : tokens) text.Add(token);
  return Distribution(text.context);
}

std::vector<std::vector<int32_t>> FakeRunner::ExpectedOutputs(const EngineRequest& request, int32_t max_len,
                                                              absl::Span<const int32_t> eos_ids) {
  const SamplingParams& params = request.params;
  std::vector<int32_t> ending;
  if (!params.ignore_eos) ending.assign(eos_ids.begin(), eos_ids.end());
  ending.insert(ending.end(), params.stop_token_ids.begin(), params.stop_token_ids.end());
  const auto prompt_len = static_cast<int32_t>(request.prompt_ids.size());
  const int32_t max_output = std::min(params.max_tokens, max_len - prompt_len);
  std::vector<std::vector<int32_t>> outputs;
  if (params.beam_width > 0) {
    for (NaiveHypothesis& hypothesis :
         NaiveBeamSearch(request.prompt_ids, params, max_output, ending, &FakeRunner::Continuations)) {
      outputs.push_back(std::move(hypothesis.output));
    }
    return outputs;
  }
  Text prompt;
  for (const int32_t token : request.prompt_ids) prompt.Add(token);
  for (int32_t i = 0; i < params.n; ++i) outputs.push_back(Continue(prompt, request, i, max_output, ending));
  return outputs;
}

std::vector<float> FakeRunner::ExpectedScores(absl::Span<const int32_t> prompt) {
  std::vector<float> scores;
  Text text;
  for (size_t p = 0; p + 1 < prompt.size(); ++p) {
    text.Add(prompt[p]);
    scores.push_back(LogprobOf(text.context));
  }
  return scores;
}

}  // namespace quire
