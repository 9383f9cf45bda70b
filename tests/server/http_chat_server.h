#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/frontend/chat_format.h"
#include "server/frontend/frontend.h"
#include "server/http/http_api.h"
#include "server/http/http_server.h"
#include "tests/server/http_client.h"

// What tests of /v1/chat/completions share.
namespace quire::testing {

// A port over a front end with a chat template.
class ChatServer {
 public:
  ChatServer(Engine& engine, const Tokenizer& tokenizer, std::shared_ptr<const ChatFormat> chat) {
    FrontendOptions options;
    options.served_model_names = {"sim"};
    options.seed = 1;
    options.chat = std::move(chat);
    frontend_ = std::make_unique<Frontend>(engine, tokenizer, options);
    api_ = std::make_unique<HttpApi>(HttpApiOptions{.version = "1", .metrics = nullptr});
    api_->SetFrontend(frontend_.get());
    HttpServerOptions server;
    server.listen = "127.0.0.1:0";
    server_ = *HttpServer::Start(server, *api_);
  }
  ~ChatServer() {
    frontend_->Stop();
    server_->Shutdown();
  }

  const std::string& address() const { return server_->address(); }
  HttpClient::Reply Post(const nlohmann::json& body, const std::string& path = "/v1/chat/completions") {
    HttpClient client(address());
    return client.Post(path, body);
  }

 private:
  std::unique_ptr<Frontend> frontend_;
  std::unique_ptr<HttpApi> api_;
  std::unique_ptr<HttpServer> server_;
};

// The sum of a stream's events, as whole answers have it: message by index of the choice.
struct Streamed {
  std::map<int, nlohmann::json> choices;
  nlohmann::json usage;
};
inline Streamed Sum(const HttpClient::Reply& reply) {
  EXPECT_EQ(reply.status, 200) << reply.body;
  const SseEvents events = ParseSse(reply.body);
  EXPECT_TRUE(events.done);
  Streamed sum;
  for (const nlohmann::json& event : events.objects) {
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    EXPECT_EQ(event["id"], events.objects[0]["id"]);
    if (event.contains("usage")) sum.usage = event["usage"];
    if (event["choices"].empty()) continue;
    EXPECT_EQ(event["choices"].size(), 1u);
    const nlohmann::json& part = event["choices"][0];
    const bool first = sum.choices.count(part["index"]) == 0;
    nlohmann::json& choice = sum.choices[part["index"]];
    EXPECT_FALSE(choice.contains("finish_reason")) << "a part behind the end";
    EXPECT_EQ(part["delta"].contains("role"), first) << "the role comes once, with the first part";
    for (const char* const field : {"role", "content", "reasoning_content"}) {
      if (!part["delta"].contains(field)) continue;
      nlohmann::json& text = choice["message"][field];
      text = (text.is_null() ? "" : text.get<std::string>()) + part["delta"][field].get<std::string>();
    }
    if (part["delta"].contains("tool_calls")) {
      for (nlohmann::json call : part["delta"]["tool_calls"]) {
        EXPECT_EQ(call["index"], choice["message"]["tool_calls"].size());
        call.erase("index");
        choice["message"]["tool_calls"].push_back(call);
      }
    }
    if (part["logprobs"].is_object()) {
      for (const nlohmann::json& entry : part["logprobs"]["content"]) choice["logprobs"]["content"].push_back(entry);
    }
    if (!part["finish_reason"].is_null()) {
      choice["finish_reason"] = part["finish_reason"];
      choice["stop_reason"] = part["stop_reason"];
    }
  }
  return sum;
}

}  // namespace quire::testing
