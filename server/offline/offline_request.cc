#include "server/offline/offline_request.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "model/tokenizer/utf8.h"
#include "server/frontend/chat_prompt.h"
#include "server/frontend/errors.h"
#include "server/frontend/tool_choice.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;  // templates show keys in their order

absl::Status WrongType(const std::string& field, const char* wanted, const Json& value) {
  return InvalidField(field, absl::StrCat("must be ", wanted, ", is ", value.type_name()));
}

absl::Status Read(const std::string& field, const Json& value, bool* out) {
  if (!value.is_boolean()) return WrongType(field, "true or false", value);
  *out = value.get<bool>();
  return absl::OkStatus();
}

absl::Status Read(const std::string& field, const Json& value, int64_t* out) {
  if (!value.is_number_integer()) return WrongType(field, "an integer", value);
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
    return InvalidField(field, absl::StrCat(value.get<uint64_t>(), " is above 2^63 - 1"));
  }
  *out = value.get<int64_t>();
  return absl::OkStatus();
}

absl::Status Read(const std::string& field, const Json& value, float* out) {
  if (!value.is_number()) return WrongType(field, "a number", value);
  *out = static_cast<float>(value.get<double>());
  return absl::OkStatus();
}

absl::Status Read(const std::string& field, const Json& value, double* out) {
  if (!value.is_number()) return WrongType(field, "a number", value);
  *out = value.get<double>();
  return absl::OkStatus();
}

absl::Status Read(const std::string& field, const Json& value, std::string* out) {
  if (!value.is_string()) return WrongType(field, "a string", value);
  *out = value.get<std::string>();
  return absl::OkStatus();
}

// Objects; below.
absl::Status Read(const std::string& field, const Json& value, KeepRequest* out);
absl::Status Read(const std::string& field, const Json& value, CacheRequest::Range* out);
absl::Status Read(const std::string& field, const Json& value, CacheRequest::Breakpoint* out);

template <typename T>
absl::Status Read(const std::string& field, const Json& value, std::vector<T>* out) {
  if (!value.is_array()) return WrongType(field, "an array", value);
  out->resize(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    QUIRE_RETURN_IF_ERROR(Read(absl::StrCat(field, "[", i, "]"), value[i], &(*out)[i]));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status Read(const std::string& field, const Json& value, std::optional<T>* out) {
  return Read(field, value, &out->emplace());
}

// Reads one member of an object, if it is there.
template <typename T>
absl::Status ReadMemberOf(const std::string& field, const Json& object, const char* name, T* out) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return absl::OkStatus();
  return Read(absl::StrCat(field, ".", name), *found, out);
}

// An object without members of other names.
absl::Status CheckObject(const std::string& field, const Json& value, std::initializer_list<std::string_view> names) {
  if (!value.is_object()) return WrongType(field, "an object", value);
  for (const auto& [name, member] : value.items()) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      return InvalidField(absl::StrCat(field, ".", name), "is no field of it");
  }
  return absl::OkStatus();
}

absl::Status Read(const std::string& field, const Json& value, KeepRequest* out) {
  QUIRE_RETURN_IF_ERROR(CheckObject(field, value, {"priority", "ttl_seconds"}));
  QUIRE_RETURN_IF_ERROR(ReadMemberOf(field, value, "priority", &out->priority));
  return ReadMemberOf(field, value, "ttl_seconds", &out->ttl_seconds);
}

absl::Status Read(const std::string& field, const Json& value, CacheRequest::Range* out) {
  QUIRE_RETURN_IF_ERROR(CheckObject(field, value, {"begin", "end", "keep"}));
  QUIRE_RETURN_IF_ERROR(ReadMemberOf(field, value, "begin", &out->begin));
  QUIRE_RETURN_IF_ERROR(ReadMemberOf(field, value, "end", &out->end));
  return ReadMemberOf(field, value, "keep", &out->keep);
}

absl::Status Read(const std::string& field, const Json& value, CacheRequest::Breakpoint* out) {
  QUIRE_RETURN_IF_ERROR(CheckObject(field, value, {"position", "ttl_seconds"}));
  QUIRE_RETURN_IF_ERROR(ReadMemberOf(field, value, "position", &out->position));
  return ReadMemberOf(field, value, "ttl_seconds", &out->ttl_seconds);
}

absl::Status ReadPromptIds(const std::string& field, const Json& value, GenerateRequest* out) {
  if (std::holds_alternative<std::string>(out->prompt))
    return InvalidField(field, "goes with prompt; give one of them");
  return Read(field, value, &out->prompt.emplace<std::vector<int64_t>>());
}

