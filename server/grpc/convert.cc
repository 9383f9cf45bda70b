#include "server/grpc/convert.h"

#include <utility>

#include "absl/time/time.h"
#include "server/grpc/cache_convert.h"

namespace quire {
namespace {

void FromProto(const v1::Dry& dry, RulesRequest* out) {
  out->dry_multiplier = dry.multiplier();
  if (dry.has_base()) out->dry_base = dry.base();
  if (dry.has_allowed_length()) out->dry_allowed_length = dry.allowed_length();
  if (dry.has_last_n()) out->dry_last_n = dry.last_n();
  out->dry_sequence_breakers.assign(dry.sequence_breakers().begin(), dry.sequence_breakers().end());
}

void FromProto(const v1::Sampling& sampling, RulesRequest* out) {
  if (sampling.has_repetition_penalty()) out->repetition_penalty = sampling.repetition_penalty();
  if (sampling.has_frequency_penalty()) out->frequency_penalty = sampling.frequency_penalty();
  if (sampling.has_presence_penalty()) out->presence_penalty = sampling.presence_penalty();
  if (sampling.has_repeat_last_n()) out->repeat_last_n = sampling.repeat_last_n();
  for (const auto& [id, bias] : sampling.logit_bias()) out->logit_bias.emplace_back(id, bias);
  out->allowed_token_ids.assign(sampling.allowed_token_ids().begin(), sampling.allowed_token_ids().end());
  out->bad_words.assign(sampling.bad_words().begin(), sampling.bad_words().end());
  if (sampling.has_no_repeat_ngram_size()) out->no_repeat_ngram_size = sampling.no_repeat_ngram_size();
  if (sampling.has_dry()) FromProto(sampling.dry(), out);
  if (sampling.has_top_n_sigma()) out->top_n_sigma = sampling.top_n_sigma();
  if (sampling.has_dynamic_temperature()) {
    out->dynatemp_range = sampling.dynamic_temperature().range();
    if (sampling.dynamic_temperature().has_exponent())
      out->dynatemp_exponent = sampling.dynamic_temperature().exponent();
  }
  if (sampling.has_typical_p()) out->typical_p = sampling.typical_p();
  if (sampling.has_xtc()) {
    out->xtc_probability = sampling.xtc().probability();
    if (sampling.xtc().has_threshold()) out->xtc_threshold = sampling.xtc().threshold();
  }
  out->mirostat = sampling.has_mirostat();
  if (sampling.mirostat().has_tau()) out->mirostat_tau = sampling.mirostat().tau();
  if (sampling.mirostat().has_eta()) out->mirostat_eta = sampling.mirostat().eta();
}

void FromProto(const v1::Sampling& sampling, GenerateRequest* out) {
  if (sampling.has_temperature()) out->temperature = sampling.temperature();
  if (sampling.has_min_p()) out->min_p = sampling.min_p();
  if (sampling.has_top_k()) out->top_k = sampling.top_k();
  if (sampling.has_top_p()) out->top_p = sampling.top_p();
  if (sampling.has_seed()) out->seed = sampling.seed();
  if (sampling.has_n()) out->n = sampling.n();
  if (sampling.has_best_of()) out->best_of = sampling.best_of();
  FromProto(sampling, &out->rules);
  if (!sampling.has_beam_search()) return;
  const v1::BeamSearch& beams = sampling.beam_search();
  out->beam_width = beams.width();
  if (beams.has_length_penalty()) out->length_penalty = beams.length_penalty();
  out->early_stopping = beams.early_stopping();
}

void FromProto(const v1::Stopping& stopping, GenerateRequest* out) {
  if (stopping.has_max_tokens()) out->max_tokens = stopping.max_tokens();
  out->min_tokens = stopping.min_tokens();
  out->stop.assign(stopping.stop().begin(), stopping.stop().end());
  out->stop_token_ids.assign(stopping.stop_token_ids().begin(), stopping.stop_token_ids().end());
  out->include_stop_str_in_output = stopping.include_stop_str_in_output();
  out->ignore_eos = stopping.ignore_eos();
  if (!stopping.has_repetition_detection()) return;
  const v1::RepetitionDetection& repetition = stopping.repetition_detection();
  RepetitionRequest& detection = out->repetition_detection.emplace();
  detection.max_pattern_size = repetition.max_pattern_size();
  if (repetition.has_min_pattern_size()) detection.min_pattern_size = repetition.min_pattern_size();
  detection.min_count = repetition.min_count();
}

void FromProto(const v1::Output& output, GenerateRequest* out) {
  if (output.has_logprobs()) out->logprobs = output.logprobs();
  if (output.has_prompt_logprobs()) out->prompt_logprobs = output.prompt_logprobs();
  if (output.has_text()) out->want_text = output.text();
  if (output.has_token_ids()) out->want_token_ids = output.token_ids();
  if (output.has_skip_special_tokens()) out->skip_special_tokens = output.skip_special_tokens();
  out->logprobs_mode = output.logprobs_mode();
  out->echo = output.echo();
}

void FromProto(v1::StructuredOutput& wanted, StructuredOutput* out) {
  using Kind = StructuredOutput::Kind;
  const auto set = [out](Kind kind, const char* field, std::string source) {
    out->kind = kind;
    out->field = std::string("structured_output.") + field;
    out->source = std::move(source);
  };
  switch (wanted.kind_case()) {
    case v1::StructuredOutput::KIND_NOT_SET:
      break;
    case v1::StructuredOutput::kJsonSchema:
      set(Kind::kJsonSchema, "json_schema", std::move(*wanted.mutable_json_schema()));
      break;
    case v1::StructuredOutput::kJsonObject:
      if (wanted.json_object()) set(Kind::kJsonObject, "json_object", "");
      break;
    case v1::StructuredOutput::kRegex:
      set(Kind::kRegex, "regex", std::move(*wanted.mutable_regex()));
      break;
    case v1::StructuredOutput::kGrammar:
      set(Kind::kGrammar, "grammar", std::move(*wanted.mutable_grammar()));
      break;
    case v1::StructuredOutput::kChoices:
      set(Kind::kChoices, "choices", "");
      out->choices.assign(wanted.choices().choices().begin(), wanted.choices().choices().end());
      break;
  }
  out->compact_json = wanted.compact_json();
}

// v1::PromptTokenLogprobs and v1::TokenLogprobs have the same fields.
template <typename Message>
void ToProto(const PositionLogprobs& position, Message* out) {
  out->set_logprob(position.logprob);
  out->set_rank(position.rank);
  out->mutable_top()->Reserve(static_cast<int>(position.top.size()));
  for (const TokenLogprob& entry : position.top) {
    v1::TokenLogprob* top = out->add_top();
    top->set_token_id(entry.token_id);
    top->set_logprob(entry.logprob);
  }
}

void ToProto(const Finish& finish, v1::Finish* out) {
  out->set_reason(finish.reason == FinishReason::kStop         ? v1::Finish::REASON_STOP
                  : finish.reason == FinishReason::kLength     ? v1::Finish::REASON_LENGTH
                  : finish.reason == FinishReason::kRepetition ? v1::Finish::REASON_REPETITION
                                                               : v1::Finish::REASON_ABORT);
  if (finish.reason == FinishReason::kStop && finish.called_tools) out->set_reason(v1::Finish::REASON_TOOL_CALLS);
  if (finish.stop == Finish::Stop::kEos) out->set_eos_token_id(finish.token_id);
  if (finish.stop == Finish::Stop::kStopToken) out->set_stop_token_id(finish.token_id);
  if (finish.stop == Finish::Stop::kStopString) out->set_stop_string(finish.stop_string);
  if (finish.score) out->set_score(*finish.score);
}

void ToProto(const SequenceDelta& delta, v1::SequenceDelta* out) {
  out->set_index(delta.index);
  out->set_text(delta.text);
  out->mutable_token_ids()->Add(delta.token_ids.begin(), delta.token_ids.end());
  for (const PositionLogprobs& position : delta.logprobs) ToProto(position, out->add_logprobs());
  if (delta.finish) ToProto(*delta.finish, out->mutable_finish());
  out->set_reasoning(delta.reasoning);
  for (const ToolUse& use : delta.tool_calls) {
    v1::ToolCall* call = out->add_tool_calls();
    call->set_id(use.id);
    call->set_name(use.name);
    call->set_arguments_json(use.arguments);
  }
}

void ToProto(const Timings& timings, v1::Timings* out) {
  out->set_queue(absl::ToDoubleSeconds(timings.queue));
  out->set_prefill(absl::ToDoubleSeconds(timings.prefill));
  out->set_decode(absl::ToDoubleSeconds(timings.decode));
  out->set_total(absl::ToDoubleSeconds(timings.total));
  out->set_preemptions(timings.preemptions);
  out->set_first_step(timings.first_step);
  out->set_last_step(timings.last_step);
}

void ToProto(const EngineStats::StepSeconds& seconds, v1::StepSeconds* out) {
  out->set_linear(seconds.linear);
  out->set_attention(seconds.attention);
  out->set_sampling(seconds.sampling);
  out->set_scheduling(seconds.scheduling);
  out->set_rest(seconds.rest);
  out->set_total(seconds.total);
}

}  // namespace

GenerateRequest FromProto(v1::GenerateRequest& request) {
  GenerateRequest out;
  out.request_id = request.request_id();
  out.model = request.model();
  if (request.has_text()) {
    out.prompt = std::move(*request.mutable_text());
  } else if (request.has_token_ids()) {
    out.prompt = std::vector<int64_t>(request.token_ids().ids().begin(), request.token_ids().ids().end());
  }
  if (request.has_add_special_tokens()) out.add_special_tokens = request.add_special_tokens();
  if (request.has_truncate_prompt_tokens()) out.truncate_prompt_tokens = request.truncate_prompt_tokens();
  out.truncation_side = request.truncation_side();
  FromProto(request.sampling(), &out);
  FromProto(request.stopping(), &out);
  FromProto(request.output(), &out);
  FromProto(request.cache(), &out.cache);
  if (request.has_structured_output()) FromProto(*request.mutable_structured_output(), &out.structured_output);
  out.priority = request.priority();
  if (request.has_num_speculative_tokens()) out.num_speculative_tokens = request.num_speculative_tokens();
  out.offline = request.offline();
  if (request.has_ttft_target_ms()) out.ttft_target_ms = request.ttft_target_ms();
  if (request.has_tpot_target_ms()) out.tpot_target_ms = request.tpot_target_ms();
  return out;
}

ForkRequest FromProto(v1::ForkRequest& request) {
  ForkRequest out;
  out.request_id = request.request_id();
  out.sequence = request.sequence();
  if (request.has_at_token()) out.at_token = request.at_token();
  out.request = FromProto(*request.mutable_request());
  out.request.add_special_tokens = request.request().add_special_tokens();  // unset: none, for nothing begins here
  return out;
}

void ToProto(const std::string& request_id, const OutputDelta& delta, v1::GenerateResponse* response) {
  response->set_request_id(request_id);
  if (delta.prompt) {
    v1::PromptInfo* prompt = response->mutable_prompt();
    prompt->set_prompt_tokens(delta.prompt->prompt_tokens);
    prompt->set_seed(delta.prompt->seed);
    for (const PositionLogprobs& position : delta.prompt->logprobs) ToProto(position, prompt->add_logprobs());
    prompt->set_text(delta.prompt->text);
    prompt->mutable_token_ids()->Add(delta.prompt->token_ids.begin(), delta.prompt->token_ids.end());
  }
  for (const SequenceDelta& sequence : delta.sequences) ToProto(sequence, response->add_sequences());
  if (!delta.usage) return;
  v1::Usage* usage = response->mutable_usage();
  usage->set_prompt_tokens(delta.usage->prompt_tokens);
  usage->set_cached_tokens(delta.usage->cached_tokens);
  usage->set_completion_tokens(delta.usage->completion_tokens);
  usage->set_reasoning_tokens(delta.usage->reasoning_tokens);
  usage->set_drafted_tokens(delta.usage->drafted_tokens);
  usage->set_accepted_tokens(delta.usage->accepted_tokens);
  if (delta.usage->cache_miss.reason != MissReason::kNone)
    ToProto(delta.usage->cache_miss, usage->mutable_cache_miss());
  ToProto(delta.timings, response->mutable_timings());
}

void ToProto(const EngineStats& stats, absl::Duration uptime, int64_t streams_stalled, v1::GetStatsResponse* response) {
  response->set_steps(stats.steps);
  response->set_requests_running(stats.requests_running);
  response->set_requests_waiting(stats.requests_waiting);
  response->set_requests_held(stats.requests_held);
  response->set_waiting_prompt_tokens(stats.waiting_prompt_tokens);
  response->set_kv_blocks_total(stats.kv_blocks_total);
  response->set_kv_blocks_free(stats.kv_blocks_free);
  response->set_kv_blocks_cached(stats.kv_blocks_cached);
  response->set_kv_blocks_active(stats.kv_blocks_active);
  response->set_prefix_query_tokens(stats.prefix_query_tokens);
  response->set_prefix_hit_tokens(stats.prefix_hit_tokens);
  response->set_evictions(stats.evictions);
  response->set_preemptions(stats.preemptions);
  response->set_swaps(stats.swaps);
  response->set_host_blocks_total(stats.host_blocks_total);
  response->set_host_blocks_used(stats.host_blocks_used);
  response->set_host_bytes_out(stats.host_bytes_out);
  response->set_host_bytes_in(stats.host_bytes_in);
  response->set_requests_finished(stats.requests_finished);
  response->set_requests_aborted(stats.requests_aborted);
  response->set_requests_failed(stats.requests_failed);
  response->set_prompt_tokens(stats.prompt_tokens);
  response->set_generation_tokens(stats.generation_tokens);
  response->set_drafting_steps(stats.drafting_steps);
  response->set_drafted_tokens(stats.drafted_tokens);
  response->set_accepted_tokens(stats.accepted_tokens);
  response->set_surplus_tokens(stats.surplus_tokens);
  ToProto(stats.total_step_seconds, response->mutable_total_step_seconds());
  ToProto(stats.last_step_seconds, response->mutable_last_step_seconds());
  response->set_output_queue_waits(stats.output_queue_waits);
  response->set_healthy(stats.healthy);
  response->set_uptime_seconds(absl::ToDoubleSeconds(uptime));
  response->set_streams_stalled(streams_stalled);
}

void ToProto(const Frontend& frontend, const ServedModel& served, v1::GetModelInfoResponse* response) {
  const EngineInfo& info = frontend.info();
  const FrontendOptions& options = frontend.options();
  response->set_model(options.served_model_names.front());
  for (const std::string& name : options.served_model_names) response->add_served_names(name);
  response->set_architecture(info.config.architecture);
  response->set_vocab_size(info.config.vocab_size);
  response->set_max_model_len(info.max_model_len);
  response->set_block_size(info.block_size);
  response->set_kv_blocks(info.num_kv_blocks);
  for (int32_t id : info.config.eos_token_ids) response->add_eos_token_ids(id);
  if (info.config.bos_token_id >= 0) response->set_bos_token_id(info.config.bos_token_id);
  response->set_device(info.device);
  response->set_version(served.version);
  response->set_max_logprobs(options.max_logprobs);
  response->set_kv_bytes_per_token(info.kv_bytes_per_token);
  response->set_weight_bytes_per_step(info.weight_bytes_per_step);
  response->set_max_num_seqs(served.max_num_seqs);
  response->set_max_num_batched_tokens(served.max_num_batched_tokens);
}

}  // namespace quire
