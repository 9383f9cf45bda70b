#include "server/cli/render.h"

#include <array>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace quire::cli {
namespace {

template <typename Repeated>
Json TopToJson(const Repeated& top) {
  Json pairs = Json::array();
  for (const v1::TokenLogprob& entry : top) pairs.push_back({entry.token_id(), entry.logprob()});
  return pairs;
}

template <typename Logprobs>
Json LogprobsToJson(const Logprobs& logprobs) {
  return {{"logprob", logprobs.logprob()}, {"rank", logprobs.rank()}, {"top", TopToJson(logprobs.top())}};
}

Json PromptToJson(const v1::PromptInfo& prompt) {
  Json json = {{"prompt_tokens", prompt.prompt_tokens()}, {"seed", prompt.seed()}};
  if (!prompt.text().empty()) json["text"] = prompt.text();
  for (const uint32_t id : prompt.token_ids()) json["token_ids"].push_back(id);
  if (prompt.logprobs_size() > 0) {
    Json list = Json::array({nullptr});  // nothing precedes the first token
    for (int i = 1; i < prompt.logprobs_size(); ++i) list.push_back(LogprobsToJson(prompt.logprobs(i)));
    json["logprobs"] = std::move(list);
  }
  return json;
}

Json FinishToJson(const v1::Finish& finish) {
  Json json = {{"reason", FinishReasonName(finish.reason())}};
  switch (finish.stop_case()) {
    case v1::Finish::kEosTokenId:
      json["eos_token_id"] = finish.eos_token_id();
      break;
    case v1::Finish::kStopTokenId:
      json["stop_token_id"] = finish.stop_token_id();
      break;
    case v1::Finish::kStopString:
      json["stop_string"] = finish.stop_string();
      break;
    case v1::Finish::STOP_NOT_SET:
      break;
  }
  if (finish.has_score()) json["score"] = finish.score();
  return json;
}

Json SequenceToJson(const v1::SequenceDelta& delta) {
  Json json = {{"index", delta.index()}, {"text", delta.text()}, {"token_ids", Json::array()}};
  for (uint32_t id : delta.token_ids()) json["token_ids"].push_back(id);
  if (delta.logprobs_size() > 0) {
    Json list = Json::array();
    for (const v1::TokenLogprobs& logprobs : delta.logprobs()) list.push_back(LogprobsToJson(logprobs));
    json["logprobs"] = std::move(list);
  }
  if (!delta.reasoning().empty()) json["reasoning"] = delta.reasoning();
  for (const v1::ToolCall& call : delta.tool_calls())
    json["tool_calls"].push_back({{"id", call.id()}, {"name", call.name()}, {"arguments", call.arguments_json()}});
  if (delta.has_finish()) json["finish"] = FinishToJson(delta.finish());
  return json;
}

// "never_seen" and so on.
Json MissToJson(const v1::CacheMiss& miss) {
  const std::string name = v1::CacheMiss::Reason_Name(miss.reason());
  Json json = {{"reason", absl::AsciiStrToLower(absl::StripPrefix(name, "REASON_"))}, {"block", miss.block()}};
  if (miss.has_evicted_seconds_ago()) json["evicted_seconds_ago"] = miss.evicted_seconds_ago();
  return json;
}

Json StepToJson(const v1::StepSeconds& step) {
  return {{"linear", step.linear()},         {"attention", step.attention()}, {"sampling", step.sampling()},
          {"scheduling", step.scheduling()}, {"rest", step.rest()},           {"total", step.total()}};
}

// "name  ms  share" lines of one step, or of the mean of many.
std::string StepText(const v1::StepSeconds& step, double steps) {
  struct Part {
    const char* name;
    double seconds;
  };
  const std::array<Part, 6> parts = {Part{"GEMM", step.linear()},   {"attention", step.attention()},
                                     {"sampling", step.sampling()}, {"scheduling", step.scheduling()},
                                     {"rest", step.rest()},         {"total", step.total()}};
  std::string text;
  for (const Part& part : parts) {
    absl::StrAppendFormat(&text, "  %-12s %10.3f ms %6.1f %%\n", part.name, part.seconds / steps * 1e3,
                          Percent(part.seconds, step.total()));
  }
  return text;
}

}  // namespace

