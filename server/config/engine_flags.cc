#include "server/config/engine_flags.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <iostream>
#include <limits>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "kernels/base/dtype.h"
#include "server/config/flag_helpers.h"

namespace quire {
namespace {

constexpr int kBadUsage = 64, kBadOptions = 78;

uint64_t RandomSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

void SetDevice(const std::string& text, EngineOptions& options) {
  const std::string kind = text.substr(0, text.find(':'));
  const std::optional<DeviceKind> device = ParseDeviceKind(kind);
  int32_t index = 0;
  const bool has_index = kind.size() != text.size();
  if (!device || (has_index && (*device != DeviceKind::kCuda ||
                                !absl::SimpleAtoi(text.substr(kind.size() + 1), &index) || index < 0))) {
    RefuseValue("--device", text, "cpu, reference, sim, cuda or cuda:N");
  }
  options.device = *device;
  options.device_index = index;
}

void SetCpuIsa(const std::string& text, EngineOptions& options) {
  static constexpr std::pair<std::string_view, CpuIsa> kIsas[] = {
      {"auto", CpuIsa::kAuto}, {"avx2", CpuIsa::kAvx2}, {"avx512", CpuIsa::kAvx512}};
  for (const auto& [name, isa] : kIsas) {
    if (text == name) {
      options.cpu_isa = isa;
      return;
    }
  }
  RefuseValue("--cpu-isa", text, "auto, avx2 or avx512 (amx is not built yet)");
}

void SetKvDType(const std::string& text, EngineOptions& options) {
  options.kv_dtype = FindKvDType(text);
  if (!options.kv_dtype && text != "auto") {
    RefuseValue("--kv-cache-dtype", text, "auto, f32, f16, bf16, fp8_e4m3 or int8");
  }
}

void AddPoolFlags(CLI::App& app, EngineOptions& options) {
  app.add_option_function<int64_t>(
         "--block-size",
         [&options](int64_t tokens) {
           const std::initializer_list<int64_t> allowed = {1, 8, 16, 32, 64};
           if (std::find(allowed.begin(), allowed.end(), tokens) == allowed.end())
             RefuseValue("--block-size", absl::StrCat(tokens), "1, 8, 16, 32 or 64");
           options.block_size = static_cast<int32_t>(tokens);
         },
         "tokens in a KV block: 1, 8, 16, 32 or 64")
      ->type_name("INT")
      ->default_str("32");
  CLI::Option* bytes = app.add_option_function<std::string>(
      "--kv-cache-memory",
      [&options](const std::string& text) {
        const absl::StatusOr<int64_t> value = ParseBytes(text);
        if (!value.ok() || *value < 1) RefuseValue("--kv-cache-memory", text, "a positive size such as 4GiB");
        options.kv_cache_bytes = *value;
      },
      "bytes of the KV pool, such as 4GiB; default: a quarter of the memory, at most 4 GiB");
  CLI::Option* fraction = app.add_option_function<double>(
      "--memory-fraction",
      [&options](double value) {
        if (!(value > 0 && value <= 0.95)) RefuseValue("--memory-fraction", absl::StrCat(value), "in (0, 0.95]");
        options.memory_fraction = value;
      },
      "KV pool as a part of the memory that the process may use, in (0, 0.95]");
  CLI::Option* blocks =
      AddIntFlag(app, "--kv-blocks", options.num_kv_blocks, 1, std::numeric_limits<int32_t>::max() - 1,
                 "usable KV blocks in the pool, in place of a size in bytes");
  bytes->excludes(fraction)->excludes(blocks);
  fraction->excludes(blocks);
  app.add_option_function<std::string>(
         "--host-kv-memory",
         [&options](const std::string& text) {
           const absl::StatusOr<int64_t> value = ParseBytes(text);
           if (!value.ok()) RefuseValue("--host-kv-memory", text, "a size such as 4GiB, or 0");
           options.host_kv_bytes = *value;
         },
         "bytes of the host tier, which keeps evicted KV blocks and those of preempted requests; cpu: 0")
      ->type_name("BYTES");
  app.add_option_function<std::string>(
         "--kv-cache-dtype", [&options](const std::string& text) { SetKvDType(text, options); },
         "auto, f32, f16, bf16, int8 (a scale a token and head), or on cuda f16, bf16, fp8_e4m3, int8; auto: the "
         "model's "
         "own type of 16 bits on cuda, f32 on reference, on cpu f16 and for models whose files are float32 f32")
      ->default_str("auto");
}

void SetPolicy(const std::string& text, SchedulerOptions& options) {
  static constexpr std::pair<std::string_view, PolicyKind> kPolicies[] = {{"fcfs", PolicyKind::kFcfs},
                                                                          {"priority", PolicyKind::kPriority},
                                                                          {"deadline", PolicyKind::kDeadline},
                                                                          {"fair", PolicyKind::kFair}};
  for (const auto& [name, policy] : kPolicies) {
    if (text == name) {
      options.policy = policy;
      return;
    }
  }
  RefuseValue("--scheduling-policy", text, "fcfs, priority, deadline or fair");
}

// NAME=WEIGHT
void AddTenantWeight(const std::string& text, SchedulerOptions& options) {
  const size_t equals = text.rfind('=');
  double weight = 0;
  if (equals == std::string::npos || !absl::SimpleAtod(text.substr(equals + 1), &weight) ||
      !(weight >= 0.001 && weight <= 1000)) {
    RefuseValue("--tenant-weight", text, "NAME=WEIGHT with a weight in [0.001, 1000]");
  }
  options.tenant_weights.emplace_back(text.substr(0, equals), weight);
}

void AddPolicyFlags(CLI::App& app, EngineOptions& options) {
  SchedulerOptions& scheduler = options.scheduler;
  app.add_option_function<std::string>(
         "--scheduling-policy", [&scheduler](const std::string& text) { SetPolicy(text, scheduler); },
         "who goes first: fcfs, priority (equal ones as fcfs), deadline or fair (between tenants)")
      ->default_str("priority");
  app.add_option_function<std::vector<std::string>>(
         "--tenant-weight",
         [&scheduler](const std::vector<std::string>& texts) {
           scheduler.tenant_weights.clear();
           for (const std::string& text : texts) AddTenantWeight(text, scheduler);
         },
         "policy fair: NAME=WEIGHT, a tenant's share, in [0.001, 1000]; default 1")
      ->delimiter(',')
      ->type_name("NAME=WEIGHT...");
  app.add_option_function<double>(
         "--itl-target",
         [&scheduler](double ms) {
           if (!(ms >= 0.1 && ms <= 60000)) RefuseValue("--itl-target", absl::StrCat(ms), "in [0.1, 60000]");
           scheduler.itl_target = absl::Milliseconds(ms);
         },
         "milliseconds between the tokens of a sequence that prefill chunks are cut for; default: none")
      ->type_name("MS");
  app.add_option_function<double>(
         "--max-queue-wait",
         [&options](double seconds) {
           if (!(seconds >= 0.001 && seconds <= 86400))
             RefuseValue("--max-queue-wait", absl::StrCat(seconds), "in [0.001, 86400]");
           options.max_queue_wait = absl::Seconds(seconds);
         },
         "seconds that a new request may be expected to wait; beyond: RESOURCE_EXHAUSTED; default: no limit")
      ->type_name("SECONDS");
}

void SetPreemption(const std::string& text, SchedulerOptions& options) {
  static constexpr std::pair<std::string_view, PreemptionMode> kModes[] = {
      {"auto", PreemptionMode::kAuto}, {"recompute", PreemptionMode::kRecompute}, {"swap", PreemptionMode::kSwap}};
  for (const auto& [name, mode] : kModes) {
    if (text == name) {
      options.preemption = mode;
      return;
    }
  }
  RefuseValue("--preemption", text, "auto, recompute or swap");
}

void SetSpeculation(const std::string& text, SchedulerOptions& scheduler) {
  if (text == "draft") RefuseValue("--speculation", text, "off or ngram: a draft model cannot be used yet");
  if (text != "off" && text != "ngram") RefuseValue("--speculation", text, "off or ngram");
  scheduler.speculation = text == "ngram" ? SpeculationMode::kNgram : SpeculationMode::kOff;
}

// NAME=SHARE, or SHARE for all others.
void AddTenantQuota(const std::string& text, EngineOptions& options) {
  const size_t equals = text.rfind('=');
  double share = 0;
  const std::string number = equals == std::string::npos ? text : text.substr(equals + 1);
  if (!absl::SimpleAtod(number, &share) || !(share >= 0 && share <= 1))
    RefuseValue("--tenant-kv-quota", text, "SHARE or NAME=SHARE with a share of the KV pool in [0, 1]");
  if (equals == std::string::npos) {
    options.tenant_kv_quota = share;
  } else {
    options.tenant_kv_quotas.emplace_back(text.substr(0, equals), share);
  }
}

// What stays in the prefix cache.
void AddCacheFlags(CLI::App& app, EngineOptions& options) {
  app.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", options.scheduler.enable_prefix_caching,
               "reuse the KV blocks of equal prompt beginnings; default on")
      ->default_str("true");
  app.add_flag("--kv-integrity", options.kv_integrity,
               "keep a checksum of each reusable KV block, verify it on reuse, poison freed blocks: to find faults, "
               "costs speed");
  app.add_option_function<std::string>(
         "--eviction-policy",
         [&options](const std::string& text) {
           if (text != "cost" && text != "lru") RefuseValue("--eviction-policy", text, "cost or lru");
           options.eviction.policy = text == "lru" ? EvictionPolicy::kLru : EvictionPolicy::kCost;
         },
         "which cached block goes first: cost, of what it spares and how often against its age; or lru")
      ->default_str("cost");
  app.add_option_function<double>(
         "--max-pinned-share",
         [&options](double share) {
           if (!(share >= 0 && share <= 1)) RefuseValue("--max-pinned-share", absl::StrCat(share), "in [0, 1]");
           options.eviction.max_pinned_share = share;
         },
         "share of the KV pool that requests may keep at a retention priority above the default, in [0, 1]")
      ->type_name("SHARE")
      ->default_str("0.5");
  app.add_option_function<std::vector<std::string>>(
         "--tenant-kv-quota",
         [&options](const std::vector<std::string>& texts) {
           options.tenant_kv_quota = 1;
           options.tenant_kv_quotas.clear();
           for (const std::string& text : texts) AddTenantQuota(text, options);
         },
         "share of the KV pool that a tenant's cached blocks may take, in [0, 1]: of each, or NAME=SHARE; default 1")
      ->delimiter(',')
      ->type_name("SHARE|NAME=SHARE...");
  AddIntFlag(app, "--kv-events", options.num_kv_events, 0, 1 << 20,
             "events of the prefix cache that are kept for subscribers; 0: none are told")
      ->capture_default_str();
}

void AddStepFlags(CLI::App& app, EngineOptions& options) {
  SchedulerOptions& scheduler = options.scheduler;
  AddIntFlag(app, "--max-num-seqs", scheduler.max_num_seqs, 1, 65536, "sequences in one step")->capture_default_str();
  AddIntFlag(app, "--max-num-batched-tokens", scheduler.max_num_batched_tokens, 1, 1 << 20, "tokens in one step")
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--preemption", [&scheduler](const std::string& text) { SetPreemption(text, scheduler); },
         "what happens to the KV blocks of preempted requests: recompute, swap (to --host-kv-memory) or auto, by "
         "measured cost")
      ->default_str("auto");
  app.add_option_function<std::string>(
         "--speculation", [&scheduler](const std::string& text) { SetSpeculation(text, scheduler); },
         "drafts of the next tokens, which one step checks together; answers stay as they are: off, or ngram: what "
         "followed the last tokens where they stood before")
      ->default_str("off");
  AddIntFlag(app, "--speculation-length", scheduler.max_drafts, 1, kMaxDrafts,
             "with --speculation: most tokens that a step drafts for a sequence; fewer where drafts are refused")
      ->capture_default_str();
  AddIntFlag(app, "--max-queued-requests", options.max_queued_requests, 1, 1 << 20,
             "waiting requests; beyond: RESOURCE_EXHAUSTED")
      ->capture_default_str();
  AddIntFlag(app, "--max-queued-tokens", options.max_queued_tokens, 1, int64_t{1} << 40,
             "prompt tokens of waiting requests; beyond: RESOURCE_EXHAUSTED")
      ->capture_default_str();
  AddSecondsFlag(app, "--step-timeout", options.step_timeout, 0.001, 86400,
                 "seconds; health is NOT_SERVING while a step takes longer");
}

}  // namespace

