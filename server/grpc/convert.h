#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "quire/v1/generation.pb.h"
#include "server/frontend/frontend.h"

// Between wire messages and the front end's plain types. Nothing is checked here.
namespace quire {

GenerateRequest FromProto(v1::GenerateRequest& request);  // takes the prompt out of it
ForkRequest FromProto(v1::ForkRequest& request);          // likewise

// Takes the texts of the conversation out of it. kInvalidArgument for a text that must be JSON and is not.
absl::StatusOr<GenerateRequest> FromProto(v1::ChatRequest& request);

void ToProto(const std::string& request_id, const OutputDelta& delta, v1::GenerateResponse* response);

// `uptime` since the start of the process.
void ToProto(const EngineStats& stats, absl::Duration uptime, int64_t streams_stalled, v1::GetStatsResponse* response);

struct ServedModel {
  std::string version;  // of the daemon
  int32_t max_num_seqs = 0;
  int32_t max_num_batched_tokens = 0;
};
void ToProto(const Frontend& frontend, const ServedModel& served, v1::GetModelInfoResponse* response);

}  // namespace quire
