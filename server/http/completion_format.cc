#include "server/http/completion_format.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "model/tokenizer/utf8.h"

namespace quire {
namespace {

constexpr float kLowestLogprob = -9999;  // JSON has no infinity

float Finite(float logprob) { return std::max(logprob, kLowestLogprob); }

// An object with as many members as a vocabulary has tokens. Json itself compares a new name with all before it.
class Members {
 public:
  // The last value of a name counts.
  void Set(std::string name, Json value) {
    const auto [place, is_new] = places_.try_emplace(name, members_.size());
    if (is_new) {
      members_.emplace_back(std::move(name), std::move(value));
    } else {
      (members_.begin() + static_cast<std::ptrdiff_t>(place->second))->second = std::move(value);
    }
  }
  Json Take() { return std::move(members_); }

 private:
  Json::object_t members_;
  absl::flat_hash_map<std::string, size_t> places_;
};

int64_t CountCharacters(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// Goes on by the bytes of a token, broken ones as text shows them. The code point that the token begins in.
int64_t Advance(std::string_view bytes, ChoiceState* state) {
  size_t before = state->open.size();  // bytes that are not the token's
  int64_t begin = -1;
  state->open += bytes;
  std::string_view rest = state->open;
  while (!rest.empty()) {
    const utf8::Part part = utf8::NextPart(rest);
    if (begin < 0 && part.size > before) begin = state->num_chars;
    if (part.unfinished) break;
    ++state->num_chars;
    rest.remove_prefix(part.size);
    before -= std::min(before, part.size);
  }
  state->open = std::string(rest);
  return begin < 0 ? state->num_chars : begin;
}

Json FinishReasonOf(const SequenceDelta& delta) {
  if (!delta.finish) return nullptr;
  if (delta.finish->reason == FinishReason::kRepetition) return "repetition";
  if (delta.finish->reason == FinishReason::kStop && delta.finish->called_tools) return "tool_calls";
  return delta.finish->reason == FinishReason::kLength ? "length" : "stop";
}

Json StopReasonOf(const SequenceDelta& delta) {
  if (!delta.finish) return nullptr;
  if (delta.finish->stop == Finish::Stop::kStopString) return delta.finish->stop_string;
  if (delta.finish->stop == Finish::Stop::kStopToken) return delta.finish->token_id;
  return nullptr;
}

}  // namespace

std::string Dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string SseEvent(const Json& object) { return absl::StrCat("data: ", Dump(object), "\n\n"); }

CompletionFormat::CompletionFormat(const Tokenizer& tokenizer, const CompletionRequest& request, std::string id,
                                   std::string model, int64_t created)
    : tokenizer_(tokenizer),
      is_chat_(request.is_chat),
      stream_(request.stream),
      skip_special_tokens_(request.common.skip_special_tokens),
      return_token_ids_(request.return_token_ids),
      tokens_as_ids_(request.tokens_as_ids),
      echo_(request.echo),
      has_logprobs_(request.common.logprobs.has_value()),
      has_prompt_logprobs_(request.prompt_logprobs),
      id_(std::move(id)),
      model_(std::move(model)),
      created_(created) {}

void PromptEcho::Append(PromptInfo part) {
  seed = part.seed;
  text += part.text;
  ids.insert(ids.end(), part.token_ids.begin(), part.token_ids.end());
  std::move(part.logprobs.begin(), part.logprobs.end(), std::back_inserter(logprobs));
}

Json CompletionFormat::Choice(const SequenceDelta& delta, const PromptEcho* prompt, ChoiceState* state) const {
  const PromptEcho* const echo = echo_ ? prompt : nullptr;
  Json choice = {{"index", state->index}};
  if (is_chat_) {
    choice[stream_ ? "delta" : "message"] = ChatMessage(delta, state);
    choice["logprobs"] = ChatLogprobs(delta);
  } else {
    choice["text"] = echo == nullptr ? delta.text : echo->text + delta.text;
    choice["logprobs"] = CompletionLogprobs(delta, echo, state);
  }
  choice["finish_reason"] = FinishReasonOf(delta);
  choice["stop_reason"] = StopReasonOf(delta);
  if (prompt != nullptr) choice["seed"] = prompt->seed;
  if (return_token_ids_) {
    if (prompt != nullptr && !is_chat_) choice["prompt_token_ids"] = prompt->ids;
    choice["token_ids"] = delta.token_ids;
  }
  if (has_prompt_logprobs_ && prompt != nullptr) choice["prompt_logprobs"] = PromptLogprobs(*prompt);
  state->begun = true;
  return choice;
}

Json CompletionFormat::ChatMessage(const SequenceDelta& delta, ChoiceState* state) const {
  Json message = Json::object();
  if (!state->begun) message["role"] = "assistant";
  const bool only_calls = delta.text.empty() && !delta.tool_calls.empty();
  if (!stream_) {
    message["content"] = only_calls ? Json(nullptr) : Json(delta.text);
  } else if (!delta.text.empty() || !state->begun) {
    message["content"] = delta.text;
  }
  if (!delta.reasoning.empty()) message["reasoning_content"] = delta.reasoning;
  if (delta.tool_calls.empty()) return message;
  Json calls = Json::array();
  for (const ToolUse& use : delta.tool_calls) {
    Json call = Json::object();
    if (stream_) call["index"] = state->num_calls;
    ++state->num_calls;
    call["id"] = use.id;
    call["type"] = "function";
    call["function"] = {{"name", use.name}, {"arguments", use.arguments}};
    calls.push_back(std::move(call));
  }
  message["tool_calls"] = std::move(calls);
  return message;
}

Json CompletionFormat::Object(Json choices, const UsageCount* usage, bool is_chunk, const PromptEcho* prompt) const {
  const char* const name = !is_chat_ ? "text_completion" : is_chunk ? "chat.completion.chunk" : "chat.completion";
  Json object = {{"id", id_},
                 {"object", name},
                 {"created", created_},
                 {"model", model_},
                 {"choices", std::move(choices)},
                 {"system_fingerprint", nullptr}};
  if (return_token_ids_ && is_chat_ && prompt != nullptr) object["prompt_token_ids"] = prompt->ids;
  if (usage != nullptr) {
    object["usage"] = {{"prompt_tokens", usage->prompt_tokens},
                       {"completion_tokens", usage->completion_tokens},
                       {"total_tokens", usage->prompt_tokens + usage->completion_tokens},
                       {"prompt_tokens_details", {{"cached_tokens", usage->cached_tokens}}}};
    Json details = Json::object();
    if (is_chat_) details["reasoning_tokens"] = usage->reasoning_tokens;
    if (usage->drafted_tokens > 0) {
      details["accepted_prediction_tokens"] = usage->accepted_tokens;
      details["rejected_prediction_tokens"] = usage->drafted_tokens - usage->accepted_tokens;
    }
    if (!details.empty()) object["usage"]["completion_tokens_details"] = std::move(details);
  }
  return object;
}

std::string CompletionFormat::TokenText(int32_t id) const {
  if (tokens_as_ids_) return absl::StrCat("token_id:", id);
  const std::string_view bytes = tokenizer_.TokenBytes(id);
  if (utf8::IsValid(bytes)) return std::string(bytes);
  std::string text = "bytes:";
  for (const char c : bytes) absl::StrAppendFormat(&text, "\\x%02x", static_cast<unsigned char>(c));
  return text;
}

Json CompletionFormat::CompletionLogprobs(const SequenceDelta& delta, const PromptEcho* echo,
                                          ChoiceState* state) const {
  const bool has_echo = has_logprobs_ && echo != nullptr && !echo->logprobs.empty();
  if (delta.logprobs.empty() && !has_echo) return nullptr;
  Json tokens = Json::array(), logprobs = Json::array(), tops = Json::array(), offsets = Json::array();
  const auto add = [&](int32_t id, const PositionLogprobs& position, bool is_hidden) {
    const std::string_view bytes = tokenizer_.TokenBytes(id);
    tokens.push_back(TokenText(id));
    offsets.push_back(is_hidden ? state->num_chars : Advance(bytes, state));
    if (position.rank == 0) {  // the first token of a prompt
      logprobs.push_back(nullptr);
      tops.push_back(nullptr);
      return;
    }
    logprobs.push_back(Finite(position.logprob));
    Members top;
    for (const TokenLogprob& entry : position.top) top.Set(TokenText(entry.token_id), Finite(entry.logprob));
    if (!position.top.empty()) top.Set(TokenText(id), Finite(position.logprob));
    tops.push_back(position.top.empty() ? Json(nullptr) : top.Take());
  };
  if (has_echo) {
    // A special token stands in the echoed text only where its spelling does.
    size_t at = 0;
    for (size_t i = 0; i < std::min(echo->ids.size(), echo->logprobs.size()); ++i) {
      const std::string_view bytes = tokenizer_.TokenBytes(echo->ids[i]);
      const bool is_hidden = tokenizer_.IsSpecial(echo->ids[i]) && echo->text.compare(at, bytes.size(), bytes) != 0;
      if (!is_hidden) at = std::min(at + bytes.size(), echo->text.size());
      add(echo->ids[i], echo->logprobs[i], is_hidden);
    }
    state->num_chars = CountCharacters(echo->text);
    state->open.clear();
  } else if (echo != nullptr) {
    state->num_chars = CountCharacters(echo->text);
  }
  for (size_t i = 0; i < delta.logprobs.size(); ++i) {
    const int32_t id = delta.logprobs[i].token_id;
    add(id, delta.logprobs[i], skip_special_tokens_ && tokenizer_.IsSpecial(id));
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

Json CompletionFormat::PromptLogprobs(const PromptEcho& prompt) const {
  Json positions = Json::array();
  for (const PositionLogprobs& position : prompt.logprobs) {
    if (position.rank == 0) {
      positions.push_back(nullptr);
      continue;
    }
    Members tokens;
    const auto add = [&](int32_t id, float logprob, int64_t rank) {
      tokens.Set(std::to_string(id), {{"logprob", Finite(logprob)}, {"rank", rank}, {"decoded_token", TokenText(id)}});
    };
    add(position.token_id, position.logprob, position.rank);
    for (size_t i = 0; i < position.top.size(); ++i) {
      add(position.top[i].token_id, position.top[i].logprob, static_cast<int64_t>(i) + 1);
    }
    positions.push_back(tokens.Take());
  }
  return positions;
}

Json CompletionFormat::ChatToken(int32_t id, float logprob) const {
  const std::string_view bytes = tokenizer_.TokenBytes(id);
  Json numbers = Json::array();
  for (const char c : bytes) numbers.push_back(static_cast<unsigned char>(c));
  return {{"token", TokenText(id)}, {"logprob", Finite(logprob)}, {"bytes", std::move(numbers)}, {"id", id}};
}

Json CompletionFormat::ChatLogprobs(const SequenceDelta& delta) const {
  if (delta.logprobs.empty()) return nullptr;
  Json content = Json::array();
  for (const PositionLogprobs& position : delta.logprobs) {
    Json entry = ChatToken(position.token_id, position.logprob);
    Json tops = Json::array();
    for (const TokenLogprob& top : position.top) tops.push_back(ChatToken(top.token_id, top.logprob));
    entry["top_logprobs"] = std::move(tops);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

}  // namespace quire
