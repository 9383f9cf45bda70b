#include "server/http/http_api.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "server/frontend/errors.h"
#include "server/http/chat_request.h"
#include "server/http/http_errors.h"
#include "server/http/json_fields.h"
#include "server/http/openapi.h"

namespace quire {
namespace {

constexpr size_t kMaxTokenizeBytes = 4 << 20, kMaxDetokenizeIds = 1 << 20;

HttpResponse JsonResponse(const Json& body, int status = 200) {
  HttpResponse response;
  response.status = status;
  response.body = Dump(body);
  return response;
}

HttpResponse Empty(int status) {
  HttpResponse response;
  response.status = status;
  response.content_type.clear();
  return response;
}

absl::Status Loading() {
  return RetryAfter(absl::UnavailableError("the model is still being loaded"), absl::Seconds(1));
}

// Bodies are JSON; from pages they say so: then none of another origin can send one without a browser asking about it
// first (CORS). Browsers say that it is a page by Origin.
absl::Status CheckContentType(const HttpRequest& request) {
  const std::string* const coding = request.Find("content-encoding");
  if (coding != nullptr && !absl::EqualsIgnoreCase(*coding, "identity"))
    return InvalidField("Content-Encoding", absl::StrCat(Quoted(*coding), " is not understood; send it as it is"));
  const std::string* const type = request.Find("content-type");
  if (type == nullptr && request.Find("origin") == nullptr) return absl::OkStatus();
  if (type == nullptr) return InvalidField("Content-Type", "is missing; send application/json");
  const absl::string_view value = *type;
  const absl::string_view media = absl::StripAsciiWhitespace(value.substr(0, value.find(';')));
  if (absl::EqualsIgnoreCase(media, "application/json") || absl::EndsWithIgnoreCase(media, "+json"))
    return absl::OkStatus();
  return InvalidField("Content-Type", absl::StrCat("'", media, "' is not understood; send application/json"));
}

// The body of a POST, or its refusal, which has been sent.
std::optional<Json> ReadBody(const std::shared_ptr<HttpExchange>& exchange) {
  absl::Status status = CheckContentType(exchange->request());
  if (status.ok()) {
    absl::StatusOr<Json> body = ParseBody(exchange->request().body);
    if (body.ok()) return *std::move(body);
    status = body.status();
  }
  exchange->Respond(ErrorResponse(status));
  return std::nullopt;
}

}  // namespace

HttpApi::HttpApi(HttpApiOptions options)
    : options_(std::move(options)), started_(absl::ToUnixSeconds(absl::Now())), pinger_([this] { PingStreams(); }) {}

HttpApi::~HttpApi() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  pinger_.join();
}

const std::vector<HttpApi::Route>& HttpApi::Routes() {
  static const auto* const kRoutes = new std::vector<Route>{
      {"GET", "/health", &HttpApi::Health},
      {"GET", "/ready", &HttpApi::Ready},
      {"GET", "/version", &HttpApi::Version},
      {"GET", "/load", &HttpApi::Load},
      {"GET", "/metrics", &HttpApi::Metrics},
      {"GET", "/openapi.json", &HttpApi::OpenApi},
      {"GET", "/v1/models", &HttpApi::Models},
      {"GET", "/v1/models/", &HttpApi::Model},
      {"POST", "/v1/completions", &HttpApi::Completions},
      {"POST", "/v1/chat/completions", &HttpApi::ChatCompletions},
      {"POST", "/tokenize", &HttpApi::Tokenize},
      {"POST", "/detokenize", &HttpApi::Detokenize},
  };
  return *kRoutes;
}

void HttpApi::SetFrontend(Frontend* frontend) { frontend_ = frontend; }

bool HttpApi::Route::IsAt(const std::string& asked_path) const {
  const std::string_view known = path;
  if (known.back() == '/') return asked_path.size() > known.size() && absl::StartsWith(asked_path, path);
  return asked_path == known;
}

bool HttpApi::Route::Takes(const std::string& asked_method) const {
  const std::string_view known = method;
  return asked_method == known || (asked_method == "HEAD" && known == "GET");
}

std::optional<HttpResponse> HttpApi::Admit(HttpRequest& head) {
  std::vector<std::string> methods;
  for (const Route& route : Routes()) {
    if (!route.IsAt(head.path)) continue;
    if (route.Takes(head.method)) {
      Frontend* const frontend = frontend_;
      const absl::Status admitted = frontend == nullptr ? Loading() : AdmitCaller(head, *frontend);
      if (admitted.ok()) return std::nullopt;
      return ErrorResponse(admitted);
    }
    methods.emplace_back(route.method);
    if (methods.back() == "GET") methods.emplace_back("HEAD");
  }
  if (methods.empty()) return ErrorResponse(404, "there is nothing at this path");
  methods.emplace_back("OPTIONS");
  const bool asked = head.method == "OPTIONS";
  HttpResponse response = asked ? Empty(204) : ErrorResponse(405, "this method does not go with this path");
  response.headers.emplace_back("Allow", absl::StrJoin(methods, ", "));
  return response;
}