void AddEngineFlags(CLI::App& app, EngineOptions& options) {
  options.seed = RandomSeed();
  app.add_option("--model", options.model_path, "model: Hugging Face directory or .gguf file")
      ->required()
      ->check([](const std::string& path) { return std::string(path.empty() ? "must not be empty" : ""); })
      ->type_name("PATH");
  app.add_option_function<std::string>(
         "--device", [&options](const std::string& text) { SetDevice(text, options); },
         "cpu; reference: plain f32, the oracle; sim: no arithmetic, a time model; cuda[:N]: if built in")
      ->default_str("cpu");
  app.add_option_function<std::string>(
         "--cpu-isa", [&options](const std::string& text) { SetCpuIsa(text, options); },
         "instruction set of the cpu device: auto, avx2 or avx512")
      ->default_str("auto");
  app.add_option_function<std::string>(
         "--load-format",
         [&options](const std::string& text) {
           if (text != "auto" && text != "random") RefuseValue("--load-format", text, "auto or random");
           options.random_weights = text == "random";
         },
         "auto; random: weights from the seed and the configuration alone, for benchmarks")
      ->default_str("auto");
  AddIntFlag(app, "--threads", options.num_threads, 0, 256,
             "worker threads of the cpu device; 0: physical cores, within a container's quota")
      ->capture_default_str();
  AddIntFlag(app, "--max-model-len", options.max_model_len, 2, 1 << 24,
             "tokens of prompt and output, cut to the model's; default: the model's, cut to what the pool can hold");
  AddPoolFlags(app, options);
  AddCacheFlags(app, options);
  AddStepFlags(app, options);
  AddPolicyFlags(app, options);
  app.add_option("--seed", options.seed,
                 "seed of everything random; a fixed value makes runs repeatable; default: random")
      ->type_name("UINT");
  app.add_option_function<double>(
         "--sim-time-scale",
         [&options](double value) {
           if (!(value >= 0 && value <= 1e6)) RefuseValue("--sim-time-scale", absl::StrCat(value), "in [0, 1e6]");
           options.sim_time_scale = value;
         },
         "sim only: factor on the model of time; 0 runs without waiting")
      ->default_str("1");
  app.add_option("--schedule-trace", options.schedule_trace_path,
                 "record all scheduling in this file, for quire_replay; it holds no text; default: none")
      ->type_name("PATH");
  app.add_option_function<std::string>(
         "--schedule-trace-max",
         [&options](const std::string& text) {
           const absl::StatusOr<int64_t> value = ParseBytes(text);
           if (!value.ok() || *value < 4096) RefuseValue("--schedule-trace-max", text, "a size of 4 KiB or more");
           options.schedule_trace_max_bytes = *value;
         },
         "size at which the trace ends; what follows is counted as lost")
      ->default_str("1GiB");
  app.add_flag_callback(
      "--deterministic", [&options] { options.deterministic = true; },
      "same tokens whatever the batch; cpu, reference and sim always are");
}

