#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "kernels/base/mutex.h"
#include "server/frontend/frontend.h"
#include "server/http/completion_call.h"
#include "server/http/http_message.h"

namespace quire {

struct HttpApiOptions {
  std::string version;
  absl::Duration ping_interval = absl::Seconds(15);  // a silent stream says so often that it is still there
  bool metrics_need_key = true;                      // /metrics, where keys are needed at all
  // The text of /metrics; empty: 404.
  std::function<std::string(const Frontend&)> metrics;
};

// What is served over HTTP: OpenAI's completions, chat and models, tokenize and detokenize, health, ready, version,
// load, metrics, openapi.json (protocols.md 2). A route is one row of a table. Any thread; nothing blocks.
class HttpApi : public HttpHandler {
 public:
  explicit HttpApi(HttpApiOptions options);
  ~HttpApi() override;

  // Refuses what there is not and who has no key; puts the caller's tenant into x-tenant, and takes its key out.
  std::optional<HttpResponse> Admit(HttpRequest& head) override;
  void Handle(std::shared_ptr<HttpExchange> exchange) override;

  // The model is loaded: requests go to `frontend`, which must outlive the server. Before, everything is 503.
  void SetFrontend(Frontend* frontend);
  // /ready is 503 from now on.
  void SetDraining() { draining_ = true; }

 private:
  using Answer = void (HttpApi::*)(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend);
  struct Route {
    const char* method;
    const char* path;  // one that ends in '/' stands for all below it
    Answer answer;

    bool IsAt(const std::string& asked_path) const;
    bool Takes(const std::string& asked_method) const;
  };
  static const std::vector<Route>& Routes();

  void Health(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend);
  void Ready(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend);
  void Version(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend);
  void Load(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend);
  void Models(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend);
  void Model(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend);
  void Metrics(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend);
  void OpenApi(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend);
  void Completions(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend);
  void ChatCompletions(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend);
  void Tokenize(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend);
  void Detokenize(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend);

  // Errors of Identify.
  absl::Status AdmitCaller(HttpRequest& head, const Frontend& frontend) const;
  Json ModelCard(const Frontend& frontend, const std::string& name) const;
  void Watch(const std::shared_ptr<CompletionCall>& call);
  // Pings silent streams until the end.
  void PingStreams();

  const HttpApiOptions options_;
  const int64_t started_;  // seconds since the epoch
  std::atomic<Frontend*> frontend_ = nullptr;
  std::atomic<bool> draining_ = false;

  Mutex mutex_;
  std::vector<std::weak_ptr<CompletionCall>> calls_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread pinger_;
};

}  // namespace quire
