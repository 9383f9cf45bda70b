#include "server/http/openapi.h"

#include <cctype>

namespace quire {
namespace {

// What requests and answers look like. Fields that are not listed are ignored. Null is the same as absent.
constexpr char kSchemas[] = R"json({
  "Sampling": {"type": "object", "description": "Null is the same as absent; defaults are the model's.", "properties": {
    "model": {"type": ["string", "null"]},
    "max_tokens": {"type": ["integer", "null"], "minimum": 0},
    "min_tokens": {"type": ["integer", "null"], "minimum": 0},
    "temperature": {"type": ["number", "null"], "minimum": 0},
    "top_p": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
    "top_k": {"type": ["integer", "null"], "minimum": -1},
    "min_p": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
    "presence_penalty": {"type": ["number", "null"], "minimum": -2, "maximum": 2},
    "frequency_penalty": {"type": ["number", "null"], "minimum": -2, "maximum": 2},
    "repetition_penalty": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 100},
    "repeat_last_n": {"type": ["integer", "null"], "minimum": -1},
    "allowed_token_ids": {"type": ["array", "null"], "items": {"type": "integer"}},
    "bad_words": {"type": ["array", "null"], "items": {"type": "string"}},
    "no_repeat_ngram_size": {"type": ["integer", "null"], "minimum": 0},
    "dry_multiplier": {"type": ["number", "null"], "minimum": 0},
    "dry_base": {"type": ["number", "null"], "minimum": 1},
    "dry_allowed_length": {"type": ["integer", "null"], "minimum": 1},
    "dry_penalty_last_n": {"type": ["integer", "null"], "minimum": -1},
    "dry_sequence_breakers": {"type": ["array", "null"], "items": {"type": "string"}},
    "top_n_sigma": {"type": ["number", "null"], "minimum": -1},
    "dynatemp_range": {"type": ["number", "null"], "minimum": 0},
    "dynatemp_exponent": {"type": ["number", "null"], "exclusiveMinimum": 0},
    "typical_p": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
    "xtc_probability": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
    "xtc_threshold": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 0.5},
    "mirostat": {"enum": [0, 2, null]},
    "mirostat_tau": {"type": ["number", "null"], "exclusiveMinimum": 0},
    "mirostat_eta": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
    "use_beam_search": {"type": ["boolean", "null"]},
    "beam_width": {"type": ["integer", "null"], "minimum": 2},
    "length_penalty": {"type": ["number", "null"]},
    "early_stopping": {"enum": [true, false, "never", null]},
    "repetition_detection": {"type": ["object", "null"], "properties": {
      "max_pattern_size": {"type": "integer"}, "min_pattern_size": {"type": ["integer", "null"]},
      "min_count": {"type": "integer"}}},
    "num_speculative_tokens": {"type": ["integer", "null"], "minimum": 0, "maximum": 64},
    "truncate_prompt_tokens": {"type": ["integer", "null"], "minimum": -1},
    "truncation_side": {"enum": ["left", "right", null]},
    "logprobs_mode": {"enum": ["raw_logprobs", "processed_logprobs", null]},
    "prompt_logprobs": {"type": ["integer", "null"], "minimum": -1},
    "logit_bias": {"type": ["object", "null"], "additionalProperties": {"type": "number"}},
    "seed": {"type": ["integer", "null"], "format": "int64"},
    "n": {"type": ["integer", "null"], "minimum": 1},
    "best_of": {"type": ["integer", "null"], "minimum": 1},
    "stop": {"anyOf": [{"type": ["string", "null"]}, {"type": "array", "items": {"type": "string"}}]},
    "stop_token_ids": {"type": ["array", "null"], "items": {"type": "integer"}},
    "include_stop_str_in_output": {"type": ["boolean", "null"]},
    "ignore_eos": {"type": ["boolean", "null"]},
    "skip_special_tokens": {"type": ["boolean", "null"]},
    "add_special_tokens": {"type": ["boolean", "null"]},
    "response_format": {"type": ["object", "null"]},
    "structured_outputs": {"type": ["object", "null"]},
    "return_token_ids": {"type": ["boolean", "null"]},
    "return_tokens_as_token_ids": {"type": ["boolean", "null"]},
    "cache_salt": {"type": ["string", "null"]},
    "priority": {"type": ["integer", "null"]},
    "request_id": {"type": ["string", "null"]},
    "stream": {"type": ["boolean", "null"]},
    "stream_options": {"type": ["object", "null"], "properties": {
      "include_usage": {"type": ["boolean", "null"]}, "continuous_usage_stats": {"type": ["boolean", "null"]}}}}},
  "CompletionRequest": {"allOf": [{"$ref": "#/components/schemas/Sampling"}, {"type": "object", "required": ["prompt"],
    "properties": {
      "prompt": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}},
                           {"type": "array", "items": {"type": "string"}},
                           {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}]},
      "echo": {"type": ["boolean", "null"]},
      "logprobs": {"type": ["integer", "null"]}}}]},
  "ChatRequest": {"allOf": [{"$ref": "#/components/schemas/Sampling"}, {"type": "object", "required": ["messages"],
    "properties": {
      "messages": {"type": "array", "items": {"type": "object", "required": ["role"], "properties": {
        "role": {"type": "string"},
        "content": {"anyOf": [{"type": ["string", "null"]}, {"type": "array", "items": {"type": "object"}}]}}}},
      "max_completion_tokens": {"type": ["integer", "null"], "minimum": 1},
      "logprobs": {"type": ["boolean", "null"]},
      "top_logprobs": {"type": ["integer", "null"], "minimum": 0},
      "tools": {"type": ["array", "null"], "items": {"type": "object"}},
      "tool_choice": {"anyOf": [{"enum": ["auto", "none", "required", null]},
        {"type": "object", "required": ["type", "function"], "properties": {"type": {"const": "function"},
          "function": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}}},
        {"type": "object", "required": ["type", "allowed_tools"], "properties": {"type": {"const": "allowed_tools"},
          "allowed_tools": {"type": "object", "required": ["mode", "tools"], "properties": {
            "mode": {"enum": ["auto", "required"]},
            "tools": {"type": "array", "minItems": 1, "items": {"type": "object"}}}}}}]},
      "parallel_tool_calls": {"type": ["boolean", "null"]},
      "documents": {"type": ["array", "null"]},
      "chat_template": {"type": ["string", "null"]},
      "chat_template_kwargs": {"type": ["object", "null"]},
      "add_generation_prompt": {"type": ["boolean", "null"]},
      "continue_final_message": {"type": ["boolean", "null"]}}}]},
  "Usage": {"type": "object", "properties": {
    "prompt_tokens": {"type": "integer"}, "completion_tokens": {"type": "integer"}, "total_tokens": {"type": "integer"},
    "prompt_tokens_details": {"type": "object", "properties": {"cached_tokens": {"type": "integer"}}},
    "completion_tokens_details": {"type": "object", "properties": {"reasoning_tokens": {"type": "integer"},
      "accepted_prediction_tokens": {"type": "integer"}, "rejected_prediction_tokens": {"type": "integer"}}}}},
  "Completion": {"type": "object", "required": ["id", "object", "created", "model", "choices"], "properties": {
    "id": {"type": "string"}, "object": {"type": "string"}, "created": {"type": "integer"}, "model": {"type": "string"},
    "choices": {"type": "array", "items": {"type": "object", "required": ["index"], "properties": {
      "index": {"type": "integer"}, "text": {"type": "string"}, "message": {"type": "object"},
      "delta": {"type": "object"}, "logprobs": {"type": ["object", "null"]},
      "finish_reason": {"enum": ["stop", "length", "tool_calls", "repetition", null]},
      "stop_reason": {"type": ["string", "integer", "null"]},
      "seed": {"type": "integer", "format": "int64",
        "description": "Given again, it makes the choice again. In a stream it comes with the first part of a choice."}}}},
    "usage": {"$ref": "#/components/schemas/Usage"}, "system_fingerprint": {"type": "null"}}},
  "Model": {"type": "object", "required": ["id", "object"], "properties": {
    "id": {"type": "string"}, "object": {"const": "model"}, "created": {"type": "integer"},
    "owned_by": {"type": "string"}, "root": {"type": "string"}, "parent": {"type": "null"},
    "max_model_len": {"type": "integer"}, "permission": {"type": "array", "items": {"type": "object"}},
    "meta": {"type": "object"}}},
  "Models": {"type": "object", "required": ["object", "data"], "properties": {
    "object": {"const": "list"}, "data": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}}}},
  "TokenizeRequest": {"type": "object", "description": "Either prompt or a conversation.", "properties": {
    "prompt": {"type": ["string", "null"]}, "messages": {"type": ["array", "null"], "items": {"type": "object"}},
    "add_special_tokens": {"type": ["boolean", "null"]},
    "return_token_strs": {"type": ["boolean", "null"]}}},
  "Tokens": {"type": "object", "required": ["count", "tokens"], "properties": {
    "count": {"type": "integer"}, "max_model_len": {"type": "integer"},
    "tokens": {"type": "array", "items": {"type": "integer"}},
    "token_strs": {"type": ["array", "null"], "items": {"type": "string"}}}},
  "DetokenizeRequest": {"type": "object", "required": ["tokens"], "properties": {
    "tokens": {"type": "array", "items": {"type": "integer"}}, "skip_special_tokens": {"type": ["boolean", "null"]}}},
  "Text": {"type": "object", "required": ["prompt"], "properties": {"prompt": {"type": "string"}}},
  "Version": {"type": "object", "required": ["version"], "properties": {"version": {"type": "string"}}},
  "Load": {"type": "object", "properties": {
    "server_load": {"type": "integer"}, "requests_running": {"type": "integer"}, "requests_waiting": {"type": "integer"},
    "kv_blocks_total": {"type": "integer"}, "kv_blocks_free": {"type": "integer"}}},
  "Object": {"type": "object"},
  "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "object",
    "required": ["message", "type", "param", "code"], "properties": {
      "message": {"type": "string"}, "type": {"type": "string"}, "param": {"type": ["string", "null"]},
      "code": {"type": "integer"}}}}}
})json";