static void AddChatFlags(CLI::App& app, ModelFlags& flags) {
  app.add_option("--chat-template", flags.chat_template_path,
                 "file with the Jinja template that conversations are rendered with; default: the model's")
      ->type_name("PATH");
  app.add_option_function<std::string>(
         "--tool-call-parser",
         [&flags](const std::string& text) {
           flags.chat.tool_syntax = ParseToolSyntax(text);
           if (text != "auto" && !flags.chat.tool_syntax)
             RefuseValue("--tool-call-parser", text, "auto, none, hermes, llama3_json, mistral or pythonic");
         },
         "how the model writes tool calls: auto (what its template shows), none, hermes, llama3_json, mistral, "
         "pythonic")
      ->default_str("auto");
  app.add_option_function<std::string>(
         "--reasoning-parser",
         [&flags](const std::string& text) {
           flags.chat.reasoning_syntax = ParseReasoningSyntax(text);
           if (text != "auto" && !flags.chat.reasoning_syntax)
             RefuseValue("--reasoning-parser", text, "auto, none or think");
         },
         "how the model marks its reasoning: auto (what its template speaks of), none, think")
      ->default_str("auto");
  app.add_option_function<std::string>(
         "--special-tokens-in-messages",
         [&flags](const std::string& text) {
           if (text != "parse" && text != "literal")
             RefuseValue("--special-tokens-in-messages", text, "parse or literal");
           flags.chat.literal_special_tokens = text == "literal";
         },
         "what a special token spelled in a message is: parse: that token, so that users can write turns of others; "
         "literal: its text")
      ->default_str("parse");
  app.add_flag("--allow-request-chat-template,!--no-allow-request-chat-template", flags.chat.allow_request_template,
               "requests may bring chat templates of their own");
}

