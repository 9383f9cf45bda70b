#include "server/cli/app.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <ostream>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/cli/commands.h"
#include "server/cli/options.h"

namespace quire::cli {
namespace {

// All options of all subcommands; CLI11 writes into it while parsing.
struct AllOptions {
  GenerateOptions generate;
  ChatOptions chat;
  StatsOptions stats;
  HealthOptions health;
  ModelsOptions models;
  TokenizeOptions tokenize;
  DetokenizeOptions detokenize;
  AbortOptions abort;
  CacheListOptions cache_list;
  CacheWarmOptions cache_warm;
  CacheDropOptions cache_drop;
  CacheResetOptions cache_reset;
  CacheEventsOptions cache_events;
  TraceOptions trace_status, trace_stop;
  TraceStartOptions trace_start;
  TokenizerOptions tokenizer;
  InspectOptions inspect;
  BenchOptions bench;
  double timeout_seconds = 0;
  double connect_timeout_seconds = 5;
};

// What the parsed subcommand will run.
using Command = std::function<int(Session&)>;

constexpr char kJsonHelp[] = "JSON, one object a line";

// CLI11's own validators let NaN pass and name bounds of 300 digits.
CLI::Validator Bound(const std::string& must, bool (*holds)(double)) {
  return CLI::Validator(
      [must, holds](const std::string& text) {
        double value = 0;
        // What is no number is told by the option's type.
        return absl::SimpleAtod(text, &value) && !holds(value) ? absl::StrCat(text, " must be ", must) : "";
      },
      "");
}
// To stand before AsSizeValue, which takes -1 for the largest size.
const CLI::Validator kNoMinus([](const std::string& text) { return text[0] == '-' ? text + " is negative" : ""; }, "");
const CLI::Validator kPositive = Bound("above 0", [](double value) { return value > 0 && std::isfinite(value); });
const CLI::Validator kNotNegative = Bound("0 or more", [](double value) { return value >= 0 && std::isfinite(value); });

void AddRules(CLI::App* sub, GenerateOptions& options) {
  const char* const group = "Samplers";
  const auto add = [sub, group](const char* name, auto& value, const char* help) {
    return sub->add_option(name, value, help)->group(group);
  };
  add("--repetition-penalty", options.repetition_penalty, "Above 1: less of what prompt and output have");
  add("--frequency-penalty", options.frequency_penalty, "Above 0: less of what the output has, for each time");
  add("--presence-penalty", options.presence_penalty, "Above 0: less of what the output has");
  add("--repeat-last-n", options.repeat_last_n, "Last tokens that these three look at; 0: all");
  add("--logit-bias", options.logit_bias, "ID BIAS: added to a token's logit; may be repeated")
      ->allow_extra_args(false);
  add("--allowed-token-id", options.allowed_token_ids, "No other token comes; may be repeated")
      ->delimiter(',')
      ->allow_extra_args(false);
  add("--bad-word", options.bad_words, "A text that does not come; may be repeated")->allow_extra_args(false);
  add("--no-repeat-ngram-size", options.no_repeat_ngram_size, "No run of so many tokens comes twice; 0: off");
  add("--dry-multiplier", options.dry_multiplier, "Against repeated runs of tokens; 0: off");
  add("--dry-base", options.dry_base, "By how much a longer run costs more; unset 1.75");
  add("--dry-allowed-length", options.dry_allowed_length, "Shorter runs cost nothing; unset 2");
  add("--dry-last-n", options.dry_last_n, "Last tokens that are looked at; 0: all");
  add("--dry-breaker", options.dry_breakers, "A text that ends runs; may be repeated")->allow_extra_args(false);
  add("--top-n-sigma", options.top_n_sigma, "Keep tokens within so many standard deviations of the best logit");
  add("--dynatemp-range", options.dynatemp_range, "The temperature moves by so much with the entropy");
  add("--dynatemp-exponent", options.dynatemp_exponent, "How it moves; unset 1");
  add("--typical-p", options.typical_p, "Keep the most typical tokens up to this probability");
  add("--xtc-probability", options.xtc_probability, "How often the most probable tokens are left out");
  add("--xtc-threshold", options.xtc_threshold, "From which probability on; unset 0.1");
  sub->add_flag("--mirostat", options.mirostat, "Mirostat 2 in place of the other filters")->group(group);
  add("--mirostat-tau", options.mirostat_tau, "Its mean surprise in bits; unset 5");
  add("--mirostat-eta", options.mirostat_eta, "How fast it gets there; unset 0.1");
  add("--repetition-detection", options.repetition_detection,
      "MAX MIN COUNT: end where the output ends in COUNT times the same MIN to MAX tokens")
      ->expected(3);
}

void AddGenerate(CLI::App& app, GenerateOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand("generate", "Generate text from a prompt and stream it");
  CLI::Option* prompt = sub->add_option("prompt", options.prompt, "Prompt text; - reads standard input");
  sub->add_option("--ids", options.ids, "Prompt as token ids, 1,2,3")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->excludes(prompt);
  sub->add_option("--model", options.model, "A served model name; the only one if unset");
  sub->add_option("--request-id", options.request_id, "Names the request in logs, abort and errors");
  sub->add_option("-n", options.n, "Sequences");
  sub->add_option("--max-tokens", options.max_tokens, "Tokens to generate at most; up to the context if unset");
  sub->add_option("--temperature", options.temperature, "0 is greedy; the model's default if unset");
  sub->add_option("--min-p", options.min_p, "Drop tokens below this share of the best one's probability");
  sub->add_option("--top-k", options.top_k, "Keep the best K tokens; 0: all");
  sub->add_option("--top-p", options.top_p, "Keep the best tokens up to this probability");
  sub->add_option("--seed", options.seed, "Makes the answer repeatable; a fresh one if unset");
  sub->add_option("--best-of", options.best_of,
                  "Sequences that run; the -n most probable ones are returned at the end");
  sub->add_option("--beam-width", options.beam_width, "Beam search: the -n best outputs, all at the end; 2 to 64");
  sub->add_option("--length-penalty", options.length_penalty, "Above 0 favours long outputs of a beam search; unset 1");
  sub->add_option("--early-stopping", options.early_stopping,
                  "Whether a beam search ends with enough outputs: at once, or when better ones are unlikely or out "
                  "of reach")
      ->check(CLI::IsMember({"yes", "no", "never"}));
  AddRules(sub, options);
  sub->add_option("--truncate", options.truncate_prompt_tokens,
                  "Keep the last so many tokens of a longer prompt; -1: as many as there is room for");
  sub->add_flag("--truncate-right", options.truncate_right, "Keep the first ones instead");
  sub->add_flag("--echo", options.echo, "The prompt comes before the output");
  CLI::Option_group* const structured = sub->add_option_group("structured output", "What the text must be");
  structured->require_option(0, 1);
  structured->add_option("--json-schema", options.json_schema_file,
                         "File of a JSON schema that the text must fulfil; - reads standard input");
  structured->add_flag("--json-object", options.json_object, "The text is a JSON object");
  structured->add_option("--regex", options.regex, "Regular expression that the whole text must match");
  structured->add_option("--grammar", options.grammar_file,
                         "File of an EBNF grammar whose rule root gives the text; - reads standard input");
  structured->add_option("--choice", options.choices, "The text is this; may be repeated")->allow_extra_args(false);
  sub->add_flag("--compact-json", options.compact_json, "No white space between the tokens of JSON");
  sub->add_option("--stop", options.stop, "Text that ends a sequence; may be repeated")->allow_extra_args(false);
  sub->add_option("--stop-token-id", options.stop_token_ids, "Token that ends a sequence; may be repeated")
      ->delimiter(',')
      ->allow_extra_args(false);
  sub->add_flag("--include-stop", options.include_stop, "Keep the stop text in the output");
  sub->add_option("--min-tokens", options.min_tokens, "No stop of any kind before");
  sub->add_flag("--ignore-eos", options.ignore_eos, "The model's end token does not end a sequence");
  sub->add_option("--logprobs", options.logprobs, "Best K tokens at each output position; -1: all");
  sub->add_option("--prompt-logprobs", options.prompt_logprobs, "The same at each prompt position");
  sub->add_flag("--processed-logprobs", options.processed_logprobs,
                "Of what tokens are drawn from, not the model's own");
  sub->add_flag("--keep-special-tokens", options.keep_special_tokens, "Show special tokens in the text");
  sub->add_flag("--no-special-tokens", options.no_special_tokens, "Do not add bos to a text prompt");
  sub->add_option("--salt", options.salt, "Share cached prefixes only with requests of the same salt");
  sub->add_option("--priority", options.priority, "Lower runs first, -1000 to 1000");
  CLI::Option* fork = sub->add_option("--fork", options.fork,
                                      "Go on from this request of yours, live or finished lately; the prompt follows "
                                      "its tokens and may be missing");
  sub->add_option("--at", options.fork_at, "Keep so many tokens of it, its prompt included; all if unset")->needs(fork);
  sub->add_option("--fork-sequence", options.fork_sequence, "Which of its sequences")->needs(fork);
  sub->add_flag("--no-stream", options.no_stream, "One answer at the end")->excludes(fork);
  sub->add_flag("--json", options.json, "One JSON object a message, a last one with usage and timings");
  sub->callback([&] {
    if (!options.prompt && options.ids.empty() && options.fork.empty())
      throw CLI::RequiredError("PROMPT, --ids or --fork");
    command = [&](Session& session) { return RunGenerate(options, session); };
  });
}

void AddChat(CLI::App& app, ChatOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand("chat", "Talk with the model; without a message each line that is read is a turn");
  sub->add_option("message", options.message, "The only turn; - reads standard input");
  sub->add_option("--system", options.system, "What the model is told first");
  sub->add_option("--tools", options.tools_file,
                  "File with the tools that the model may call, a JSON list as OpenAI's API has it");
  sub->add_option("--model", options.model, "A served model name; the only one if unset");
  sub->add_option("--max-tokens", options.max_tokens, "Tokens of an answer at most; up to the context if unset");
  sub->add_option("--temperature", options.temperature, "0 is greedy; the model's default if unset");
  sub->add_option("--top-p", options.top_p, "Keep the best tokens up to this probability");
  sub->add_option("--seed", options.seed, "Makes answers repeatable; fresh ones if unset");
  sub->add_option("--stop", options.stop, "Text that ends an answer; may be repeated")->allow_extra_args(false);
  sub->add_flag("--show-reasoning", options.show_reasoning, "Print what the model thinks before it answers");
  sub->add_flag("--json", options.json, "One JSON object a message, after each answer one with usage and timings");
  sub->callback([&] { command = [&](Session& session) { return RunChat(options, session); }; });
}

void AddBench(CLI::App& app, BenchOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand("bench", "Measure the server in a closed loop");
  sub->add_option("--concurrency", options.concurrency, "Requests kept running; several are measured in turn: 1,8,32")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  sub->add_option("--num-requests", options.num_requests, "Requests of each measurement")
      ->check(CLI::Range(1, 10000000))
      ->capture_default_str();
  sub->add_option("--dataset", options.dataset, "Where prompts and lengths come from")
      ->check(CLI::IsMember({"random", "prefix-repetition", "sharegpt-like", "alpaca-like"}))
      ->capture_default_str();
  sub->add_option("--input-len", options.input_len,
                  "Prompt tokens behind the prefix (random 128, prefix-repetition 256)");
  sub->add_option("--output-len", options.output_len, "Tokens to generate (random 64, prefix-repetition 128)");
  sub->add_option("--shared-prefix-len", options.shared_prefix_len,
                  "Tokens that prompts share (random 0, prefix-repetition 256)");
  sub->add_option("--seed", options.seed, "Of prompts and sampling")->capture_default_str();
  sub->add_option("--temperature", options.temperature, "0 is greedy")->capture_default_str();
  sub->add_flag("--ignore-eos,!--no-ignore-eos", options.ignore_eos, "Generate to the full length (default on)");
  sub->add_option("--warmup", options.warmup, "Requests before each measurement, not counted")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  sub->add_option("--json", options.json_path, "File for results, one JSON object a measurement; -: standard output");
  sub->callback([&] { command = [&](Session& session) { return RunBench(options, session); }; });
}

void AddServing(CLI::App& app, AllOptions& options, Command& command) {
  CLI::App* stats = app.add_subcommand("stats", "Queue, KV blocks, prefix cache and where the time of a step goes");
  stats->add_flag("--watch", options.stats.watch, "A line each interval until interrupted");
  stats->add_option("--interval", options.stats.interval_seconds, "Seconds between lines")
      ->check(kPositive)
      ->capture_default_str();
  stats->add_option("--count", options.stats.count, "Lines of --watch; 0: no end")->check(kNotNegative);
  stats->add_flag("--json", options.stats.json, kJsonHelp);
  stats->callback([&] { command = [&](Session& session) { return RunStats(options.stats, session); }; });

  CLI::App* health = app.add_subcommand("health", "Exit 0: serving, 1: not serving, 69: no connection");
  health->add_option("--service", options.health.service, "Full service name; the whole process if unset");
  health->add_flag("--json", options.health.json, kJsonHelp);
  health->callback([&] { command = [&](Session& session) { return RunHealth(options.health, session); }; });

  CLI::App* models = app.add_subcommand("models", "What is served");
  models->add_flag("--json", options.models.json, kJsonHelp);
  models->callback([&] { command = [&](Session& session) { return RunModels(options.models, session); }; });

  CLI::App* tokenize = app.add_subcommand("tokenize", "Text to token ids, by the server's tokenizer");
  tokenize->add_option("text", options.tokenize.text, "Text; - reads standard input")->required();
  tokenize->add_flag("--no-special-tokens", options.tokenize.no_special_tokens, "Do not add bos");
  tokenize->add_flag("--json", options.tokenize.json, kJsonHelp);
  tokenize->callback([&] { command = [&](Session& session) { return RunTokenize(options.tokenize, session); }; });

  CLI::App* detokenize = app.add_subcommand("detokenize", "Token ids to text, by the server's tokenizer");
  detokenize->add_option("ids", options.detokenize.ids, "Ids: 1,2,3 or 1 2 3")->delimiter(',')->required();
  detokenize->add_flag("--keep-special-tokens", options.detokenize.keep_special_tokens, "Show special tokens");
  detokenize->add_flag("--json", options.detokenize.json, kJsonHelp);
  detokenize->callback([&] { command = [&](Session& session) { return RunDetokenize(options.detokenize, session); }; });

  CLI::App* abort = app.add_subcommand("abort", "End running requests");
  abort->add_option("request-id", options.abort.request_ids, "Request ids")->required();
  abort->add_flag("--json", options.abort.json, kJsonHelp);
  abort->callback([&] { command = [&](Session& session) { return RunAbort(options.abort, session); }; });
}

void AddPrefix(CLI::App* sub, CachePrefixOptions& options) {
  CLI::Option* prompt = sub->add_option("prompt", options.prompt, "Text that the prefix begins with; - reads it");
  sub->add_option("--ids", options.ids, "The same as token ids, 1,2,3")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->excludes(prompt);
  sub->add_flag("--no-special-tokens", options.no_special_tokens, "Do not add bos to a text");
  sub->add_option("--salt", options.salt, "Cache salt of the requests that are meant");
  sub->add_option("--tenant", options.tenant, "Tenant of the requests that are meant");
}

void AddTrace(CLI::App& app, AllOptions& options, Command& command) {
  CLI::App* trace =
      app.add_subcommand("trace", "The server's record of all scheduling, for quire_replay: status, start, stop");
  trace->require_subcommand(1);
  CLI::App* status = trace->add_subcommand("status", "Whether it is recorded, and how long it is");
  status->add_flag("--json", options.trace_status.json, kJsonHelp);
  status->callback([&] { command = [&](Session& session) { return RunTraceStatus(options.trace_status, session); }; });
  CLI::App* stop = trace->add_subcommand("stop", "End it: the file is complete then, for quire_replay");
  stop->add_flag("--json", options.trace_stop.json, kJsonHelp);
  stop->callback([&] { command = [&](Session& session) { return RunTraceStop(options.trace_stop, session); }; });
  CLI::App* start = trace->add_subcommand(
      "start", "Begin one as soon as no request is queued or running; the prefix cache starts empty then");
  start->add_option("--file", options.trace_start.file,
                    "Name of a new file in the server's --schedule-trace-dir; default: after the time");
  start
      ->add_option("--max-bytes", options.trace_start.max_bytes,
                   "Size at which it ends: bytes, 512MiB, 4GiB; default and limit: the server's --schedule-trace-max")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->transform(kNoMinus);
  start
      ->add_option("--max-wait", options.trace_start.max_wait_seconds,
                   "Seconds after which it is given up if requests never pause (default 30)")
      ->check(kNotNegative);
  start->add_flag("--no-wait", options.trace_start.no_wait, "Do not wait for it to begin");
  start->add_flag("--json", options.trace_start.json, kJsonHelp);
  start->callback([&] { command = [&](Session& session) { return RunTraceStart(options.trace_start, session); }; });
}

void AddCache(CLI::App& app, AllOptions& options, Command& command) {
  CLI::App* cache = app.add_subcommand("cache", "The prefix cache: list, warm, drop, reset, events");
  cache->require_subcommand(1);
  CLI::App* list = cache->add_subcommand("list", "Cached prefixes, the latest used first");
  list->add_option("--tenant", options.cache_list.tenant, "Only those of this tenant");
  list->add_option("--limit", options.cache_list.limit, "How many; 0: all")->check(kNotNegative)->capture_default_str();
  list->add_flag("--json", options.cache_list.json, kJsonHelp);
  list->callback([&] { command = [&](Session& session) { return RunCacheList(options.cache_list, session); }; });

  CLI::App* warm = cache->add_subcommand("warm", "Compute a prompt ahead and keep it");
  AddPrefix(warm, options.cache_warm.prefix);
  warm->add_option("--priority", options.cache_warm.priority, "0 to 100, higher stays longer; 35 if unset");
  warm->add_option("--ttl", options.cache_warm.ttl_seconds, "Seconds after each use; for ever if unset");
  warm->add_flag("--json", options.cache_warm.json, kJsonHelp);
  warm->callback([&] {
    const CachePrefixOptions& prefix = options.cache_warm.prefix;
    if (!prefix.prompt && prefix.ids.empty()) throw CLI::RequiredError("PROMPT or --ids");
    command = [&](Session& session) { return RunCacheWarm(options.cache_warm, session); };
  });

  CLI::App* drop = cache->add_subcommand("drop", "Forget what begins with a prefix, has a salt, or is a tenant's");
  AddPrefix(drop, options.cache_drop.prefix);
  drop->add_flag("--all", options.cache_drop.all, "Everything");
  drop->add_flag("--json", options.cache_drop.json, kJsonHelp);
  drop->callback([&] {
    const CachePrefixOptions& prefix = options.cache_drop.prefix;
    const bool some = prefix.prompt || !prefix.ids.empty() || !prefix.salt.empty() || prefix.tenant;
    if (!some && !options.cache_drop.all) throw CLI::RequiredError("PROMPT, --ids, --salt, --tenant or --all");
    if (some && options.cache_drop.all) throw CLI::ExcludesError("--all", "PROMPT, --ids, --salt and --tenant");
    command = [&](Session& session) { return RunCacheDrop(options.cache_drop, session); };
  });

  CLI::App* reset = cache->add_subcommand("reset", "Forget everything, what runs included");
  reset->add_flag("--json", options.cache_reset.json, kJsonHelp);
  reset->callback([&] { command = [&](Session& session) { return RunCacheReset(options.cache_reset, session); }; });

  CLI::App* events = cache->add_subcommand("events", "What happens to cached blocks, until interrupted");
  events->add_option("--from", options.cache_events.from, "Number of the first event; unset: those to come")
      ->check(kNotNegative);
  events->add_option("--count", options.cache_events.count, "End after so many events; 0: never")
      ->check(kNotNegative)
      ->capture_default_str();
  events->add_flag("--json", options.cache_events.json, kJsonHelp);
  events->callback([&] { command = [&](Session& session) { return RunCacheEvents(options.cache_events, session); }; });
}

void AddOffline(CLI::App& app, AllOptions& options, Command& command) {
  CLI::App* tokenizer = app.add_subcommand("tokenizer", "Offline tokenizer, JSON lines in and out");
  tokenizer->require_subcommand(1);
  CLI::App* encode = tokenizer->add_subcommand("encode", R"({"text", "add_special_tokens"} -> {"ids"})");
  CLI::App* decode = tokenizer->add_subcommand("decode", R"({"ids", "skip_special_tokens"} -> {"text"})");
  CLI::App* exported = tokenizer->add_subcommand("export", "Writes tokenizer.json and tokenizer_config.json");
  exported->add_option("folder", options.tokenizer.folder, "Where to; made if it is not there")->required();
  for (CLI::App* sub : {encode, decode, exported}) {
    sub->add_option("--tokenizer", options.tokenizer.path, "tokenizer.json, its directory, or a .gguf file")
        ->required();
  }
  CLI::App* render = tokenizer->add_subcommand(
      "render", R"({"template", "context": {messages, ...}} -> {"rendered"}; the file's template if there is none)");
  render->add_option("--tokenizer", options.tokenizer.path, "Whose template: a model directory or a .gguf file");
  render->callback([&] { command = [&](Session& session) { return RunTokenizerRender(options.tokenizer, session); }; });
  encode->callback([&] { command = [&](Session& session) { return RunTokenizerEncode(options.tokenizer, session); }; });
  decode->callback([&] { command = [&](Session& session) { return RunTokenizerDecode(options.tokenizer, session); }; });
  exported->callback(
      [&] { command = [&](Session& session) { return RunTokenizerExport(options.tokenizer, session); }; });

  CLI::App* inspect = app.add_subcommand("inspect", "Offline: what a model is and what it needs");
  inspect->add_option("model", options.inspect.model, "A model directory or a .gguf file")->required();
  inspect->add_option("--context", options.inspect.context, "Tokens of a sequence; the model's maximum if unset")
      ->check(kPositive);
  inspect->add_option("--memory", options.inspect.memory_bytes, "Memory for the KV cache: bytes, 512MiB, 4GiB")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->transform(kNoMinus)
      ->check(kPositive);
  inspect
      ->add_option(
          "--kv-cache-dtype", options.inspect.kv_dtype,
          "auto, f32, f16, bf16, fp8_e4m3 or int8; auto: as quired on the CPU: f32 for float32 models, else f16")
      ->check(CLI::IsMember({"auto", "f32", "f16", "bf16", "fp8_e4m3", "int8"}))
      ->capture_default_str();
  inspect->add_flag("--json", options.inspect.json, kJsonHelp);
  inspect->callback([&] { command = [&](Session& session) { return RunInspect(options.inspect, session); }; });
}

absl::Duration SecondsOrForever(double seconds) {
  return seconds > 0 ? absl::Seconds(seconds) : absl::InfiniteDuration();
}

}  // namespace

int RunQuire(const std::vector<std::string>& args, Session& session) {
  AllOptions options;
  Command command;
  CLI::App app("Client, load generator and offline tools of the Quire LLM server", "quire");
  app.require_subcommand(1);
  app.fallthrough();  // common options may follow the subcommand
  app.set_version_flag("--version", "quire " QUIRE_VERSION);
  app.add_option("--server", session.server, "HOST:PORT or unix:PATH of quired")
      ->envname("QUIRE_SERVER")
      ->capture_default_str();
  app.add_option("--api-key", session.api_key, "The key that the server knows us by")->envname("QUIRE_API_KEY");
  app.add_option("--timeout", options.timeout_seconds, "Seconds for one call to the server; 0: no limit")
      ->check(kNotNegative)
      ->capture_default_str();
  app.add_option("--connect-timeout", options.connect_timeout_seconds, "Seconds to wait for the connection")
      ->check(kPositive)
      ->capture_default_str();
  AddGenerate(app, options.generate, command);
  AddChat(app, options.chat, command);
  AddBench(app, options.bench, command);
  AddServing(app, options, command);
  AddCache(app, options, command);
  AddTrace(app, options, command);
  AddOffline(app, options, command);
  app.footer("Exit codes: 0 done, 1 the request failed, 64 bad command line, 66 bad model files, 69 cannot connect.");
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));  // CLI11 takes them last first
  } catch (const CLI::ParseError& error) {
    // --help and --version come this way too.
    return app.exit(error, session.out, session.err) == 0 ? kExitOk : kExitUsage;
  }
  session.timeout = SecondsOrForever(options.timeout_seconds);
  session.connect_timeout = absl::Seconds(options.connect_timeout_seconds);
  return command(session);
}

}  // namespace quire::cli
