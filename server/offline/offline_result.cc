#include "server/offline/offline_result.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/check.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

// Errors name fields as the wire nests them: here they stand on one level.
constexpr std::pair<const char*, const char*> kFieldNames[] = {{"sampling.beam_search.width", "beam_width"},
                                                               {"sampling.beam_search.", ""},
                                                               {"sampling.dry.", "dry_"},
                                                               {"sampling.dynamic_temperature.", "dynatemp_"},
                                                               {"sampling.xtc.", "xtc_"},
                                                               {"sampling.mirostat.", "mirostat_"},
                                                               {"sampling.", ""},
                                                               {"stopping.", ""},
                                                               {"output.", ""},
                                                               {"cache.", "cache_"},
                                                               {"token_ids.ids[", "prompt_ids["},
                                                               {"text: ", "prompt: "}};

// Written by hand: a whole vocabulary for each token of a prompt is too much for a tree of JSON values.
void AppendEntry(int32_t token_id, float logprob, std::string* json) {
  absl::StrAppend(json, json->back() == '[' ? "[" : ",[", token_id, ",");
  if (std::isfinite(logprob)) {
    char digits[32];
    const std::to_chars_result end = std::to_chars(std::begin(digits), std::end(digits), logprob);
    json->append(digits, end.ptr);
  } else {
    json->append("null");
  }
  json->push_back(']');
}

void AppendPosition(const PositionLogprobs& position, std::string* json) {
  if (position.rank == 0) {
    json->append("null");
    return;
  }
  json->push_back('[');
  for (const TokenLogprob& entry : position.top) AppendEntry(entry.token_id, entry.logprob, json);
  const auto is_chosen = [&](const TokenLogprob& entry) { return entry.token_id == position.token_id; };
  if (std::none_of(position.top.begin(), position.top.end(), is_chosen)) {
    AppendEntry(position.token_id, position.logprob, json);
  }
  json->push_back(']');
}

void AppendPositions(const std::vector<PositionLogprobs>& positions, std::string* json) {
  if (positions.empty()) {
    json->append("null");
    return;
  }
  for (size_t i = 0; i < positions.size(); ++i) {
    json->push_back(i == 0 ? '[' : ',');
    AppendPosition(positions[i], json);
  }
  json->push_back(']');
}

Json StopReason(const Finish& finish) {
  switch (finish.stop) {
    case Finish::Stop::kStopToken:
      return finish.token_id;
    case Finish::Stop::kStopString:
      return finish.stop_string;
    default:
      return nullptr;
  }
}

// ,"reasoning":"...","tool_calls":[...], as far as there are any.
std::string ChatParts(const std::string& reasoning, const std::vector<ToolUse>& calls) {
  std::string json;
  if (!reasoning.empty()) absl::StrAppend(&json, ",\"reasoning\":", Json(reasoning).dump());
  if (calls.empty()) return json;
  Json list = Json::array();
  for (const ToolUse& call : calls)
    list.push_back({{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
  absl::StrAppend(&json, ",\"tool_calls\":", list.dump(-1, ' ', false, Json::error_handler_t::replace));
  return json;
}

const char* ReasonName(const Finish& finish) {
  switch (finish.reason) {
    case FinishReason::kStop:
      return finish.called_tools ? "tool_calls" : "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kRepetition:
      return "repetition";
    default:
      return "abort";
  }
}

template <typename T>
void MoveTo(std::vector<T>& from, std::vector<T>* to) {
  to->insert(to->end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

void OfflineResult::Add(OutputDelta delta) {
  if (delta.prompt) MoveTo(delta.prompt->logprobs, &prompt_logprobs_);
  for (SequenceDelta& news : delta.sequences) {
    Sequence& sequence = sequences_[news.index];
    MoveTo(news.token_ids, &sequence.output_ids);
    sequence.text += news.text;
    sequence.reasoning += news.reasoning;
    MoveTo(news.tool_calls, &sequence.tool_calls);
    MoveTo(news.logprobs, &sequence.logprobs);
    if (news.finish) sequence.finish = *std::move(news.finish);
  }
  if (delta.usage) {
    usage_ = *delta.usage;
    timings_ = delta.timings;
  }
}

void OfflineResult::AppendSequence(const Sequence& sequence, std::string* json) {
  absl::StrAppend(json, "\"output_ids\":[", absl::StrJoin(sequence.output_ids, ","),
                  "],\"text\":", Json(sequence.text).dump(), ChatParts(sequence.reasoning, sequence.tool_calls),
                  ",\"finish_reason\":\"", ReasonName(sequence.finish),
                  "\",\"stop_reason\":", StopReason(sequence.finish).dump(), ",\"logprobs\":");
  AppendPositions(sequence.logprobs, json);
  if (sequence.finish.score) absl::StrAppend(json, ",\"score\":", Json(*sequence.finish.score).dump());
}

std::string OfflineResult::ToJson(const nlohmann::json& id) const {
  QUIRE_CHECK(!sequences_.empty());
  std::string json = absl::StrCat("{\"id\":", id.dump(), ",");
  AppendSequence(sequences_.begin()->second, &json);
  absl::StrAppend(&json, ",\"prompt_logprobs\":");
  AppendPositions(prompt_logprobs_, &json);
  if (sequences_.size() > 1) {
    absl::StrAppend(&json, ",\"outputs\":");
    for (const auto& [index, sequence] : sequences_) {
      absl::StrAppend(&json, index == 0 ? "[" : ",", "{\"index\":", index, ",");
      AppendSequence(sequence, &json);
      json.push_back('}');
    }
    json.push_back(']');
  }
  Json usage = {{"prompt_tokens", usage_.prompt_tokens},
                {"cached_tokens", usage_.cached_tokens},
                {"completion_tokens", usage_.completion_tokens}};
  if (usage_.drafted_tokens > 0) {
    usage["drafted_tokens"] = usage_.drafted_tokens;
    usage["accepted_tokens"] = usage_.accepted_tokens;
  }
  if (const CacheMiss& miss = usage_.cache_miss; miss.reason != MissReason::kNone) {
    usage["cache_miss"] = {{"reason", MissReasonName(miss.reason)}, {"block", miss.block}};
    if (miss.reason == MissReason::kEvicted)
      usage["cache_miss"]["evicted_seconds_ago"] = absl::ToDoubleSeconds(miss.evicted_ago);
  }
  const Json timings = {{"queue", absl::ToDoubleSeconds(timings_.queue)},
                        {"prefill", absl::ToDoubleSeconds(timings_.prefill)},
                        {"decode", absl::ToDoubleSeconds(timings_.decode)},
                        {"total", absl::ToDoubleSeconds(timings_.total)},
                        {"preemptions", timings_.preemptions},
                        {"first_step", timings_.first_step},
                        {"last_step", timings_.last_step}};
  return absl::StrCat(json, ",\"usage\":", usage.dump(), ",\"timings\":", timings.dump(), "}");
}

std::string ErrorJson(const nlohmann::json& id, const absl::Status& status) {
  std::string message(status.message());
  for (const auto& [wire, here] : kFieldNames) {
    if (message.rfind(wire, 0) == 0) message.replace(0, std::string_view(wire).size(), here);
  }
  const Json error = {{"code", absl::StatusCodeToString(status.code())}, {"message", message}};
  return Json({{"id", id}, {"error", error}}).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace quire
