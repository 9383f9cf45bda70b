#pragma once

#include <string>

#include "quire/v1/admin.pb.h"
#include "quire/v1/generation.pb.h"
#include "server/frontend/frontend.h"

// As convert.h, for what concerns the prefix cache.
namespace quire {

KeepRequest FromProto(const v1::Retention& retention);
void FromProto(const v1::Cache& cache, CacheRequest* out);
// The prompt, salt and tenant of a request; takes the prompt out of it.
GenerateRequest FromProto(v1::Prefix& prefix);

void ToProto(const CacheMiss& miss, v1::CacheMiss* out);
void ToProto(const PrefixPage& page, v1::ListPrefixesResponse* response);
void ToProto(const ScheduleTraceStatus& trace, v1::ScheduleTraceResponse* response);
void ToProto(const EventBatch& batch, v1::KvEvents* message);
// 16 bytes, the most significant first.
std::string BytesOf(const BlockHash& hash);

}  // namespace quire