Json MessageToJson(const v1::GenerateResponse& message) {
  Json json = {{"request_id", message.request_id()}};
  if (message.has_prompt()) json["prompt"] = PromptToJson(message.prompt());
  if (message.sequences_size() > 0) {
    Json list = Json::array();
    for (const v1::SequenceDelta& delta : message.sequences()) list.push_back(SequenceToJson(delta));
    json["sequences"] = std::move(list);
  }
  return json;
}

Json UsageToJson(const v1::GenerateResponse& message) {
  const v1::Usage& usage = message.usage();
  const v1::Timings& timings = message.timings();
  Json json = {{"request_id", message.request_id()},
               {"usage",
                {{"prompt_tokens", usage.prompt_tokens()},
                 {"cached_tokens", usage.cached_tokens()},
                 {"completion_tokens", usage.completion_tokens()}}},
               {"timings",
                {{"queue", timings.queue()},
                 {"prefill", timings.prefill()},
                 {"decode", timings.decode()},
                 {"total", timings.total()},
                 {"preemptions", timings.preemptions()},
                 {"first_step", timings.first_step()},
                 {"last_step", timings.last_step()}}}};
  if (usage.drafted_tokens() > 0) {
    json["usage"]["drafted_tokens"] = usage.drafted_tokens();
    json["usage"]["accepted_tokens"] = usage.accepted_tokens();
  }
  if (usage.has_cache_miss()) json["usage"]["cache_miss"] = MissToJson(usage.cache_miss());
  return json;
}

Json ModelInfoToJson(const v1::GetModelInfoResponse& info) {
  Json json = {{"model", info.model()},
               {"served_names", Json::array()},
               {"architecture", info.architecture()},
               {"vocab_size", info.vocab_size()},
               {"max_model_len", info.max_model_len()},
               {"block_size", info.block_size()},
               {"kv_blocks", info.kv_blocks()},
               {"eos_token_ids", Json::array()},
               {"bos_token_id", nullptr},
               {"device", info.device()},
               {"version", info.version()},
               {"max_logprobs", info.max_logprobs()},
               {"kv_bytes_per_token", info.kv_bytes_per_token()},
               {"weight_bytes_per_step", info.weight_bytes_per_step()},
               {"max_num_seqs", info.max_num_seqs()},
               {"max_num_batched_tokens", info.max_num_batched_tokens()}};
  for (const std::string& name : info.served_names()) json["served_names"].push_back(name);
  for (uint32_t id : info.eos_token_ids()) json["eos_token_ids"].push_back(id);
  if (info.has_bos_token_id()) json["bos_token_id"] = info.bos_token_id();
  return json;
}

Json StatsToJson(const v1::GetStatsResponse& stats) {
  return {{"healthy", stats.healthy()},
          {"uptime_seconds", stats.uptime_seconds()},
          {"steps", stats.steps()},
          {"requests_running", stats.requests_running()},
          {"requests_waiting", stats.requests_waiting()},
          {"requests_held", stats.requests_held()},
          {"waiting_prompt_tokens", stats.waiting_prompt_tokens()},
          {"kv_blocks_total", stats.kv_blocks_total()},
          {"kv_blocks_free", stats.kv_blocks_free()},
          {"kv_blocks_cached", stats.kv_blocks_cached()},
          {"kv_blocks_active", stats.kv_blocks_active()},
          {"prefix_query_tokens", stats.prefix_query_tokens()},
          {"prefix_hit_tokens", stats.prefix_hit_tokens()},
          {"prefix_hit_rate", Percent(stats.prefix_hit_tokens(), stats.prefix_query_tokens()) / 100},
          {"evictions", stats.evictions()},
          {"preemptions", stats.preemptions()},
          {"swaps", stats.swaps()},
          {"host_blocks_total", stats.host_blocks_total()},
          {"host_blocks_used", stats.host_blocks_used()},
          {"host_bytes_out", stats.host_bytes_out()},
          {"host_bytes_in", stats.host_bytes_in()},
          {"requests_finished", stats.requests_finished()},
          {"requests_aborted", stats.requests_aborted()},
          {"requests_failed", stats.requests_failed()},
          {"prompt_tokens", stats.prompt_tokens()},
          {"generation_tokens", stats.generation_tokens()},
          {"surplus_tokens", stats.surplus_tokens()},
          {"drafting_steps", stats.drafting_steps()},
          {"drafted_tokens", stats.drafted_tokens()},
          {"accepted_tokens", stats.accepted_tokens()},
          {"streams_stalled", stats.streams_stalled()},
          {"output_queue_waits", stats.output_queue_waits()},
          {"total_step_seconds", StepToJson(stats.total_step_seconds())},
          {"last_step_seconds", StepToJson(stats.last_step_seconds())}};
}