void AddModelFlags(CLI::App& app, ModelFlags& flags) {
  app.add_option("--tokenizer", flags.tokenizer_path,
                 "tokenizer.json, its directory or a .gguf file; default: the model's")
      ->type_name("PATH");
  app.add_option("--served-model-name", flags.served_model_names,
                 "names accepted in requests, the first is reported; default: file or directory name of the model")
      ->delimiter(',')
      ->type_name("NAME...");
  app.add_option_function<std::string>(
         "--generation-config",
         [&flags](const std::string& text) {
           if (text != "auto" && text != "none") RefuseValue("--generation-config", text, "auto or none");
           flags.use_generation_config = text == "auto";
         },
         "auto: sampling defaults from the model; none: built-in ones")
      ->default_str("auto");
  app.add_option_function<std::string>(
         "--logprobs-mode",
         [&flags](const std::string& text) {
           flags.processed_logprobs = text == "processed_logprobs";
           if (text != "raw_logprobs" && !flags.processed_logprobs)
             RefuseValue("--logprobs-mode", text, "raw_logprobs or processed_logprobs");
         },
         "log-probabilities of requests that do not say: the model's own, or of what tokens are drawn from")
      ->default_str("raw_logprobs");
  AddIntFlag(app, "--max-logprobs", flags.max_logprobs, -1, 1 << 20,
             "most log-probabilities a token; -1: the whole vocabulary")
      ->capture_default_str();
  AddChatFlags(app, flags);
}

