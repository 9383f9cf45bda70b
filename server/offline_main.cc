// quire_offline: batch generation from a file, without a network (interface.md 3).
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "model/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"
#include "scheduler/engine.h"
#include "server/config/engine_flags.h"
#include "server/config/exit_code.h"
#include "server/frontend/chat_format.h"
#include "server/frontend/frontend.h"
#include "server/offline/ids_only_tokenizer.h"
#include "server/offline/offline_batch.h"

namespace quire {
namespace {

// Requests between reading and answer: enough for the scheduler to choose from.
constexpr int32_t kMaxInFlight = 1024;

struct OfflineOptions {
  EngineOptions engine;
  ModelFlags model;
  std::string requests_path;
  std::string out_path = "-";
  bool print_stats = false;
};

int Report(const absl::Status& status) {
  std::cerr << "quire_offline: " << status.message() << "\n";
  return ExitCodeOf(status.code());
}

// A model without a tokenizer takes ids only.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerIfAny(const OfflineOptions& options) {
  const bool given = !options.model.tokenizer_path.empty();
  auto tokenizer = LoadTokenizer(given ? options.model.tokenizer_path : options.engine.model_path);
  if (!tokenizer.ok() && !given && absl::IsNotFound(tokenizer.status())) return std::make_unique<IdsOnlyTokenizer>();
  // What it cannot do is a matter of the model's files, not of the device.
  if (absl::IsUnimplemented(tokenizer.status())) {
    return absl::InvalidArgumentError(tokenizer.status().message());
  }
  return tokenizer;
}

void PrintStats(const EngineStats& stats) {
  const auto seconds = [](const EngineStats::StepSeconds& step) {
    return nlohmann::ordered_json{{"linear", step.linear},     {"attention", step.attention},
                                  {"sampling", step.sampling}, {"scheduling", step.scheduling},
                                  {"rest", step.rest},         {"total", step.total}};
  };
  const nlohmann::ordered_json json = {{"steps", stats.steps},
                                       {"kv_blocks_total", stats.kv_blocks_total},
                                       {"kv_blocks_free", stats.kv_blocks_free},
                                       {"kv_blocks_cached", stats.kv_blocks_cached},
                                       {"kv_blocks_active", stats.kv_blocks_active},
                                       {"prefix_query_tokens", stats.prefix_query_tokens},
                                       {"prefix_hit_tokens", stats.prefix_hit_tokens},
                                       {"evictions", stats.evictions},
                                       {"preemptions", stats.preemptions},
                                       {"requests_finished", stats.requests_finished},
                                       {"requests_aborted", stats.requests_aborted},
                                       {"requests_failed", stats.requests_failed},
                                       {"prompt_tokens", stats.prompt_tokens},
                                       {"generation_tokens", stats.generation_tokens},
                                       {"surplus_tokens", stats.surplus_tokens},
                                       {"drafting_steps", stats.drafting_steps},
                                       {"drafted_tokens", stats.drafted_tokens},
                                       {"accepted_tokens", stats.accepted_tokens},
                                       {"output_queue_waits", stats.output_queue_waits},
                                       {"total_step_seconds", seconds(stats.total_step_seconds)}};
  std::cerr << json.dump() << "\n";
}

FrontendOptions MakeFrontendOptions(const OfflineOptions& options) {
  FrontendOptions frontend;
  frontend.served_model_names = options.model.served_model_names;
  if (frontend.served_model_names.empty()) {
    frontend.served_model_names = {DefaultModelName(options.engine.model_path)};
  }
  frontend.use_generation_config = options.model.use_generation_config;
  frontend.max_logprobs = options.model.max_logprobs;
  frontend.processed_logprobs = options.model.processed_logprobs;
  frontend.seed = options.engine.seed;
  frontend.num_output_shards = options.engine.num_output_shards;
  frontend.max_encoding_requests = 2 * kMaxInFlight;
  frontend.max_encoding_bytes = std::numeric_limits<int64_t>::max();
  return frontend;
}

int RunBatch(const OfflineOptions& options, std::istream& in, std::ostream& out) {
  auto tokenizer = LoadTokenizerIfAny(options);
  if (!tokenizer.ok()) return Report(tokenizer.status());
  auto chat =
      ChatFormat::Load({options.engine.model_path, options.model.tokenizer_path, options.model.chat_template_path},
                       options.model.chat, **tokenizer);
  if (!chat.ok()) return Report(chat.status());
  auto engine = CreateEngine(options.engine);
  if (!engine.ok()) return Report(engine.status());
  (*engine)->Start();
  FrontendOptions frontend_options = MakeFrontendOptions(options);
  frontend_options.chat = *std::move(chat);
  Frontend frontend(**engine, **tokenizer, std::move(frontend_options));
  const absl::Status status = RunOfflineBatch(frontend, in, out, kMaxInFlight);
  if (status.ok()) (*engine)->WaitIdle(absl::InfiniteFuture());
  const EngineStats stats = (*engine)->GetStats();
  frontend.Stop();
  if (options.print_stats) PrintStats(stats);
  return status.ok() ? kExitOk : Report(status);
}

int Main(int argc, char** argv) {
  OfflineOptions options;
  options.model.max_logprobs = -1;  // there is nobody to protect from a large answer
  CLI::App app("Generates from a file of requests, one JSON object a line, without a network.", "quire_offline");
  AddEngineFlags(app, options.engine);
  AddModelFlags(app, options.model);
  app.add_option("--requests", options.requests_path, "JSON lines to answer; - is standard input")
      ->required()
      ->type_name("FILE");
  app.add_option("--out", options.out_path, "where the answers go; - is standard output")
      ->type_name("FILE")
      ->capture_default_str();
  app.add_flag("--stats", options.print_stats, "counters at the end, as a JSON object on standard error");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ReportParseError(app, error, std::vector<std::string>(argv + 1, argv + argc));
  }
  // Requests wait for room here, not at the engine's door.
  options.engine.max_queued_requests = std::max(options.engine.max_queued_requests, kMaxInFlight + 1);
  options.engine.max_queued_tokens = std::numeric_limits<int64_t>::max();
  // A closed output, or a file at its limit, is an error of writing.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  options.engine.on_schedule_trace_end = [](const std::string& problem) {
    std::fprintf(stderr, "quire_offline: %s\n", problem.c_str());
  };

  std::ifstream in_file;
  if (options.requests_path != "-") {
    in_file.open(options.requests_path, std::ios::binary);
    if (!in_file)
      return Report(absl::FailedPreconditionError("--requests " + options.requests_path + ": cannot be read"));
  }
  std::ofstream out_file;
  if (options.out_path != "-") {
    out_file.open(options.out_path, std::ios::binary | std::ios::trunc);
    if (!out_file) return Report(absl::FailedPreconditionError("--out " + options.out_path + ": cannot be written"));
  }
  std::ios::sync_with_stdio(false);
  return RunBatch(options, in_file.is_open() ? in_file : std::cin, out_file.is_open() ? out_file : std::cout);
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) { return quire::Main(argc, argv); }