struct Operation {
  const char* path;
  const char* summary;
  const char* request;  // schema; null: no body
  const char* answer;   // schema, or null: no body, or a media type other than JSON's
  bool streams;         // an answer may be events
};

constexpr Operation kOperations[] = {
    {"/health", "200 while the engine makes progress", nullptr, nullptr, false},
    {"/ready", "200 while requests are accepted", nullptr, nullptr, false},
    {"/version", "The version of the server", nullptr, "Version", false},
    {"/load", "How much there is to do", nullptr, "Load", false},
    {"/metrics", "Metrics in Prometheus' text format", nullptr, "text/plain", false},
    {"/openapi.json", "This document", nullptr, "Object", false},
    {"/v1/models", "The served models", nullptr, "Models", false},
    {"/v1/models/", "One of the served models", nullptr, "Model", false},
    {"/v1/completions", "Continues prompts", "CompletionRequest", "Completion", true},
    {"/v1/chat/completions", "Answers a conversation", "ChatRequest", "Completion", true},
    {"/tokenize", "Text to token ids", "TokenizeRequest", "Tokens", false},
    {"/detokenize", "Token ids to text", "DetokenizeRequest", "Text", false},
};

Json Content(const std::string& schema_or_type) {
  if (schema_or_type.find('/') != std::string::npos) return {{schema_or_type, {{"schema", {{"type", "string"}}}}}};
  return {{"application/json", {{"schema", {{"$ref", "#/components/schemas/" + schema_or_type}}}}}};
}

