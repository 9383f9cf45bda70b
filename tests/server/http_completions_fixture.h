#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "model/sim_runner.h"
#include "scheduler/engine_with_runner.h"
#include "server/http/http_api.h"
#include "server/http/http_server.h"
#include "tests/scheduler/engine_test_util.h"
#include "tests/server/chat_replies.h"
#include "tests/server/http_client.h"
#include "tests/testing/fake_tokenizer.h"

namespace quire::testing {

// OpenAI's API over the real engine on the simulated model, whose tokens are bytes. It can chat.
class HttpCompletionsTest : public ::testing::Test {
 protected:
  explicit HttpCompletionsTest(const EngineOptions& engine_options = {}, const ApiKeyStore* keys = nullptr) {
    SimRunnerOptions sim;
    sim.config.vocab_size = 258;
    sim.config.max_position_embeddings = 512;
    sim.num_kv_blocks = 129;
    sim.block_size = 16;
    sim.time_scale = 0;
    RunnerHooks hooks;
    hooks.before_step = [this](int64_t step, const ForwardBatch&) {
      gate_.Pass(step);
      return step == fails_at_ ? absl::InternalError("the device is gone") : absl::OkStatus();
    };
    auto runner = CreateSimRunner(sim);
    EXPECT_TRUE(runner.ok()) << runner.status();
    engine_ =
        *CreateEngineWithRunner(engine_options, sim.config, std::make_unique<HookedRunner>(*std::move(runner), hooks));
    engine_->Start();
    FrontendOptions options;
    options.served_model_names = {"sim", "alias"};
    options.seed = 1;
    options.keys = keys;
    options.chat = MakeChatFormat(tokenizer_);
    frontend_ = std::make_unique<Frontend>(*engine_, tokenizer_, options);
    api_ = std::make_unique<HttpApi>(
        HttpApiOptions{.version = "1.2", .ping_interval = absl::Milliseconds(20), .metrics = nullptr});
    HttpServerOptions server;
    server.listen = "127.0.0.1:0";
    server_ = *HttpServer::Start(server, *api_);
  }
  ~HttpCompletionsTest() override {
    gate_.Open();
    frontend_->Stop();
    server_->Shutdown();
  }
  void Load() { api_->SetFrontend(frontend_.get()); }

  static nlohmann::json Request(nlohmann::json fields = nlohmann::json::object()) {
    nlohmann::json request = {{"prompt", "hello"}, {"max_tokens", 8}, {"seed", 5}, {"ignore_eos", true}};
    if (!fields.is_null()) request.update(fields);  // {} is null
    return request;
  }
  HttpClient::Reply Complete(const nlohmann::json& fields, const std::string& headers = "") {
    HttpClient client(server_->address());
    return client.Post("/v1/completions", Request(fields), headers);
  }

  static std::string TextOf(const HttpClient::Reply& reply) { return reply.json()["choices"][0]["text"]; }

  FakeTokenizer tokenizer_;
  StepGate gate_{INT64_MAX};
  std::atomic<int64_t> fails_at_ = -1;  // this step fails
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Frontend> frontend_;
  std::unique_ptr<HttpApi> api_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace quire::testing