absl::Status ReadPrompt(const std::string& field, const Json& value, GenerateRequest* out) {
  if (std::holds_alternative<std::vector<int64_t>>(out->prompt)) {
    return InvalidField(field, "goes with prompt_ids; give one of them");
  }
  return Read(field, value, &out->prompt.emplace<std::string>());
}

absl::Status ReadStop(const std::string& field, const Json& value, GenerateRequest* out) {
  if (value.is_string()) return Read(field, value, &out->stop.emplace_back());
  return Read(field, value, &out->stop);
}

// As Hugging Face writes it.
absl::Status ReadEarlyStopping(const std::string& field, const Json& value, GenerateRequest* out) {
  if (value == "never") {
    out->early_stopping = 3;
    return absl::OkStatus();
  }
  if (!value.is_boolean()) return WrongType(field, "true, false or \"never\"", value);
  out->early_stopping = value.get<bool>() ? 2 : 1;
  return absl::OkStatus();
}

// {"50256": -100, ...}
absl::Status ReadLogitBias(const std::string& field, const Json& value, GenerateRequest* out) {
  if (!value.is_object()) return WrongType(field, "an object", value);
  for (const auto& [key, bias] : value.items()) {
    int64_t id = 0;
    if (!absl::SimpleAtoi(key, &id)) return InvalidField(absl::StrCat(field, ".", key), "is no token id");
    out->rules.logit_bias.emplace_back(id, 0.0f);
    QUIRE_RETURN_IF_ERROR(Read(absl::StrCat(field, ".", key), bias, &out->rules.logit_bias.back().second));
  }
  return absl::OkStatus();
}

absl::Status ReadRepetition(const std::string& field, const Json& value, GenerateRequest* out) {
  QUIRE_RETURN_IF_ERROR(CheckObject(field, value, {"max_pattern_size", "min_pattern_size", "min_count"}));
  RepetitionRequest& detection = out->repetition_detection.emplace();
  QUIRE_RETURN_IF_ERROR(ReadMemberOf(field, value, "max_pattern_size", &detection.max_pattern_size));
  QUIRE_RETURN_IF_ERROR(ReadMemberOf(field, value, "min_pattern_size", &detection.min_pattern_size));
  return ReadMemberOf(field, value, "min_count", &detection.min_count);
}

// Sets *out to the number of the word, from 1.
absl::Status ReadWord(const std::string& field, const Json& value, const char* first, const char* second,
                      int64_t* out) {
  *out = value == first ? 1 : 2;
  if (value == first || value == second) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("must be \"", first, "\" or \"", second, "\""));
}

absl::Status ReadTruncationSide(const std::string& field, const Json& value, GenerateRequest* out) {
  return ReadWord(field, value, "left", "right", &out->truncation_side);
}

absl::Status ReadLogprobsMode(const std::string& field, const Json& value, GenerateRequest* out) {
  return ReadWord(field, value, "raw_logprobs", "processed_logprobs", &out->logprobs_mode);
}

absl::Status SetKind(const std::string& field, StructuredOutput::Kind kind, StructuredOutput* out) {
  if (out->kind != StructuredOutput::Kind::kFree)
    return InvalidField(field, absl::StrCat("goes with ", out->field, "; give one of them"));
  out->kind = kind;
  out->field = field;
  return absl::OkStatus();
}

// A schema, or its JSON text.
absl::Status ReadJsonSchema(const std::string& field, const Json& value, GenerateRequest* out) {
  StructuredOutput* const wanted = &out->structured_output;
  QUIRE_RETURN_IF_ERROR(SetKind(field, StructuredOutput::Kind::kJsonSchema, wanted));
  if (value.is_string()) return Read(field, value, &wanted->source);
  if (!value.is_object() && !value.is_boolean()) return WrongType(field, "a JSON schema", value);
  wanted->source = value.dump();
  return absl::OkStatus();
}

absl::Status ReadJsonObject(const std::string& field, const Json& value, GenerateRequest* out) {
  bool is_wanted = false;
  QUIRE_RETURN_IF_ERROR(Read(field, value, &is_wanted));
  if (!is_wanted) return absl::OkStatus();
  return SetKind(field, StructuredOutput::Kind::kJsonObject, &out->structured_output);
}

template <StructuredOutput::Kind kKind>
absl::Status ReadSource(const std::string& field, const Json& value, GenerateRequest* out) {
  QUIRE_RETURN_IF_ERROR(SetKind(field, kKind, &out->structured_output));
  return Read(field, value, &out->structured_output.source);
}

absl::Status ReadChoices(const std::string& field, const Json& value, GenerateRequest* out) {
  QUIRE_RETURN_IF_ERROR(SetKind(field, StructuredOutput::Kind::kChoices, &out->structured_output));
  return Read(field, value, &out->structured_output.choices);
}

