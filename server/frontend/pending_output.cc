#include "server/frontend/pending_output.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "kernels/base/check.h"

namespace quire {
namespace {

// Of tags, lengths and values at their largest.
constexpr int64_t kMessageBytes = 512;  // ids, usage, timings
constexpr int64_t kSequenceBytes = 64;  // index, finish but for its stop string
constexpr int64_t kTokenBytes = 5;

int64_t Bytes(const PositionLogprobs& position) { return 24 + 16 * static_cast<int64_t>(position.top.size()); }

int64_t Bytes(const PromptInfo& prompt) {
  int64_t bytes = static_cast<int64_t>(prompt.text.size() + kTokenBytes * prompt.token_ids.size());
  for (const PositionLogprobs& position : prompt.logprobs) bytes += Bytes(position);
  return bytes;
}

int64_t Bytes(const ToolUse& call) {
  return 24 + static_cast<int64_t>(call.id.size() + call.name.size() + call.arguments.size());
}

int64_t Bytes(const SequenceDelta& delta) {
  int64_t bytes = kSequenceBytes + static_cast<int64_t>(delta.text.size() + delta.reasoning.size() +
                                                        kTokenBytes * delta.token_ids.size());
  for (const ToolUse& call : delta.tool_calls) bytes += Bytes(call);
  for (const PositionLogprobs& position : delta.logprobs) bytes += Bytes(position);
  if (delta.finish) bytes += static_cast<int64_t>(delta.finish->stop_string.size());
  return bytes;
}

template <typename T>
void MoveFront(std::vector<T>* from, size_t count, std::vector<T>* to) {
  to->insert(to->end(), std::make_move_iterator(from->begin()), std::make_move_iterator(from->begin() + count));
  from->erase(from->begin(), from->begin() + count);
}

// How many positions, each with `extra` bytes beside it, fit into *room; at least one if `must_take`. Takes their bytes
// off *room.
size_t CountFitting(const std::vector<PositionLogprobs>& positions, int64_t extra, bool must_take, int64_t* room) {
  size_t count = 0;
  for (; count < positions.size(); ++count) {
    const int64_t bytes = Bytes(positions[count]) + extra;
    if (bytes > *room && !(must_take && count == 0)) break;
    *room -= bytes;
  }
  return count;
}

// The longest beginning of `text` of at most `room` bytes that ends between characters.
size_t CharacterBoundary(const std::string& text, int64_t room) {
  if (static_cast<int64_t>(text.size()) <= room) return text.size();
  auto end = static_cast<size_t>(std::max<int64_t>(room, 0));
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return end;
}

// Moves what fits of *from to *to, at least something; *room becomes what is left. True if all did.
bool MovePart(PromptInfo* from, int64_t* room, PromptInfo* to) {
  to->text = from->text.substr(0, CharacterBoundary(from->text, std::max<int64_t>(*room, 4)));
  from->text.erase(0, to->text.size());
  *room -= static_cast<int64_t>(to->text.size());
  if (!from->text.empty()) return false;
  const auto fit = static_cast<size_t>(std::max<int64_t>(*room / kTokenBytes, to->text.empty() ? 1 : 0));
  MoveFront(&from->token_ids, std::min(fit, from->token_ids.size()), &to->token_ids);
  *room -= kTokenBytes * static_cast<int64_t>(to->token_ids.size());
  if (!from->token_ids.empty()) return false;
  const bool must_take = to->text.empty() && to->token_ids.empty();
  MoveFront(&from->logprobs, CountFitting(from->logprobs, /*extra=*/0, must_take, room), &to->logprobs);
  return from->logprobs.empty();
}

// Moves the beginning of *from that fits, at least a character if must_take. Returns its size.
size_t MoveText(std::string* from, bool must_take, int64_t room, std::string* to) {
  const size_t bytes = CharacterBoundary(*from, must_take ? std::max<int64_t>(room, 4) : room);
  *to = from->substr(0, bytes);
  from->erase(0, bytes);
  return bytes;
}

// Moves what fits of *from to *to. True if all did.
bool MovePart(SequenceDelta* from, bool must_take, int64_t room, SequenceDelta* to) {
  to->index = from->index;
  for (const auto text : {&SequenceDelta::reasoning, &SequenceDelta::text}) {
    const size_t moved = MoveText(&(from->*text), must_take, room, &(to->*text));
    room -= static_cast<int64_t>(moved);
    must_take = must_take && moved == 0;
    if (!(from->*text).empty()) return false;
  }
  size_t num_calls = 0;  // whole ones
  while (num_calls < from->tool_calls.size() && (must_take || Bytes(from->tool_calls[num_calls]) <= room)) {
    room -= Bytes(from->tool_calls[num_calls++]);
    must_take = false;
  }
  MoveFront(&from->tool_calls, num_calls, &to->tool_calls);
  if (!from->tool_calls.empty()) return false;

  // Ids and log-probabilities of one token travel together.
  const bool both = !from->token_ids.empty() && !from->logprobs.empty();
  QUIRE_CHECK(!both || from->token_ids.size() == from->logprobs.size());
  if (!from->logprobs.empty()) {
    const size_t count = CountFitting(from->logprobs, both ? kTokenBytes : 0, must_take, &room);
    MoveFront(&from->logprobs, count, &to->logprobs);
    if (both) MoveFront(&from->token_ids, count, &to->token_ids);
  } else {
    const auto fit = static_cast<size_t>(std::max<int64_t>(room / kTokenBytes, must_take ? 1 : 0));
    MoveFront(&from->token_ids, std::min(fit, from->token_ids.size()), &to->token_ids);
  }
  if (!from->text.empty() || !from->token_ids.empty() || !from->logprobs.empty()) return false;
  to->finish = std::move(from->finish);
  return true;
}

}  // namespace

void PendingOutput::Merge(OutputDelta delta) {
  QUIRE_CHECK(!merged_.is_last());
  if (empty_) bytes_ = kMessageBytes;
  empty_ = false;
  if (delta.prompt) {
    const int64_t news = Bytes(*delta.prompt);
    prompt_bytes_ += news;
    bytes_ += news;
    if (!merged_.prompt) {
      merged_.prompt = std::move(delta.prompt);
    } else {
      PromptInfo& prompt = *merged_.prompt;
      prompt.text += delta.prompt->text;
      MoveFront(&delta.prompt->token_ids, delta.prompt->token_ids.size(), &prompt.token_ids);
      MoveFront(&delta.prompt->logprobs, delta.prompt->logprobs.size(), &prompt.logprobs);
    }
  }
  for (SequenceDelta& news : delta.sequences) {
    bytes_ += Bytes(news);
    const auto known = std::find_if(merged_.sequences.begin(), merged_.sequences.end(),
                                    [&news](const SequenceDelta& other) { return other.index == news.index; });
    if (known == merged_.sequences.end()) {
      merged_.sequences.push_back(std::move(news));
      continue;
    }
    bytes_ -= kSequenceBytes;
    known->text += news.text;
    known->reasoning += news.reasoning;
    MoveFront(&news.tool_calls, news.tool_calls.size(), &known->tool_calls);
    MoveFront(&news.token_ids, news.token_ids.size(), &known->token_ids);
    MoveFront(&news.logprobs, news.logprobs.size(), &known->logprobs);
    if (news.finish) known->finish = std::move(news.finish);
  }
  merged_.usage = delta.usage;
  merged_.timings = delta.timings;
}

void PendingOutput::Recount() {
  bytes_ = kMessageBytes + prompt_bytes_;
  for (const SequenceDelta& sequence : merged_.sequences) bytes_ += Bytes(sequence);
}

OutputDelta PendingOutput::Take(int64_t max_bytes) {
  QUIRE_CHECK(!empty_);
  if (bytes_ <= max_bytes) {
    OutputDelta all = std::move(merged_);
    Clear();
    return all;
  }
  OutputDelta part;
  int64_t room = max_bytes - kMessageBytes;
  if (merged_.prompt) {
    part.prompt = PromptInfo{merged_.prompt->prompt_tokens, merged_.prompt->seed, {}};
    const int64_t before = room;
    const bool all = MovePart(&*merged_.prompt, &room, &*part.prompt);
    prompt_bytes_ -= before - room;
    if (all) merged_.prompt.reset();
  }
  while (!merged_.prompt && !merged_.sequences.empty()) {
    const bool first = part.sequences.empty() && !part.prompt;
    if (!first && room < 2 * kSequenceBytes) break;
    SequenceDelta& from = merged_.sequences.front();
    SequenceDelta moved;
    const bool all = MovePart(&from, first, room - kSequenceBytes, &moved);
    room -= Bytes(moved);
    part.sequences.push_back(std::move(moved));
    if (!all) break;
    merged_.sequences.erase(merged_.sequences.begin());
  }
  if (!merged_.prompt && merged_.sequences.empty()) {
    part.usage = merged_.usage;
    part.timings = merged_.timings;
    Clear();
  } else {
    Recount();
  }
  return part;
}

}  // namespace quire
