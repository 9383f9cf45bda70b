#pragma once

#include <atomic>

#include "grpcpp/grpcpp.h"
#include "quire/v1/admin.grpc.pb.h"
#include "server/frontend/frontend.h"
#include "server/grpc/stream_watch.h"

namespace quire {

// quire.v1.Admin over a front end. Handlers check, hand over and return; answers come on threads of the front end.
class AdminService final : public v1::Admin::CallbackService {
 public:
  // Until then every call gets UNAVAILABLE with RetryInfo. `frontend` must outlive the server.
  void SetFrontend(Frontend* frontend) { frontend_.store(frontend, std::memory_order_release); }
  StreamWatch& streams() { return streams_; }

  grpc::ServerUnaryReactor* ListPrefixes(grpc::CallbackServerContext* context, const v1::ListPrefixesRequest* request,
                                         v1::ListPrefixesResponse* response) override;
  grpc::ServerUnaryReactor* WarmPrefix(grpc::CallbackServerContext* context, const v1::WarmPrefixRequest* request,
                                       v1::WarmPrefixResponse* response) override;
  grpc::ServerUnaryReactor* DropPrefix(grpc::CallbackServerContext* context, const v1::DropPrefixRequest* request,
                                       v1::DropPrefixResponse* response) override;
  grpc::ServerUnaryReactor* ResetPrefixCache(grpc::CallbackServerContext* context,
                                             const v1::ResetPrefixCacheRequest* request,
                                             v1::ResetPrefixCacheResponse* response) override;
  grpc::ServerWriteReactor<v1::KvEvents>* SubscribeKvEvents(grpc::CallbackServerContext* context,
                                                            const v1::SubscribeKvEventsRequest* request) override;
  grpc::ServerUnaryReactor* ScheduleTrace(grpc::CallbackServerContext* context, const v1::ScheduleTraceRequest* request,
                                          v1::ScheduleTraceResponse* response) override;

 private:
  // Whom to ask; null with what to answer instead: the model loads, or the caller has no key of an admin.
  Frontend* Admit(const grpc::CallbackServerContext& context, grpc::Status* refusal) const;

  std::atomic<Frontend*> frontend_ = nullptr;
  StreamWatch streams_;
};

}  // namespace quire
