#include "server/frontend/request_stream.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/philox.h"
#include "server/frontend/errors.h"

namespace quire {
namespace {

// Entries as in SampledToken: the token itself, then the best ones.
PositionLogprobs MakePosition(absl::Span<const TokenLogprob> entries, int32_t rank) {
  QUIRE_CHECK(!entries.empty());
  PositionLogprobs position;
  position.logprob = entries[0].logprob;
  position.rank = rank;
  position.top.assign(entries.begin() + 1, entries.end());
  position.token_id = entries[0].token_id;
  return position;
}

// The special tokens that tell the parts of a reply apart.
std::vector<int32_t> SpecialMarks(const Tokenizer& tokenizer, const ReplySyntax& syntax) {
  std::vector<int32_t> ids;
  for (const std::string_view mark : MarksOf(syntax)) {
    const int32_t id = tokenizer.TokenId(mark);
    if (id >= 0 && tokenizer.IsSpecial(id)) ids.push_back(id);
  }
  return ids;
}

// Mistral's templates take ids of exactly nine letters and digits; nobody minds them.
std::string CallId(uint64_t key, uint32_t sequence, uint64_t index, ToolSyntax syntax) {
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const size_t size = syntax == ToolSyntax::kMistral ? 9 : 24;
  std::string id = syntax == ToolSyntax::kMistral ? "" : "call_";
  for (uint32_t block = 0; block * 4 < size; ++block) {
    const auto numbers = Philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), sequence, block},
                                    {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
    for (size_t i = 0; i < 4 && block * 4 + i < size; ++i) id += kDigits[numbers[i] % kDigits.size()];
  }
  return id;
}

absl::Duration Between(absl::Time begin, absl::Time end) {
  if (begin == absl::InfinitePast() || end == absl::InfinitePast()) return absl::ZeroDuration();
  return std::max(absl::ZeroDuration(), end - begin);
}

}  // namespace

std::string_view MissReasonName(MissReason reason) {
  switch (reason) {
    case MissReason::kNone:
      break;
    case MissReason::kCacheOff:
      return "cache_off";
    case MissReason::kBypassed:
      return "bypassed";
    case MissReason::kUnderMinimum:
      return "under_minimum";
    case MissReason::kCopyNotWorth:
      return "copy_not_worth";
    case MissReason::kEvicted:
      return "evicted";
    case MissReason::kOtherRoot:
      return "other_root";
    case MissReason::kNeverSeen:
      return "never_seen";
    case MissReason::kSlidOut:
      return "slid_out";
  }
  return "";
}

RequestStream::RequestStream(const Tokenizer& tokenizer, StreamOptions options, absl::Span<const int32_t> prompt)
    : options_(std::move(options)),
      stops_(options_.params.stop_strings),
      decode_text_(options_.want_text || stops_.size() > 0),
      echo_(options_.echo),
      latest_(options_.arrival) {
  const SamplingParams& params = options_.params;
  IncrementalDecoder decoder(tokenizer, params.skip_special_tokens, SpecialMarks(tokenizer, options_.reply));
  if (decode_text_) decoder.Continue(prompt);
  sequences_.reserve(params.n);
  for (int32_t i = 0; i < params.n; ++i) {
    sequences_.push_back(
        {decoder, StopChecker(stops_, params.include_stop_str_in_output, params.min_tokens), FinishReason::kNone, {}});
    if (!options_.reply.is_plain()) sequences_.back().parser.emplace(options_.reply.tools, options_.reply.reasoning);
    sequences_.back().delta.index = i;
    if (!chooses()) returned_.push_back(&sequences_.back());
  }
  usage_.prompt_tokens = options_.prompt_tokens;
  if (params.prompt_logprobs) prompt_logprobs_.emplace_back();  // the first position has none
}

void RequestStream::AddPromptScore(const PromptScoreOutput& score, absl::Span<const TokenLogprob> logprobs) {
  if (score.position <= num_prompt_scores_) return;  // a resumed request may score a position again
  QUIRE_CHECK(score.position == num_prompt_scores_ + 1);
  ++num_prompt_scores_;
  has_prompt_news_ = true;
  prompt_logprobs_.push_back(MakePosition(logprobs.subspan(score.logprobs_begin, score.logprobs_count), score.rank));
}