absl::Status ReadCompactJson(const std::string& field, const Json& value, GenerateRequest* out) {
  return Read(field, value, &out->structured_output.compact_json);
}

template <auto Member>
absl::Status ReadMember(const std::string& field, const Json& value, GenerateRequest* out) {
  return Read(field, value, &(out->*Member));
}

template <auto Member>
absl::Status ReadCacheMember(const std::string& field, const Json& value, GenerateRequest* out) {
  return Read(field, value, &(out->cache.*Member));
}

template <auto Member>
absl::Status ReadRule(const std::string& field, const Json& value, GenerateRequest* out) {
  return Read(field, value, &(out->rules.*Member));
}

struct Field {
  const char* name;
  absl::Status (*read)(const std::string& field, const Json& value, GenerateRequest* out);
};

using Request = GenerateRequest;
constexpr Field kFields[] = {
    {"prompt", &ReadPrompt},
    {"prompt_ids", &ReadPromptIds},
    {"model", &ReadMember<&Request::model>},
    {"add_special_tokens", &ReadMember<&Request::add_special_tokens>},
    {"temperature", &ReadMember<&Request::temperature>},
    {"min_p", &ReadMember<&Request::min_p>},
    {"top_k", &ReadMember<&Request::top_k>},
    {"top_p", &ReadMember<&Request::top_p>},
    {"seed", &ReadMember<&Request::seed>},
    {"n", &ReadMember<&Request::n>},
    {"best_of", &ReadMember<&Request::best_of>},
    {"beam_width", &ReadMember<&Request::beam_width>},
    {"length_penalty", &ReadMember<&Request::length_penalty>},
    {"early_stopping", &ReadEarlyStopping},
    {"repetition_penalty", &ReadRule<&RulesRequest::repetition_penalty>},
    {"frequency_penalty", &ReadRule<&RulesRequest::frequency_penalty>},
    {"presence_penalty", &ReadRule<&RulesRequest::presence_penalty>},
    {"repeat_last_n", &ReadRule<&RulesRequest::repeat_last_n>},
    {"logit_bias", &ReadLogitBias},
    {"allowed_token_ids", &ReadRule<&RulesRequest::allowed_token_ids>},
    {"bad_words", &ReadRule<&RulesRequest::bad_words>},
    {"no_repeat_ngram_size", &ReadRule<&RulesRequest::no_repeat_ngram_size>},
    {"dry_multiplier", &ReadRule<&RulesRequest::dry_multiplier>},
    {"dry_base", &ReadRule<&RulesRequest::dry_base>},
    {"dry_allowed_length", &ReadRule<&RulesRequest::dry_allowed_length>},
    {"dry_last_n", &ReadRule<&RulesRequest::dry_last_n>},
    {"dry_sequence_breakers", &ReadRule<&RulesRequest::dry_sequence_breakers>},
    {"top_n_sigma", &ReadRule<&RulesRequest::top_n_sigma>},
    {"dynatemp_range", &ReadRule<&RulesRequest::dynatemp_range>},
    {"dynatemp_exponent", &ReadRule<&RulesRequest::dynatemp_exponent>},
    {"typical_p", &ReadRule<&RulesRequest::typical_p>},
    {"xtc_probability", &ReadRule<&RulesRequest::xtc_probability>},
    {"xtc_threshold", &ReadRule<&RulesRequest::xtc_threshold>},
    {"mirostat", &ReadRule<&RulesRequest::mirostat>},
    {"mirostat_tau", &ReadRule<&RulesRequest::mirostat_tau>},
    {"mirostat_eta", &ReadRule<&RulesRequest::mirostat_eta>},
    {"repetition_detection", &ReadRepetition},
    {"truncate_prompt_tokens", &ReadMember<&Request::truncate_prompt_tokens>},
    {"truncation_side", &ReadTruncationSide},
    {"logprobs_mode", &ReadLogprobsMode},
    {"max_tokens", &ReadMember<&Request::max_tokens>},
    {"min_tokens", &ReadMember<&Request::min_tokens>},
    {"stop", &ReadStop},
    {"stop_token_ids", &ReadMember<&Request::stop_token_ids>},
    {"include_stop_str_in_output", &ReadMember<&Request::include_stop_str_in_output>},
    {"ignore_eos", &ReadMember<&Request::ignore_eos>},
    {"logprobs", &ReadMember<&Request::logprobs>},
    {"prompt_logprobs", &ReadMember<&Request::prompt_logprobs>},
    {"skip_special_tokens", &ReadMember<&Request::skip_special_tokens>},
    {"json_schema", &ReadJsonSchema},
    {"json_object", &ReadJsonObject},
    {"regex", &ReadSource<StructuredOutput::Kind::kRegex>},
    {"grammar", &ReadSource<StructuredOutput::Kind::kGrammar>},
    {"choices", &ReadChoices},
    {"compact_json", &ReadCompactJson},
    {"tenant", &ReadMember<&Request::tenant>},
    {"cache_salt", &ReadCacheMember<&CacheRequest::salt>},
    {"cache_no_read", &ReadCacheMember<&CacheRequest::no_read>},
    {"cache_no_write", &ReadCacheMember<&CacheRequest::no_write>},
    {"cache_retention", &ReadCacheMember<&CacheRequest::retention>},
    {"cache_decode_retention", &ReadCacheMember<&CacheRequest::decode_retention>},
    {"cache_breakpoints", &ReadCacheMember<&CacheRequest::breakpoints>},
    {"priority", &ReadMember<&Request::priority>},
    {"num_speculative_tokens", &ReadMember<&Request::num_speculative_tokens>},
};