Operation Find(const std::string& path) {
  for (const Operation& operation : kOperations) {
    if (path == operation.path) return operation;
  }
  return {"", "", nullptr, "Object", false};
}

}  // namespace

Json OpenApiDocument(const std::string& version) {
  return {{"openapi", "3.1.0"},
          {"info", {{"title", "Quire"}, {"version", version}}},
          {"paths", Json::object()},
          {"components", {{"schemas", Json::parse(kSchemas)}}}};
}

void AddOpenApiRoute(const std::string& method, const std::string& path, Json* document) {
  const Operation operation = Find(path);
  Json described = {{"summary", operation.summary}};
  std::string full = path;
  if (path.back() == '/') {
    full += "{id}";
    described["parameters"] =
        Json::array({Json{{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}});
  }
  if (operation.request != nullptr)
    described["requestBody"] = {{"required", true}, {"content", Content(operation.request)}};
  Json answer = {{"description", "OK"}};
  if (operation.answer != nullptr) answer["content"] = Content(operation.answer);
  if (operation.streams) answer["content"].update(Content("text/event-stream"));
  described["responses"] = {{"200", std::move(answer)},
                            {"default", {{"description", "What is wrong"}, {"content", Content("Error")}}}};
  std::string name = method;
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  (*document)["paths"][full][name] = std::move(described);
}

}  // namespace quire
