#include "server/grpc/generation_service.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/frontend/errors.h"
#include "server/grpc/answer.h"
#include "server/grpc/generate_reactors.h"
#include "server/grpc/status_details.h"

namespace quire {
namespace {

constexpr int kMaxAbortIds = 4096, kMaxDetokenizeIds = 1 << 20;
// A token is a byte or more and an id three bytes at most: the answer stays below the 4 MiB that clients take.
constexpr size_t kMaxTokenizeBytes = 1 << 20;
constexpr size_t kMaxTextBytes = (4 << 20) - 16;  // with what is around it, what clients take

}  // namespace

grpc::ServerWriteReactor<v1::GenerateResponse>* GenerationService::GenerateStream(grpc::CallbackServerContext* context,
                                                                                  const v1::GenerateRequest* request) {
  grpc::Status refusal;
  if (Frontend* const to = Admit(*context, &refusal)) return StreamReactor::Start(context, request, *to, streams_);
  return new RefusedStream<v1::GenerateResponse>(refusal);
}

grpc::ServerWriteReactor<v1::GenerateResponse>* GenerationService::Fork(grpc::CallbackServerContext* context,
                                                                        const v1::ForkRequest* request) {
  grpc::Status refusal;
  if (Frontend* const to = Admit(*context, &refusal)) return StreamReactor::Start(context, request, *to, streams_);
  return new RefusedStream<v1::GenerateResponse>(refusal);
}

grpc::ServerUnaryReactor* GenerationService::Generate(grpc::CallbackServerContext* context,
                                                      const v1::GenerateRequest* request,
                                                      v1::GenerateResponse* response) {
  grpc::Status refusal;
  if (Frontend* const to = Admit(*context, &refusal))
    return UnaryReactor::Start(context, request, response, *to, streams_);
  return Answer(context, refusal);
}

grpc::ServerWriteReactor<v1::GenerateResponse>* GenerationService::ChatStream(grpc::CallbackServerContext* context,
                                                                              const v1::ChatRequest* request) {
  grpc::Status refusal;
  if (Frontend* const to = Admit(*context, &refusal)) return StreamReactor::Start(context, request, *to, streams_);
  return new RefusedStream<v1::GenerateResponse>(refusal);
}

grpc::ServerUnaryReactor* GenerationService::Chat(grpc::CallbackServerContext* context, const v1::ChatRequest* request,
                                                  v1::GenerateResponse* response) {
  grpc::Status refusal;
  if (Frontend* const to = Admit(*context, &refusal))
    return UnaryReactor::Start(context, request, response, *to, streams_);
  return Answer(context, refusal);
}

grpc::ServerUnaryReactor* GenerationService::Tokenize(grpc::CallbackServerContext* context,
                                                      const v1::TokenizeRequest* request,
                                                      v1::TokenizeResponse* response) {
  grpc::Status refusal;
  Frontend* const to = Admit(*context, &refusal);
  if (to == nullptr) return Answer(context, refusal);
  if (request->text().size() > kMaxTokenizeBytes)
    return Answer(
        context, ToGrpcStatus(InvalidField("text", absl::StrCat(request->text().size(), " bytes are too long; at most ",
                                                                kMaxTokenizeBytes))));
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const bool add_special_tokens = !request->has_add_special_tokens() || request->add_special_tokens();
  to->Tokenize(request->text(), add_special_tokens,
               [to, reactor, response](const absl::StatusOr<std::vector<int32_t>>& ids) {
                 if (ids.ok()) {
                   response->mutable_ids()->Add(ids->begin(), ids->end());
                   response->set_max_model_len(to->info().max_model_len);
                 }
                 reactor->Finish(ToGrpcStatus(ids.status()));
               });
  return reactor;
}

grpc::ServerUnaryReactor* GenerationService::Detokenize(grpc::CallbackServerContext* context,
                                                        const v1::DetokenizeRequest* request,
                                                        v1::DetokenizeResponse* response) {
  grpc::Status refusal;
  Frontend* const to = Admit(*context, &refusal);
  if (to == nullptr) return Answer(context, refusal);
  if (request->ids_size() > kMaxDetokenizeIds)
    return Answer(context,
                  ToGrpcStatus(InvalidField(
                      "ids", absl::StrCat(request->ids_size(), " ids are too many; at most ", kMaxDetokenizeIds))));
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const bool skip_special_tokens = !request->has_skip_special_tokens() || request->skip_special_tokens();
  to->Detokenize({request->ids().begin(), request->ids().end()}, skip_special_tokens,
                 [reactor, response](const absl::StatusOr<std::string>& text) {
                   absl::Status status = text.status();
                   if (status.ok() && text->size() > kMaxTextBytes) {
                     status =
                         absl::OutOfRangeError(absl::StrCat("the text has ", text->size(), " bytes; at most ",
                                                            kMaxTextBytes, " are told at once: ask for fewer ids"));
                   }
                   if (status.ok()) response->set_text(*text);
                   reactor->Finish(ToGrpcStatus(status));
                 });
  return reactor;
}

grpc::ServerUnaryReactor* GenerationService::Abort(grpc::CallbackServerContext* context,
                                                   const v1::AbortRequest* request, v1::AbortResponse*) {
  return AnswerNow(context, [request](Frontend& to) {
    if (request->request_ids_size() > kMaxAbortIds)
      return InvalidField("request_ids",
                          absl::StrCat(request->request_ids_size(), " ids are too many; at most ", kMaxAbortIds));
    to.Abort(std::vector<std::string>(request->request_ids().begin(), request->request_ids().end()));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* GenerationService::GetModelInfo(grpc::CallbackServerContext* context,
                                                          const v1::GetModelInfoRequest*,
                                                          v1::GetModelInfoResponse* response) {
  return AnswerNow(context, [this, response](Frontend& to) {
    ToProto(to, served_, response);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* GenerationService::GetStats(grpc::CallbackServerContext* context, const v1::GetStatsRequest*,
                                                      v1::GetStatsResponse* response) {
  return AnswerNow(context, [this, response](Frontend& to) {
    ToProto(to.GetEngineStats(), absl::Now() - started_, streams_.num_stalled(), response);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* GenerationService::AnswerNow(grpc::CallbackServerContext* context,
                                                       const std::function<absl::Status(Frontend&)>& body) {
  grpc::Status refusal;
  Frontend* const to = Admit(*context, &refusal);
  return Answer(context, to == nullptr ? refusal : ToGrpcStatus(body(*to)));
}

Frontend* GenerationService::Admit(const grpc::CallbackServerContext& context, grpc::Status* refusal) const {
  return AdmitCaller(context, frontend_.load(std::memory_order_acquire), /*must_be_admin=*/false, refusal);
}

}  // namespace quire
