#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace quire::cli {

// What the command line says, one struct a subcommand; app.cc fills them and documents each option. Unset optionals
// leave the choice to the server.

struct GenerateOptions {
  std::optional<std::string> prompt;  // "-": standard input
  std::vector<uint32_t> ids;          // instead of a prompt
  std::string model;
  std::string request_id;
  std::optional<uint32_t> n;
  std::optional<uint32_t> max_tokens;
  std::optional<float> temperature, min_p, top_p;
  std::optional<uint32_t> top_k;
  std::optional<int64_t> seed;
  std::optional<uint32_t> best_of;
  std::optional<uint32_t> beam_width;
  std::optional<float> length_penalty;
  std::optional<std::string> early_stopping;  // no, yes, never
  std::optional<float> repetition_penalty, frequency_penalty, presence_penalty;
  std::optional<uint32_t> repeat_last_n, no_repeat_ngram_size;
  std::vector<std::pair<uint32_t, float>> logit_bias;
  std::vector<uint32_t> allowed_token_ids;
  std::vector<std::string> bad_words;
  std::optional<float> dry_multiplier, dry_base;
  std::optional<uint32_t> dry_allowed_length, dry_last_n;
  std::vector<std::string> dry_breakers;
  std::optional<float> top_n_sigma, dynatemp_range, dynatemp_exponent, typical_p, xtc_probability, xtc_threshold;
  bool mirostat = false;
  std::optional<float> mirostat_tau, mirostat_eta;
  std::vector<uint32_t> repetition_detection;  // nothing, or max_pattern_size, min_pattern_size, min_count
  std::optional<int32_t> truncate_prompt_tokens;
  bool truncate_right = false;
  bool processed_logprobs = false;
  bool echo = false;
  std::vector<std::string> stop;
  std::vector<uint32_t> stop_token_ids;
  bool include_stop = false;
  uint32_t min_tokens = 0;
  bool ignore_eos = false;
  std::optional<int32_t> logprobs, prompt_logprobs;
  bool keep_special_tokens = false;
  bool no_special_tokens = false;
  // Structured output: one of these at most.
  std::string json_schema_file, grammar_file;  // "-": standard input
  bool json_object = false;
  std::optional<std::string> regex;
  std::vector<std::string> choices;
  bool compact_json = false;
  std::string salt;
  std::optional<int32_t> priority;
  std::string fork;  // request id; empty: a request of its own
  std::optional<uint32_t> fork_at;
  uint32_t fork_sequence = 0;
  bool no_stream = false;
  bool json = false;
};

struct ChatOptions {
  std::optional<std::string> message;  // the only turn; "-": standard input. Unset: each line of standard input is one
  std::string system;                  // what the model is told first
  std::string tools_file;              // OpenAI's JSON list; empty: none
  std::string model;
  std::optional<uint32_t> max_tokens;
  std::optional<float> temperature, top_p;
  std::optional<int64_t> seed;
  std::vector<std::string> stop;
  bool show_reasoning = false;
  bool json = false;
};

struct StatsOptions {
  bool watch = false;
  double interval_seconds = 2;  // > 0
  int64_t count = 0;            // lines that --watch prints; 0: until interrupted
  bool json = false;
};

struct HealthOptions {
  std::string service;  // empty: the process as a whole
  bool json = false;
};

struct ModelsOptions {
  bool json = false;
};

struct TokenizeOptions {
  std::string text;  // "-": standard input
  bool no_special_tokens = false;
  bool json = false;
};

struct DetokenizeOptions {
  std::vector<uint32_t> ids;
  bool keep_special_tokens = false;
  bool json = false;
};

struct AbortOptions {
  std::vector<std::string> request_ids;
  bool json = false;
};

// Names a cached prefix.
struct CachePrefixOptions {
  std::optional<std::string> prompt;  // "-": standard input
  std::vector<uint32_t> ids;          // instead of a prompt
  bool no_special_tokens = false;
  std::string salt;
  std::optional<std::string> tenant;
};

struct CacheListOptions {
  std::optional<std::string> tenant;
  int64_t limit = 100;  // 0: all
  bool json = false;
};

struct CacheWarmOptions {
  CachePrefixOptions prefix;
  std::optional<uint32_t> priority;
  std::optional<double> ttl_seconds;
  bool json = false;
};

struct CacheDropOptions {
  CachePrefixOptions prefix;  // nothing set: with `all` only
  bool all = false;
  bool json = false;
};

struct CacheResetOptions {
  bool json = false;
};

struct CacheEventsOptions {
  std::optional<uint64_t> from;  // number of the first event; unset: those to come
  int64_t count = 0;             // events that are printed; 0: until interrupted
  bool json = false;
};

struct TraceOptions {
  bool json = false;
};

struct TraceStartOptions {
  std::string file;       // empty: the server chooses
  int64_t max_bytes = 0;  // 0: the server's limit
  std::optional<double> max_wait_seconds;
  bool no_wait = false;
  bool json = false;
};

struct TokenizerOptions {
  std::string path;    // tokenizer.json, its directory, or a .gguf file
  std::string folder;  // export: where to
};

struct InspectOptions {
  std::string model;
  std::optional<int64_t> context;       // tokens of a sequence; unset: what the model allows
  std::optional<int64_t> memory_bytes;  // for the KV cache
  std::string kv_dtype = "auto";
  bool json = false;
};

struct BenchOptions {
  std::vector<int> concurrency = {1};
  int num_requests = 64;
  int warmup = 0;
  std::string dataset = "random";
  std::optional<int> input_len, output_len, shared_prefix_len;
  uint64_t seed = 0;
  float temperature = 0;
  bool ignore_eos = true;
  std::string json_path;  // "-": standard output; empty: none
};

}  // namespace quire::cli