bool RequestStream::AddOutput(const SequenceOutput& output, absl::Span<const TokenLogprob> logprobs, EndCause cause) {
  Sequence& sequence = sequences_[output.sequence_index];
  if (all_finished() || !error_.ok()) return false;
  NoteProgress(output);
  if (sequence.reason != FinishReason::kNone) return false;
  if (output.finish_reason == FinishReason::kError) {
    error_ = output.error.ok() ? absl::InternalError("the engine gave no reason") : output.error;
    return false;
  }
  if (output.finish_reason == FinishReason::kAborted) {
    EndAborted(sequence, cause);
    return false;
  }

  AddToken(output, logprobs, sequence);
  if (const std::optional<int32_t> stop = AddText(output, sequence)) {
    Finish finish{FinishReason::kStop, Finish::Stop::kStopString, -1, stops_.text(*stop)};
    EndSequence(sequence, std::move(finish));
    return output.finish_reason == FinishReason::kNone;
  }
  if (output.finish_reason != FinishReason::kNone) EndSequence(sequence, FinishOf(output));
  return false;
}

void RequestStream::AbortAll(absl::Time now) {
  latest_ = now;
  for (Sequence& sequence : sequences_) {
    if (sequence.reason == FinishReason::kNone) EndAborted(sequence, EndCause::kAbort);
  }
}

// Ties go to the lower index.
void RequestStream::ChooseBest() {
  for (Sequence& sequence : sequences_) {
    if (sequence.num_tokens > 0) sequence.logprob /= sequence.num_tokens;
    returned_.push_back(&sequence);
  }
  std::stable_sort(returned_.begin(), returned_.end(),
                   [](const Sequence* a, const Sequence* b) { return a->logprob > b->logprob; });
  returned_.resize(options_.num_returned);
  std::vector<int32_t> order;
  for (size_t i = 0; i < returned_.size(); ++i) {
    order.push_back(returned_[i]->delta.index);
    returned_[i]->delta.index = static_cast<int32_t>(i);
    returned_[i]->delta.finish->score = returned_[i]->logprob;
  }
  if (options_.tokens != nullptr) options_.tokens->Keep(order);
}

std::optional<OutputDelta> RequestStream::Take() {
  OutputDelta delta;
  if (all_finished() && returned_.empty()) ChooseBest();
  for (Sequence* sequence : returned_) {
    SequenceDelta& news = sequence->delta;
    if (!options_.want_text) news.text.clear();
    const bool says_nothing = news.text.empty() && news.reasoning.empty() && news.tool_calls.empty() &&
                              news.token_ids.empty() && news.logprobs.empty() && !news.finish;
    if (says_nothing) continue;
    const int32_t index = news.index;
    delta.sequences.push_back(std::move(news));
    news = {};
    news.index = index;
  }
  const bool last = all_finished() && !last_taken_;
  if (delta.sequences.empty() && !has_prompt_news_ && !last) return std::nullopt;
  if (!prompt_sent_ || has_prompt_news_) {
    delta.prompt = PromptInfo{usage_.prompt_tokens, static_cast<int64_t>(options_.params.seed),
                              std::move(prompt_logprobs_), std::move(echo_.text), std::move(echo_.ids)};
    prompt_logprobs_.clear();
    echo_ = {};
    has_prompt_news_ = false;
    prompt_sent_ = true;
  }
  if (last) {
    delta.usage = usage_;
    delta.timings = timings();
    last_taken_ = true;
  }
  return delta;
}

Timings RequestStream::timings() const {
  Timings timings;
  timings.queue = Between(options_.arrival, scheduled_ == absl::InfinitePast() ? latest_ : scheduled_);
  timings.prefill = Between(scheduled_, first_token_ == absl::InfinitePast() ? latest_ : first_token_);
  timings.decode = Between(first_token_, latest_);
  timings.total = Between(options_.arrival, latest_);
  timings.preemptions = preemptions_;
  timings.first_step = first_step_;
  timings.last_step = last_step_;
  return timings;
}

void RequestStream::AddToken(const SequenceOutput& output, absl::Span<const TokenLogprob> logprobs,
                             Sequence& sequence) {
  TellToken(output, sequence);
  ++usage_.completion_tokens;
  ++sequence.num_tokens;
  if (options_.tokens != nullptr) options_.tokens->Append(sequence.delta.index, output.token_id);
  if (chooses()) sequence.logprob += logprobs[output.logprobs_begin].logprob;
  if (options_.want_token_ids) sequence.delta.token_ids.push_back(output.token_id);
  if (options_.params.logprobs) {
    sequence.delta.logprobs.push_back(
        MakePosition(logprobs.subspan(output.logprobs_begin, output.logprobs_count), output.rank));
  }
}

void RequestStream::TellToken(const SequenceOutput& output, Sequence& sequence) const {
  const absl::Time before = std::exchange(sequence.token_time, output.time);
  if (!options_.on_token) return;
  if (sequence.num_tokens > 0) {
    options_.on_token(Between(before, output.time), /*is_first=*/false);
  } else if (usage_.completion_tokens == 0) {
    options_.on_token(Between(options_.arrival, output.time), /*is_first=*/true);
  }
}

