#pragma once

#include <cstdint>
#include <string>

#include "quire/v1/generation.pb.h"
#include "server/cli/format.h"

namespace quire::cli {

// Wire messages as JSON and as text. Names are those of generation.proto; a token's alternatives are [id, logprob]
// pairs, best first. Keys come in the order of the proto.

// Keys: request_id, and where present prompt, sequences. Usage and timings are left to UsageToJson.
Json MessageToJson(const v1::GenerateResponse& message);
// Keys: request_id, usage, timings.
Json UsageToJson(const v1::GenerateResponse& message);
Json ModelInfoToJson(const v1::GetModelInfoResponse& info);
// Adds prefix_hit_rate to the fields of the message.
Json StatsToJson(const v1::GetStatsResponse& stats);

// "stop", "length", "abort", "tool_calls", "" while running.
std::string FinishReasonName(v1::Finish::Reason reason);

// One line a token: "token 42  logprob -0.1234  rank 1  top 42:-0.1234 7:-2.5".
std::string LogprobLine(uint32_t token_id, const v1::TokenLogprobs& logprobs);

std::string ModelInfoText(const v1::GetModelInfoResponse& info);
std::string StatsText(const v1::GetStatsResponse& stats);

}  // namespace quire::cli
