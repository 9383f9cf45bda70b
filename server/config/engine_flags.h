#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "scheduler/engine_options.h"
#include "server/frontend/chat_options.h"

namespace quire {

// The options of quired and quire_offline that make an engine, each once with default, unit and range: --model,
// --device, --cpu-isa, --load-format, --threads, --max-model-len, --block-size, --kv-cache-memory, --memory-fraction,
// --kv-blocks, --kv-cache-dtype, --host-kv-memory, --[no-]enable-prefix-caching, --eviction-policy,
// --max-pinned-share, --tenant-kv-quota, --kv-events, --kv-integrity, --max-num-seqs, --max-num-batched-tokens,
// --scheduling-policy, --tenant-weight, --itl-target, --max-queue-wait, --preemption, --max-queued-requests,
// --max-queued-tokens, --seed, --step-timeout, --schedule-trace, --schedule-trace-max, --sim-time-scale,
// --deterministic. They write to `options`, which must outlive `app`. Without --seed, options.seed is drawn from the
// system's random numbers.
void AddEngineFlags(CLI::App& app, EngineOptions& options);

// What requests are answered with besides the engine.
struct ModelFlags {
  std::string tokenizer_path;                   // empty: the model's
  std::vector<std::string> served_model_names;  // empty: file or directory name of the model
  bool use_generation_config = true;            // --generation-config auto
  int32_t max_logprobs = 20;                    // -1: the whole vocabulary
  bool processed_logprobs = false;              // --logprobs-mode processed_logprobs
  std::string chat_template_path;               // empty: the model's
  ChatFormatOptions chat;
};

// --tokenizer, --served-model-name, --generation-config, --max-logprobs, --logprobs-mode, --chat-template,
// --tool-call-parser, --reasoning-parser, --special-tokens-in-messages, --[no-]allow-request-chat-template.
void AddModelFlags(CLI::App& app, ModelFlags& flags);

// Bytes from "4GiB", "512MiB", "1000000", "1.5GB": a number and B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, any case.
// kInvalidArgument for anything else, and beyond 2^62.
absl::StatusOr<int64_t> ParseBytes(std::string_view text);

// Last part of the path without ".gguf": what a model is called unless it is told.
std::string DefaultModelName(const std::string& model_path);

// Exit code of a command whose command line did not parse: 0 for --help and --version, 64 for what cannot be read
// (unknown option, missing or malformed value), 78 for a value that is not allowed and for anything wrong in the file
// of --config or the environment. Prints what `app` has to say, help on stdout and errors on stderr. `args`: the
// command line.
int ReportParseError(const CLI::App& app, const CLI::ParseError& error, absl::Span<const std::string> args);

}  // namespace quire