void HttpApi::Handle(std::shared_ptr<HttpExchange> exchange) {
  const HttpRequest& request = exchange->request();
  for (const Route& route : Routes()) {
    if (route.IsAt(request.path) && route.Takes(request.method)) return (this->*route.answer)(exchange, *frontend_);
  }
}

absl::Status HttpApi::AdmitCaller(HttpRequest& head, const Frontend& frontend) const {
  const ApiKeyStore* const keys = frontend.options().keys;
  const bool is_free =
      head.path == "/health" || head.path == "/ready" || (head.path == "/metrics" && !options_.metrics_need_key);
  if (keys == nullptr || is_free) return absl::OkStatus();
  const auto value = [&head](const char* name) {
    const std::string* const found = head.Find(name);
    return found == nullptr ? std::string_view() : std::string_view(*found);
  };
  absl::StatusOr<Caller> caller = Identify(keys, value("authorization"), value("x-tenant"));
  if (!caller.ok()) return caller.status();
  std::erase_if(head.headers,
                [](const auto& header) { return header.first == "authorization" || header.first == "x-tenant"; });
  head.headers.emplace_back("x-tenant", std::move(caller->tenant));
  return absl::OkStatus();
}

// --- state

void HttpApi::Health(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend) {
  exchange->Respond(Empty(frontend.IsHealthy() ? 200 : 503));
}

void HttpApi::Ready(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend) {
  exchange->Respond(Empty(frontend.IsHealthy() && !draining_ && !frontend.draining() ? 200 : 503));
}

void HttpApi::Version(const std::shared_ptr<HttpExchange>& exchange, Frontend&) {
  exchange->Respond(JsonResponse({{"version", options_.version}}));
}

void HttpApi::Load(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend) {
  const EngineStats stats = frontend.GetEngineStats();
  exchange->Respond(JsonResponse({{"server_load", frontend.num_live_requests()},
                                  {"requests_running", stats.requests_running},
                                  {"requests_waiting", stats.requests_waiting},
                                  {"kv_blocks_total", stats.kv_blocks_total},
                                  {"kv_blocks_free", stats.kv_blocks_free + stats.kv_blocks_cached}}));
}

void HttpApi::Metrics(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend) {
  if (!options_.metrics) return exchange->Respond(ErrorResponse(404, "there is nothing at this path"));
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = options_.metrics(frontend);
  exchange->Respond(std::move(response));
}

void HttpApi::OpenApi(const std::shared_ptr<HttpExchange>& exchange, Frontend&) {
  Json document = OpenApiDocument(options_.version);
  for (const Route& route : Routes()) AddOpenApiRoute(route.method, route.path, &document);
  exchange->Respond(JsonResponse(document));
}

// --- models

Json HttpApi::ModelCard(const Frontend& frontend, const std::string& name) const {
  return {{"id", name},
          {"object", "model"},
          {"created", started_},
          {"owned_by", "quire"},
          {"root", frontend.options().served_model_names.front()},
          {"parent", nullptr},
          {"max_model_len", frontend.info().max_model_len},
          {"permission", Json::array()},
          {"meta", {{"n_vocab", frontend.info().config.vocab_size}}}};
}

void HttpApi::Models(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend) {
  Json cards = Json::array();
  for (const std::string& name : frontend.options().served_model_names) cards.push_back(ModelCard(frontend, name));
  exchange->Respond(JsonResponse({{"object", "list"}, {"data", std::move(cards)}}));
}

void HttpApi::Model(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend) {
  const std::string name = exchange->request().path.substr(std::string_view("/v1/models/").size());
  const std::vector<std::string>& served = frontend.options().served_model_names;
  if (std::find(served.begin(), served.end(), name) == served.end())
    return exchange->Respond(ErrorResponse(absl::NotFoundError("this model is not served")));
  exchange->Respond(JsonResponse(ModelCard(frontend, name)));
}

// --- text

void HttpApi::Completions(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend) {
  const std::optional<Json> body = ReadBody(exchange);
  if (!body) return;
  absl::StatusOr<CompletionRequest> request = ParseCompletionRequest(exchange->request(), *body);
  if (!request.ok()) return exchange->Respond(ErrorResponse(request.status()));
  Watch(CompletionCall::Start(exchange, frontend, *std::move(request)));
}