absl::StatusOr<int64_t> ParseBytes(std::string_view text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1},      {"b", 1},        {"kb", 1e3},     {"mb", 1e6},     {"gb", 1e9},
      {"tb", 1e12}, {"kib", 0x1p10}, {"mib", 0x1p20}, {"gib", 0x1p30}, {"tib", 0x1p40}};
  // Debian's absl::string_view is a type of its own, hence the copies.
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string unit = absl::AsciiStrToLower(std::string(text.substr(digits)));
  absl::StripAsciiWhitespace(&unit);
  double number = 0;
  if (digits > 0 && absl::SimpleAtod(std::string(text.substr(0, digits)), &number)) {
    for (const auto& [name, factor] : kUnits) {
      if (unit == name && number * factor <= 0x1p62) return static_cast<int64_t>(std::floor(number * factor));
    }
  }
  return absl::InvalidArgumentError(absl::StrFormat("'%s' is not a size such as 4GiB, 512MiB or 1000000", text));
}

std::string DefaultModelName(const std::string& model_path) {
  const std::filesystem::path path = std::filesystem::path(model_path).lexically_normal();
  std::string name = path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
  if (name.empty() || name == "." || name == "..") name = "model";
  return std::string(absl::StripSuffix(name, ".gguf"));
}

int ReportParseError(const CLI::App& app, const CLI::ParseError& error, absl::Span<const std::string> args) {
  if (app.exit(error, std::cout, std::cerr) == 0) return 0;
  const std::string name = error.get_name();
  if (name == "ValidationError" || name == "FileError" || name == "ConfigError") return kBadOptions;
  if (name != "ConversionError") return kBadUsage;
  // The message names the option; unless the command line has it, the value came from somewhere else.
  const std::string message = error.what();
  const bool given = std::any_of(args.begin(), args.end(), [&message](const std::string& arg) {
    return arg.rfind("--", 0) == 0 && message.find(arg.substr(0, arg.find('='))) != std::string::npos;
  });
  return given ? kBadUsage : kBadOptions;
}

}  // namespace quire