int32_t RequestStream::longest_output() const {
  int32_t longest = 0;
  for (const Sequence& sequence : sequences_) longest = std::max(longest, sequence.num_tokens);
  return longest;
}

std::optional<int32_t> RequestStream::AddText(const SequenceOutput& output, Sequence& sequence) {
  if (!decode_text_) return std::nullopt;
  const bool ends = output.finish_reason != FinishReason::kNone;
  const bool include_stop = options_.params.include_stop_str_in_output;
  std::string piece;
  // An id that ended the sequence is text only on request, as a stop string is.
  const bool stopped_by_id = output.finish_reason == FinishReason::kStop && output.stop_token_id >= 0;
  if (!stopped_by_id || include_stop) sequence.decoder.Push(output.token_id, &piece);
  if (ends) sequence.decoder.Flush(&piece);
  std::string text;
  std::optional<int32_t> stop;
  if (const int32_t found = sequence.checker.Push(piece, &text); found >= 0) stop = found;
  if (ends && !stop) {
    sequence.checker.Flush(&text);
    if (stopped_by_id) stop = HiddenStop(output.token_id);
    if (stop && include_stop) text += stops_.text(*stop);
  }
  Deliver(std::move(text), sequence);
  return stop;
}

void RequestStream::Deliver(std::string text, Sequence& sequence) {
  if (!sequence.parser) {
    sequence.delta.text += text;
    return;
  }
  const bool was_reasoning = sequence.parser->is_reasoning();
  Deliver(sequence.parser->Feed(text), sequence);
  if (was_reasoning || sequence.parser->is_reasoning()) ++usage_.reasoning_tokens;
}

void RequestStream::Deliver(ReplyDelta reply, Sequence& sequence) {
  sequence.delta.text += reply.content;
  sequence.delta.reasoning += reply.reasoning;
  for (ToolCall& call : reply.calls) {
    if (sequence.num_calls > 0 && !options_.parallel_tool_calls) break;
    const auto index = static_cast<uint32_t>(&sequence - sequences_.data());
    std::string id = CallId(options_.call_id_key, index, sequence.num_calls++, options_.reply.tools);
    sequence.delta.tool_calls.push_back({std::move(id), std::move(call.name), std::move(call.arguments)});
  }
}

std::optional<int32_t> RequestStream::HiddenStop(int32_t token_id) const {
  for (const auto& [id, index] : options_.hidden_stops) {
    if (id == token_id) return index;
  }
  return std::nullopt;
}

void RequestStream::EndAborted(Sequence& sequence, EndCause cause) {
  if (cause == EndCause::kClientGone) {
    error_ = absl::CancelledError("cancelled by the client");
  } else if (cause != EndCause::kAbort) {
    error_ = RetryAfter(absl::UnavailableError("the server is shutting down"), absl::Seconds(1));
  } else {
    std::string text;
    sequence.checker.Flush(&text);
    sequence.decoder.Flush(&text);
    Deliver(std::move(text), sequence);
    Finish finish;
    finish.reason = FinishReason::kAborted;
    EndSequence(sequence, std::move(finish));
  }
}

void RequestStream::EndSequence(Sequence& sequence, Finish finish) {
  if (sequence.parser) Deliver(sequence.parser->Finish(), sequence);
  finish.called_tools = sequence.num_calls > 0;
  sequence.reason = finish.reason;
  sequence.delta.finish = std::move(finish);
  ++num_finished_;
}

Finish RequestStream::FinishOf(const SequenceOutput& output) const {
  Finish finish;
  finish.reason = output.finish_reason;
  if (output.finish_reason == FinishReason::kStop && output.stop_token_id >= 0) {
    finish.stop = output.stopped_by_eos ? Finish::Stop::kEos : Finish::Stop::kStopToken;
    finish.token_id = output.stop_token_id;
  }
  if (options_.params.beam_width > 0) finish.score = output.score;
  return finish;
}

void RequestStream::NoteProgress(const SequenceOutput& output) {
  usage_.cached_tokens = output.cached_tokens;
  usage_.drafted_tokens = output.drafted_tokens;
  usage_.accepted_tokens = output.accepted_tokens;
  usage_.cache_miss = {output.miss, output.missed_block, Between(output.evicted_at, output.time)};
  preemptions_ = output.num_preemptions;
  first_step_ = output.first_step;
  last_step_ = output.last_step;
  scheduled_ = output.scheduled_time;
  first_token_ = output.first_token_time;
  latest_ = output.time;
}

}  // namespace quire