void HttpApi::ChatCompletions(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend) {
  std::optional<Json> body = ReadBody(exchange);
  if (!body) return;
  absl::StatusOr<CompletionRequest> request = ParseChatRequest(exchange->request(), *std::move(body));
  if (!request.ok()) return exchange->Respond(ErrorResponse(request.status()));
  Watch(CompletionCall::Start(exchange, frontend, *std::move(request)));
}

void HttpApi::Tokenize(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend) {
  std::optional<Json> body = ReadBody(exchange);
  if (!body) return;
  JsonFields fields(*body);
  const bool with_strings = fields.Bool("return_token_strs").value_or(false);
  const auto answer = [exchange, &frontend, with_strings](const absl::StatusOr<std::vector<int32_t>>& ids) {
    if (!ids.ok()) return exchange->Respond(ErrorResponse(ids.status()));
    Json strings = nullptr;
    if (with_strings) {
      strings = Json::array();
      for (const int32_t id : *ids) strings.push_back(frontend.tokenizer().TokenBytes(id));
    }
    exchange->Respond(JsonResponse({{"count", ids->size()},
                                    {"max_model_len", frontend.info().max_model_len},
                                    {"tokens", *ids},
                                    {"token_strs", std::move(strings)}}));
  };
  const bool is_chat = fields.Get("messages") != nullptr;
  const bool add_special_tokens = fields.Bool("add_special_tokens").value_or(!is_chat);
  if (exchange->request().body.size() > kMaxTokenizeBytes)
    fields.Refuse("prompt", absl::StrCat("a body of ", exchange->request().body.size(), " bytes is too long; at most ",
                                         kMaxTokenizeBytes));
  if (is_chat) {
    GenerateRequest chat;
    auto prompt = std::make_shared<ChatPrompt>(ReadChatPrompt(fields, &*body));
    prompt->bytes = static_cast<int64_t>(exchange->request().body.size());
    chat.prompt = std::move(prompt);
    chat.add_special_tokens = add_special_tokens;
    if (!fields.status().ok()) return exchange->Respond(ErrorResponse(fields.status()));
    absl::StatusOr<ValidatedRequest> valid = frontend.Validate(std::move(chat));
    if (!valid.ok()) return exchange->Respond(ErrorResponse(valid.status()));
    return frontend.EncodePrompt(std::make_shared<ValidatedRequest>(*std::move(valid)), answer);
  }
  const std::optional<std::string> text = fields.String("prompt");
  if (!text) fields.Refuse("prompt", "is missing");
  if (!fields.status().ok()) return exchange->Respond(ErrorResponse(fields.status()));
  frontend.Tokenize(*text, add_special_tokens, answer);
}

void HttpApi::Detokenize(const std::shared_ptr<HttpExchange>& exchange, Frontend& frontend) {
  const std::optional<Json> body = ReadBody(exchange);
  if (!body) return;
  JsonFields fields(*body);
  std::vector<int64_t> ids = fields.Ints("tokens");
  if (fields.Get("tokens") == nullptr) fields.Refuse("tokens", "is missing");
  if (ids.size() > kMaxDetokenizeIds)
    fields.Refuse("tokens", absl::StrCat(ids.size(), " ids are too many; at most ", kMaxDetokenizeIds));
  const bool skip_special_tokens = fields.Bool("skip_special_tokens").value_or(false);
  if (!fields.status().ok()) return exchange->Respond(ErrorResponse(fields.status()));
  frontend.Detokenize(std::move(ids), skip_special_tokens, [exchange](const absl::StatusOr<std::string>& text) {
    if (!text.ok()) return exchange->Respond(ErrorResponse(text.status()));
    exchange->Respond(JsonResponse({{"prompt", *text}}));
  });
}

// --- pings

void HttpApi::Watch(const std::shared_ptr<CompletionCall>& call) {
  MutexLock lock(&mutex_);
  calls_.push_back(call);
}

void HttpApi::PingStreams() {
  const absl::Duration tick = std::min(options_.ping_interval / 4, absl::Seconds(1));
  const auto stopping = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; };
  while (true) {
    std::vector<std::shared_ptr<CompletionCall>> live;
    {
      MutexLock lock(&mutex_);
      if (mutex_.AwaitWithDeadline(stopping, absl::Now() + tick)) return;
      std::erase_if(calls_, [&live](const std::weak_ptr<CompletionCall>& known) {
        std::shared_ptr<CompletionCall> call = known.lock();
        if (call == nullptr) return true;
        live.push_back(std::move(call));
        return false;
      });
    }
    for (const auto& call : live) call->PingIfSilent(absl::Now(), options_.ping_interval);
  }
}

}  // namespace quire