std::string FinishReasonName(v1::Finish::Reason reason) {
  switch (reason) {
    case v1::Finish::REASON_STOP:
      return "stop";
    case v1::Finish::REASON_LENGTH:
      return "length";
    case v1::Finish::REASON_REPETITION:
      return "repetition";
    case v1::Finish::REASON_ABORT:
      return "abort";
    case v1::Finish::REASON_TOOL_CALLS:
      return "tool_calls";
    default:
      return "";
  }
}

std::string LogprobLine(uint32_t token_id, const v1::TokenLogprobs& logprobs) {
  std::string line =
      absl::StrFormat("token %d  logprob %.4f  rank %d  top", token_id, logprobs.logprob(), logprobs.rank());
  for (const v1::TokenLogprob& entry : logprobs.top()) {
    absl::StrAppendFormat(&line, " %d:%.4f", entry.token_id(), entry.logprob());
  }
  return line;
}

std::string ModelInfoText(const v1::GetModelInfoResponse& info) {
  std::string text = absl::StrFormat(
      "model             %s\n"
      "served names      %s\n"
      "architecture      %s\n"
      "device            %s\n"
      "context           %d tokens\n"
      "vocabulary        %d\n"
      "eos ids           %s\n"
      "KV cache          %d blocks of %d tokens, %d bytes a token\n"
      "step limits       %d sequences, %d tokens\n"
      "weights           %s read a step\n"
      "version           %s\n",
      info.model(), absl::StrJoin(info.served_names(), " "), info.architecture(), info.device(), info.max_model_len(),
      info.vocab_size(), absl::StrJoin(info.eos_token_ids(), " "), info.kv_blocks(), info.block_size(),
      info.kv_bytes_per_token(), info.max_num_seqs(), info.max_num_batched_tokens(),
      BytesText(static_cast<double>(info.weight_bytes_per_step())), info.version());
  return text;
}

std::string StatsText(const v1::GetStatsResponse& stats) {
  std::string text = absl::StrFormat(
      "%s, up %.0f s, %d steps\n"
      "requests      %d running, %d waiting (%d prompt tokens), %d held for slow readers\n"
      "              %d finished, %d aborted, %d failed\n"
      "tokens        %d prompt, %d generated, %d surplus\n"
      "KV blocks     %d active, %d cached, %d free of %d (%.1f %% in use)\n"
      "prefix cache  %.1f %% hits (%d of %d tokens), %d evictions\n"
      "preemptions   %d, %d swapped; host tier %d of %d blocks, %s out, %s in\n"
      "streams       %d stalled, %d output queue waits\n",
      stats.healthy() ? "healthy" : "NOT healthy", stats.uptime_seconds(), stats.steps(), stats.requests_running(),
      stats.requests_waiting(), stats.waiting_prompt_tokens(), stats.requests_held(), stats.requests_finished(),
      stats.requests_aborted(), stats.requests_failed(), stats.prompt_tokens(), stats.generation_tokens(),
      stats.surplus_tokens(), stats.kv_blocks_active(), stats.kv_blocks_cached(), stats.kv_blocks_free(),
      stats.kv_blocks_total(), Percent(stats.kv_blocks_active(), stats.kv_blocks_total()),
      Percent(stats.prefix_hit_tokens(), stats.prefix_query_tokens()), stats.prefix_hit_tokens(),
      stats.prefix_query_tokens(), stats.evictions(), stats.preemptions(), stats.swaps(), stats.host_blocks_used(),
      stats.host_blocks_total(), BytesText(static_cast<double>(stats.host_bytes_out())),
      BytesText(static_cast<double>(stats.host_bytes_in())), stats.streams_stalled(), stats.output_queue_waits());
  if (stats.drafted_tokens() > 0) {
    absl::StrAppendFormat(&text, "speculation   %d tokens drafted, %d accepted (%.1f %%)\n", stats.drafted_tokens(),
                          stats.accepted_tokens(), Percent(stats.accepted_tokens(), stats.drafted_tokens()));
  }
  if (stats.steps() > 0) {
    absl::StrAppend(&text, "mean step\n", StepText(stats.total_step_seconds(), static_cast<double>(stats.steps())));
    absl::StrAppend(&text, "last step\n", StepText(stats.last_step_seconds(), 1));
  }
  return text;
}

}  // namespace quire::cli