// The fields of a conversation, which the front end checks.
absl::StatusOr<bool> ReadChatField(const std::string& name, const Json& value, ChatPrompt* chat) {
  static constexpr std::pair<const char*, Json ChatPrompt::*> kParts[] = {
      {"messages", &ChatPrompt::messages},
      {"tools", &ChatPrompt::tools},
      {"documents", &ChatPrompt::documents},
      {"chat_template_kwargs", &ChatPrompt::template_kwargs}};
  for (const auto& [part, member] : kParts) {
    if (name != part) continue;
    chat->*member = value;
    return true;
  }
  static constexpr std::pair<const char*, bool ChatPrompt::*> kFlags[] = {
      {"add_generation_prompt", &ChatPrompt::add_generation_prompt},
      {"continue_final_message", &ChatPrompt::continue_final_message},
      {"parallel_tool_calls", &ChatPrompt::parallel_tool_calls}};
  if (name == "tool_choice") {
    if (!value.is_null()) QUIRE_RETURN_IF_ERROR(ReadToolChoice(value, chat));
    return true;
  }
  for (const auto& [flag, member] : kFlags) {
    if (name != flag) continue;
    if (!value.is_null()) QUIRE_RETURN_IF_ERROR(Read(name, value, &(chat->*member)));
    return true;
  }
  return false;
}

absl::StatusOr<GenerateRequest> ReadFields(const Json& object) {
  GenerateRequest request;
  ChatPrompt chat;
  const bool is_chat = object.contains("messages") && !object["messages"].is_null();
  if (is_chat) request.add_special_tokens = false;  // the template writes them
  for (const auto& [name, value] : object.items()) {
    if (name == "id") continue;
    QUIRE_ASSIGN_OR_RETURN(const bool of_chat, ReadChatField(name, value, &chat));
    if (of_chat && !is_chat && !value.is_null()) return InvalidField(name, "needs messages");
    if (of_chat) continue;
    const auto* field =
        std::find_if(std::begin(kFields), std::end(kFields), [&](const Field& f) { return name == f.name; });
    if (field == std::end(kFields)) return InvalidField(name, "is no field of a request");
    if (!value.is_null()) QUIRE_RETURN_IF_ERROR(field->read(name, value, &request));
  }
  if (!is_chat) return request;
  if (!std::holds_alternative<std::monostate>(request.prompt))
    return InvalidField("messages", "goes with prompt or prompt_ids; give one of them");
  if (!object.contains("add_generation_prompt")) chat.add_generation_prompt = !chat.continue_final_message;
  request.prompt = std::make_shared<const ChatPrompt>(std::move(chat));
  return request;
}

}  // namespace

OfflineRequest ParseOfflineRequest(const std::string& line, int64_t line_number) {
  OfflineRequest result{.id = line_number, .request = absl::InvalidArgumentError("")};
  const auto refuse = [&](const std::string& problem) {
    result.request = absl::InvalidArgumentError(absl::StrCat("line ", line_number, ": ", problem));
    return result;
  };
  const bool valid_text = utf8::IsValid(line);
  std::string text = valid_text ? line : "";
  // A broken line is read all the same, for its id.
  if (!valid_text) utf8::AppendLossy(line, &text);
  const Json object = Json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (object.is_object()) {
    const auto id = object.find("id");
    if (id != object.end() && (id->is_string() || id->is_number_integer())) {
      result.id = *id;
    } else if (id != object.end() && !id->is_null()) {
      return refuse("id: must be a string or an integer");
    }
  }
  if (!valid_text) return refuse("malformed UTF-8");
  if (object.is_discarded()) return refuse("malformed JSON");
  if (!object.is_object()) return refuse(absl::StrCat("must be a JSON object, is ", object.type_name()));
  result.request = ReadFields(object);
  return result;
}

}  // namespace quire
