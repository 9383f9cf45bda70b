// The small commands: one RPC, one answer.
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/cli/client.h"
#include "server/cli/commands.h"
#include "server/cli/render.h"

namespace quire::cli {

int RunHealth(const HealthOptions& options, Session& session) {
  const std::unique_ptr<Client> client = ConnectOrReport(session);
  if (client == nullptr) return kExitNoConnection;
  const auto health = client->CheckHealth(options.service);
  if (!health.ok()) return ReportFailure(session, health.status());
  if (options.json) {
    session.out << JsonLine({{"service", options.service}, {"status", *health}});
  } else {
    session.out << *health << "\n";
  }
  session.out.flush();
  return *health == "SERVING" ? kExitOk : kExitFailed;
}

int RunModels(const ModelsOptions& options, Session& session) {
  const std::unique_ptr<Client> client = ConnectOrReport(session);
  if (client == nullptr) return kExitNoConnection;
  const auto info = client->GetModelInfo();
  if (!info.ok()) return ReportFailure(session, info.status());
  session.out << (options.json ? JsonLine(ModelInfoToJson(*info)) : ModelInfoText(*info)) << std::flush;
  return kExitOk;
}

int RunTokenize(const TokenizeOptions& options, Session& session) {
  const absl::StatusOr<std::string> text = TextArgument(options.text, session);
  if (!text.ok()) return ReportError(session, text.status().message(), kExitUsage);
  v1::TokenizeRequest request;
  request.set_text(*text);
  request.set_add_special_tokens(!options.no_special_tokens);
  const std::unique_ptr<Client> client = ConnectOrReport(session);
  if (client == nullptr) return kExitNoConnection;
  const auto response = client->Tokenize(request);
  if (!response.ok()) return ReportFailure(session, response.status());
  if (options.json) {
    Json ids = Json::array();
    for (uint32_t id : response->ids()) ids.push_back(id);
    session.out << JsonLine({{"ids", std::move(ids)}, {"max_model_len", response->max_model_len()}});
  } else {
    session.out << absl::StrJoin(response->ids(), ",") << "\n";
  }
  session.out.flush();
  return kExitOk;
}

int RunDetokenize(const DetokenizeOptions& options, Session& session) {
  v1::DetokenizeRequest request;
  request.mutable_ids()->Assign(options.ids.begin(), options.ids.end());
  request.set_skip_special_tokens(!options.keep_special_tokens);
  const std::unique_ptr<Client> client = ConnectOrReport(session);
  if (client == nullptr) return kExitNoConnection;
  const auto response = client->Detokenize(request);
  if (!response.ok()) return ReportFailure(session, response.status());
  session.out << (options.json ? JsonLine({{"text", response->text()}}) : absl::StrCat(response->text(), "\n"))
              << std::flush;
  return kExitOk;
}

int RunAbort(const AbortOptions& options, Session& session) {
  v1::AbortRequest request;
  for (const std::string& id : options.request_ids) request.add_request_ids(id);
  const std::unique_ptr<Client> client = ConnectOrReport(session);
  if (client == nullptr) return kExitNoConnection;
  const absl::Status status = client->Abort(request);
  if (!status.ok()) return ReportFailure(session, status);
  // Which of them were live the server does not say: unknown ids are no error.
  if (options.json) session.out << JsonLine({{"request_ids", options.request_ids}}) << std::flush;
  return kExitOk;
}

}  // namespace quire::cli
