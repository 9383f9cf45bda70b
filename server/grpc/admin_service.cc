#include "server/grpc/admin_service.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/frontend/errors.h"
#include "server/grpc/answer.h"
#include "server/grpc/cache_convert.h"
#include "server/grpc/events_call.h"
#include "server/grpc/status_details.h"

namespace quire {
namespace {

// Ids are copied: too many of them are refused before. gRPC keeps the request for us alone; its text is moved out.
absl::StatusOr<GenerateRequest> PromptOf(const v1::Prefix& prefix, const Frontend& frontend) {
  if (prefix.has_token_ids()) {
    const absl::Status status = frontend.CheckPromptLength(prefix.token_ids().ids_size());
    if (!status.ok())
      return InvalidField("prefix.prompt", std::string(status.message()).substr(std::string("prompt: ").size()));
  }
  return FromProto(const_cast<v1::Prefix&>(prefix));
}

// One WarmPrefix call. Deletes itself.
class WarmCall final : public grpc::ServerUnaryReactor {
 public:
  WarmCall(Frontend& frontend, v1::WarmPrefixResponse* response) : frontend_(frontend), response_(response) {}

  void Start(const v1::WarmPrefixRequest& request) {
    absl::StatusOr<GenerateRequest> prompt = PromptOf(request.prefix(), frontend_);
    if (!prompt.ok()) return Finish(ToGrpcStatus(prompt.status()));
    handle_ = frontend_.cache().Warm(*std::move(prompt), FromProto(request.keep()),
                                     [this](const absl::StatusOr<WarmResult>& result) { End(result); });
    if (cancelled_) frontend_.Cancel(handle_);
  }

  void OnCancel() override {
    cancelled_ = true;
    frontend_.Cancel(handle_);  // ends it, unless Start does that: 0 is no handle
  }
  void OnDone() override { delete this; }

 private:
  void End(const absl::StatusOr<WarmResult>& result) {
    if (result.ok()) {
      response_->set_prompt_tokens(result->prompt_tokens);
      response_->set_cached_tokens(result->cached_tokens);
      response_->set_computed_tokens(result->prompt_tokens - result->cached_tokens);
    }
    Finish(ToGrpcStatus(result.status()));
  }

  Frontend& frontend_;
  v1::WarmPrefixResponse* const response_;
  std::atomic<uint64_t> handle_ = 0;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace

Frontend* AdminService::Admit(const grpc::CallbackServerContext& context, grpc::Status* refusal) const {
  return AdmitCaller(context, frontend_.load(std::memory_order_acquire), /*must_be_admin=*/true, refusal);
}

grpc::ServerUnaryReactor* AdminService::ListPrefixes(grpc::CallbackServerContext* context,
                                                     const v1::ListPrefixesRequest* request,
                                                     v1::ListPrefixesResponse* response) {
  grpc::Status refusal;
  Frontend* const to = Admit(*context, &refusal);
  if (to == nullptr) return Answer(context, refusal);
  PrefixQuery query;
  query.limit = request->limit();
  query.page_token = request->page_token();
  if (request->has_tenant()) query.tenant = request->tenant();
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  to->cache().List(std::move(query), [reactor, response](const absl::StatusOr<PrefixPage>& page) {
    if (page.ok()) ToProto(*page, response);
    reactor->Finish(ToGrpcStatus(page.status()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::WarmPrefix(grpc::CallbackServerContext* context,
                                                   const v1::WarmPrefixRequest* request,
                                                   v1::WarmPrefixResponse* response) {
  grpc::Status refusal;
  Frontend* const to = Admit(*context, &refusal);
  if (to == nullptr) return Answer(context, refusal);
  auto* const call = new WarmCall(*to, response);
  call->Start(*request);  // gRPC deletes nothing before this returns
  return call;
}

grpc::ServerUnaryReactor* AdminService::DropPrefix(grpc::CallbackServerContext* context,
                                                   const v1::DropPrefixRequest* request,
                                                   v1::DropPrefixResponse* response) {
  grpc::Status refusal;
  Frontend* const to = Admit(*context, &refusal);
  if (to == nullptr) return Answer(context, refusal);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const auto done = [reactor, response](const absl::StatusOr<int32_t>& dropped) {
    if (dropped.ok()) response->set_dropped_blocks(*dropped);
    reactor->Finish(ToGrpcStatus(dropped.status()));
  };
  if (request->has_prefix()) {
    absl::StatusOr<GenerateRequest> prompt = PromptOf(request->prefix(), *to);
    if (prompt.ok()) {
      to->cache().DropPrefix(*std::move(prompt), done);
    } else {
      done(prompt.status());
    }
  } else if (request->has_tenant()) {
    to->cache().DropTenant(request->tenant(), done);
  } else if (request->all()) {
    to->cache().DropAll(done);
  } else {
    done(InvalidField("what", "is missing; give prefix, tenant or all = true"));
  }
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::ResetPrefixCache(grpc::CallbackServerContext* context,
                                                         const v1::ResetPrefixCacheRequest*,
                                                         v1::ResetPrefixCacheResponse* response) {
  grpc::Status refusal;
  Frontend* const to = Admit(*context, &refusal);
  if (to == nullptr) return Answer(context, refusal);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  to->cache().DropAll([reactor, response](const absl::StatusOr<int32_t>& dropped) {
    if (dropped.ok()) response->set_dropped_blocks(*dropped);
    reactor->Finish(ToGrpcStatus(dropped.status()));
  });
  return reactor;
}

grpc::ServerWriteReactor<v1::KvEvents>* AdminService::SubscribeKvEvents(grpc::CallbackServerContext* context,
                                                                        const v1::SubscribeKvEventsRequest* request) {
  grpc::Status refusal;
  if (Frontend* const to = Admit(*context, &refusal)) return EventsCall::Start(context, request, *to, streams_);
  return new RefusedStream<v1::KvEvents>(refusal);
}

grpc::ServerUnaryReactor* AdminService::ScheduleTrace(grpc::CallbackServerContext* context,
                                                      const v1::ScheduleTraceRequest* request,
                                                      v1::ScheduleTraceResponse* response) {
  grpc::Status refusal;
  Frontend* const to = Admit(*context, &refusal);
  if (to == nullptr) return Answer(context, refusal);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const auto done = [reactor, response](const absl::StatusOr<ScheduleTraceStatus>& trace) {
    if (trace.ok()) ToProto(*trace, response);
    reactor->Finish(ToGrpcStatus(trace.status()));
  };
  if (request->has_start() && request->stop()) {
    done(InvalidField("stop", "is set beside start; give one of them"));
  } else if (request->has_start()) {
    const v1::ScheduleTraceStart& start = request->start();
    TraceStart begin{.file = start.file(),
                     .max_bytes = static_cast<int64_t>(std::min<uint64_t>(start.max_bytes(), INT64_MAX))};
    if (start.has_max_wait_seconds()) begin.max_wait_seconds = start.max_wait_seconds();
    to->cache().StartTrace(begin, done);
  } else if (request->stop()) {
    to->cache().StopTrace(done);
  } else {
    to->cache().GetTrace(done);
  }
  return reactor;
}

}  // namespace quire
