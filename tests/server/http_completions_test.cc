// /v1/completions and the small endpoints: the shapes of answers and refusals, on the simulated model.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/server/http_completions_fixture.h"

namespace quire {
namespace {

using ::nlohmann::json;
using ::quire::testing::HttpClient;
using ::quire::testing::HttpCompletionsTest;
using ::quire::testing::ParseSse;
using ::quire::testing::SseEvents;

TEST_F(HttpCompletionsTest, EverythingIsUnavailableUntilTheModelIsLoaded) {
  HttpClient client(server_->address());
  for (const char* const path : {"/health", "/ready", "/v1/models"}) EXPECT_EQ(client.Get(path).status, 503) << path;
  const HttpClient::Reply reply = client.Post("/v1/completions", Request());
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.headers.at("retry-after"), "1");
  Load();
  for (const char* const path : {"/health", "/ready", "/v1/models"}) EXPECT_EQ(client.Get(path).status, 200) << path;
  api_->SetDraining();
  EXPECT_EQ(client.Get("/health").status, 200);
  EXPECT_EQ(client.Get("/ready").status, 503);
}

TEST_F(HttpCompletionsTest, SmallEndpoints) {
  Load();
  HttpClient client(server_->address());
  EXPECT_EQ(client.Get("/version").json()["version"], "1.2");
  const json models = client.Get("/v1/models").json();
  ASSERT_EQ(models["data"].size(), 2u);
  EXPECT_EQ(models["data"][0]["id"], "sim");
  EXPECT_EQ(models["data"][0]["max_model_len"], 512);
  EXPECT_EQ(client.Get("/v1/models/alias").json()["id"], "alias");
  EXPECT_EQ(client.Get("/v1/models/other").status, 404);
  EXPECT_EQ(client.Get("/load").json()["server_load"], 0);
  EXPECT_TRUE(client.Get("/openapi.json").json()["paths"].contains("/v1/completions"));
  EXPECT_EQ(client.Get("/nothing").status, 404);
  const HttpClient::Reply wrong = client.Get("/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST, OPTIONS");
  EXPECT_EQ(client.Get("/health", "", "OPTIONS").headers.at("allow"), "GET, HEAD, OPTIONS");
  EXPECT_EQ(client.Get("/version", "", "HEAD").status, 200);
  EXPECT_EQ(client.Post("/tokenize", {{"prompt", "hi"}}).json()["tokens"], json({256, 'h', 'i'}));
  EXPECT_EQ(client.Post("/tokenize", {{"prompt", "hi"}, {"add_special_tokens", false}}).json()["count"], 2);
  EXPECT_EQ(client.Post("/detokenize", {{"tokens", {256, 'h', 'i'}}}).json()["prompt"], "<bos>hi");
  EXPECT_EQ(client.Post("/tokenize", json::object()).status, 400);
  EXPECT_EQ(client.Post("/detokenize", {{"tokens", "x"}}).json()["error"]["param"], "tokens");
}

TEST_F(HttpCompletionsTest, TheApiDescribesItself) {
  Load();
  HttpClient client(server_->address());
  const json document = client.Get("/openapi.json").json();
  const json& schemas = document["components"]["schemas"];
  size_t references = 0;
  const std::function<void(const json&)> visit = [&](const json& node) {
    if (node.is_object() && node.contains("$ref")) {
      const std::string name = node["$ref"].get<std::string>().substr(std::string("#/components/schemas/").size());
      EXPECT_TRUE(schemas.contains(name)) << name;
      ++references;
    }
    if (node.is_structured()) {
      for (const json& child : node) visit(child);
    }
  };
  visit(document);
  EXPECT_GT(references, 20u);
  for (const auto& [path, methods] : document["paths"].items()) {
    for (const auto& [method, operation] : methods.items()) {
      EXPECT_FALSE(operation["summary"].get<std::string>().empty()) << path;
      EXPECT_EQ(operation.contains("requestBody"), method == "post") << path;
      EXPECT_TRUE(operation["responses"].contains("default")) << path;
    }
  }
}

TEST_F(HttpCompletionsTest, AStreamGivesWhatAWholeAnswerGives) {
  Load();
  for (const json& fields : {json::object(), json{{"n", 3}}, json{{"echo", true}}, json{{"logprobs", 2}},
                             json{{"echo", true}, {"logprobs", 1}, {"n", 2}}, json{{"prompt", {"a", "bc"}}, {"n", 2}},
                             json{{"prompt", {{1, 2}, {3}}}}, json{{"prompt", {70, 71, 72}}, {"echo", true}}}) {
    SCOPED_TRACE(fields.dump());
    const json whole = Complete(fields).json();
    json streamed = fields;
    streamed["stream"] = true;
    streamed["stream_options"] = {{"include_usage", true}};
    const HttpClient::Reply reply = Complete(streamed);
    EXPECT_EQ(reply.headers.at("content-type"), "text/event-stream");
    const SseEvents events = ParseSse(reply.body);
    EXPECT_TRUE(events.done);
    std::map<int, json> choices;
    for (const json& event : events.objects) {
      EXPECT_EQ(event["id"], events.objects[0]["id"]);
      EXPECT_EQ(event["object"], "text_completion");
      if (event["choices"].empty()) continue;
      ASSERT_EQ(event["choices"].size(), 1u);
      const json& part = event["choices"][0];
      json& sum = choices.emplace(part["index"], json{{"text", ""}, {"logprobs", nullptr}}).first->second;
      EXPECT_FALSE(sum.contains("finish_reason")) << "a part behind the end";
      sum["text"] = sum["text"].get<std::string>() + part["text"].get<std::string>();
      if (!part["logprobs"].is_null()) {
        for (const char* const list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
          for (const json& item : part["logprobs"][list]) sum["logprobs"][list].push_back(item);
        }
      }
      if (!part["finish_reason"].is_null()) sum["finish_reason"] = part["finish_reason"];
    }
    ASSERT_EQ(choices.size(), whole["choices"].size());
    for (const json& choice : whole["choices"]) {
      const json& sum = choices.at(choice["index"]);
      for (const char* const field : {"text", "logprobs", "finish_reason"})
        EXPECT_EQ(sum[field], choice[field]) << field;
    }
    EXPECT_EQ(events.objects.back()["choices"], json::array());
    for (const char* const field : {"prompt_tokens", "completion_tokens", "total_tokens"})
      EXPECT_EQ(events.objects.back()["usage"][field], whole["usage"][field]);
  }
}

TEST_F(HttpCompletionsTest, EchoAndScoresCoverThePrompt) {
  Load();
  const json choice =
      Complete({{"prompt", "h\u00e9"}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 0}}).json()["choices"][0];
  EXPECT_EQ(choice["text"], "h\u00e9");
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["logprobs"]["tokens"], json({"<bos>", "h", "bytes:\\xc3", "bytes:\\xa9"}));
  EXPECT_EQ(choice["logprobs"]["text_offset"], json({0, 0, 1, 1}));
  EXPECT_TRUE(choice["logprobs"]["token_logprobs"][0].is_null());
  EXPECT_TRUE(choice["logprobs"]["token_logprobs"][1].is_number());
  EXPECT_EQ(Complete({{"max_tokens", 0}}).status, 400);
}

TEST_F(HttpCompletionsTest, B142ARefusalHasItsStatusInBothModes) {
  Load();
  const std::vector<std::pair<const char*, std::string>> cases = {
      {R"({"prompt": null})", "prompt"},
      {R"({"prompt": 7})", "prompt"},
      {R"({"prompt": []})", "prompt"},
      {R"({"prompt": ["a", 1]})", "prompt"},
      {R"({"max_tokens": "many"})", "max_tokens"},
      {R"({"max_tokens": 1e30})", "max_tokens"},
      {R"({"temperature": [1]})", "temperature"},
      {R"({"temperature": -1})", "temperature"},
      {R"({"top_p": 1.5})", "top_p"},
      {R"({"n": 5000000})", "n"},
      {R"({"stop": 1})", "stop"},
      {R"({"logit_bias": {"x": 2}})", "logit_bias"},
      {R"({"logit_bias": {"258": 2}})", "logit_bias"},
      {R"({"logit_bias": {"1": 101}})", "logit_bias[1]"},
      {R"({"logit_bias": [1]})", "logit_bias"},
      {R"({"suffix": "x"})", "suffix"},
      {R"({"prompt_logprobs": 21})", "prompt_logprobs"},
      {R"({"logprobs": 21})", "logprobs"},
      {R"({"frequency_penalty": 2.5})", "frequency_penalty"},
      {R"({"presence_penalty": -3})", "presence_penalty"},
      {R"({"repetition_penalty": 0})", "repetition_penalty"},
      {R"({"allowed_token_ids": [258]})", "allowed_token_ids[0]"},
      {R"({"bad_words": [""]})", "bad_words[0]"},
      {R"({"dry_base": 0.5})", "dry_base"},
      {R"({"dry_penalty_last_n": -2})", "dry_penalty_last_n"},
      {R"({"xtc_threshold": 0.6})", "xtc_threshold"},
      {R"({"typical_p": 0})", "typical_p"},
      {R"({"mirostat": 1})", "mirostat"},
      {R"({"mirostat_tau": "x"})", "mirostat_tau"},
      {R"({"repetition_detection": {"max_pattern_size": 2, "min_count": 1}})", "repetition_detection.min_count"},
      {R"({"truncate_prompt_tokens": 0})", "truncate_prompt_tokens"},
      {R"({"truncation_side": "top"})", "truncation_side"},
      {R"({"logprobs_mode": "raw_logits"})", "logprobs_mode"},
      {R"({"use_beam_search": true, "frequency_penalty": 1, "temperature": 0})", "beam_search"},
      {R"({"stop": ""})", "stop[0]"},
      {R"({"stop": ["a", ""]})", "stop[1]"},
      {R"({"stop_token_ids": [258]})", "stop_token_ids[0]"},
      {R"({"stop_token_ids": [-1], "min_tokens": 5})", "stop_token_ids[0]"},
      {R"({"stop_token_ids": [2147483647], "min_tokens": 5})", "stop_token_ids[0]"},
      {R"({"best_of": 0})", "best_of"},
      {R"({"stream_options": 1})", "stream_options"},
      {R"({"stream_options": {"include_usage": 1}})", "stream_options.include_usage"},
  };
  for (const auto& [fields, param] : cases) {
    for (const bool stream : {false, true}) {
      json request = json::parse(fields);
      request["stream"] = stream;
      const HttpClient::Reply reply = Complete(request);
      EXPECT_EQ(reply.status, 400) << fields;
      EXPECT_EQ(reply.json()["error"]["param"], param) << reply.body;
      EXPECT_EQ(reply.json()["error"]["code"], 400);
    }
  }
  EXPECT_EQ(Complete({{"prompt", std::string(600, 'x')}, {"stream", true}}).status, 400);
  EXPECT_EQ(Complete({{"prompt", std::string(2 << 20, 'x')}}).json()["error"]["param"], "prompt");
  EXPECT_EQ(Complete({{"prompt", {1, 258}}}).json()["error"]["param"], "prompt[1]");
  HttpClient client(server_->address());
  EXPECT_EQ(client.Post("/detokenize", {{"tokens", {1, 258}}}).json()["error"]["param"], "tokens[1]");
  const HttpClient::Reply other = Complete({{"model", "other"}});
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(other.json()["error"]["param"], "model");
  EXPECT_EQ(Complete({}, "Content-Encoding: gzip\r\n").json()["error"]["param"], "Content-Encoding");
  EXPECT_EQ(Complete({}, "X-Request-Timeout-Ms: soon\r\n").json()["error"]["param"], "x-request-timeout-ms");
}

TEST_F(HttpCompletionsTest, TokensAreNamedByTheirIdsOnRequest) {
  Load();
  json fields = {{"logprobs", 2}, {"return_token_ids", true}, {"return_tokens_as_token_ids", true}};
  json choice = Complete(fields).json()["choices"][0];
  EXPECT_EQ(choice["prompt_token_ids"], json({FakeTokenizer::kBos, 'h', 'e', 'l', 'l', 'o'}));
  EXPECT_EQ(choice["text"].get<std::string>().find("hello"), std::string::npos);
  ASSERT_EQ(choice["token_ids"].size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    const std::string name = "token_id:" + choice["token_ids"][i].dump();
    EXPECT_EQ(choice["logprobs"]["tokens"][i], name);
    EXPECT_TRUE(choice["logprobs"]["top_logprobs"][i].contains(name));
  }
  fields["stream"] = true;
  const SseEvents events = ParseSse(Complete(fields).body);
  EXPECT_EQ(events.objects[0]["choices"][0]["prompt_token_ids"], choice["prompt_token_ids"]);
  std::vector<int> ids;
  for (const json& event : events.objects) {
    for (const json& id : event["choices"][0]["token_ids"]) ids.push_back(id);
  }
  EXPECT_EQ(json(ids), choice["token_ids"]);
}

TEST_F(HttpCompletionsTest, LongPromptsAreCutOnRequest) {
  Load();
  const auto echo = [this](json fields) {
    fields["echo"] = true;
    fields["max_tokens"] = 0;
    return Complete(fields).json();
  };
  EXPECT_EQ(echo({{"truncate_prompt_tokens", 3}})["choices"][0]["text"], "lo");
  EXPECT_EQ(echo({{"truncate_prompt_tokens", 3}})["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(echo({{"truncate_prompt_tokens", 3}, {"truncation_side", "right"}})["choices"][0]["text"], "he");
  EXPECT_EQ(echo({{"prompt", {65, 66, 67}}, {"truncate_prompt_tokens", 2}})["choices"][0]["text"], "BC");
  EXPECT_EQ(echo({{"truncate_prompt_tokens", 100}})["choices"][0]["text"], "hello");
  const json fitted =
      Complete({{"prompt", std::string(2000, 'x')}, {"truncate_prompt_tokens", -1}, {"max_tokens", 12}}).json();
  EXPECT_EQ(fitted["usage"]["prompt_tokens"], 500);
}

TEST_F(HttpCompletionsTest, B138NullIsTheSameAsAbsent) {
  Load();
  for (const char* const field : {"temperature",
                                  "top_p",
                                  "n",
                                  "stop",
                                  "stream",
                                  "stream_options",
                                  "logit_bias",
                                  "presence_penalty",
                                  "frequency_penalty",
                                  "user",
                                  "logprobs",
                                  "suffix",
                                  "echo",
                                  "model",
                                  "best_of",
                                  "repetition_penalty",
                                  "allowed_token_ids",
                                  "bad_words",
                                  "prompt_logprobs",
                                  "truncate_prompt_tokens",
                                  "repetition_detection",
                                  "mirostat",
                                  "dry_sequence_breakers",
                                  "typical_p",
                                  "logprobs_mode",
                                  "use_beam_search",
                                  "early_stopping"}) {
    EXPECT_EQ(Complete({{field, nullptr}}).status, 200) << field;
  }
}

TEST_F(HttpCompletionsTest, B125B156BodiesThatAreNoRequest) {
  Load();
  HttpClient client(server_->address());
  const auto status = [&](const std::string& body) {
    client.Send(HttpClient::PostText("/v1/completions", body));
    return client.Read().status;
  };
  for (const char* const body : {"", "null", "[]", "7", "\"x\"", "{", "{}", "{\"prompt\":", "{'prompt':'x'}"})
    EXPECT_EQ(status(body), 400) << body;
  EXPECT_EQ(status(std::string("\0", 1)), 400);
  EXPECT_EQ(status(std::string(1 << 20, '[')), 400);
  EXPECT_EQ(status("{\"prompt\":[" + std::string(5 << 20, ',') + "]}"), 400);
  EXPECT_EQ(status("{\"prompt\":\"\xe6\xad\"}"), 400);
  client.Send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_EQ(client.Read().json()["error"]["param"], "Content-Type");
  for (const auto& [headers, status_wanted] :
       {std::pair("", 200), std::pair("Origin: http://a\r\n", 400),
        std::pair("Origin: http://a\r\nContent-Type: application/json ;charset=utf-8\r\n", 200),
        std::pair("Content-Type: application/problem+json\r\n", 200)}) {
    const std::string body = Request().dump();
    client.Send(absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: ", body.size(), "\r\n",
                             headers, "\r\n", body));
    EXPECT_EQ(client.Read().status, status_wanted) << headers;
  }
}

// What is too long is found before it is there once for each prompt, and so is n.
TEST_F(HttpCompletionsTest, ManyPromptsShareWhatTheyHaveInCommon) {
  Load();
  const std::vector<std::string> prompts(1024, "x");
  EXPECT_EQ(Complete({{"prompt", prompts}, {"cache_salt", std::string(4 << 20, 's')}}).json()["error"]["param"],
            "cache_salt");
  EXPECT_EQ(Complete({{"prompt", prompts}, {"n", int64_t{1} << 40}}).json()["error"]["param"], "n");
  const json ids = Complete({{"prompt", {"a", "b"}}, {"request_id", "r"}, {"n", 2}}).json();
  EXPECT_EQ(ids["id"], "cmpl-r");
  for (int i = 0; i < 4; ++i) EXPECT_EQ(ids["choices"][i]["index"], i);
}

// As lm-eval asks for scores. What an answer may have is bounded over all prompts, however unlike they are.
TEST_F(HttpCompletionsTest, OneOfManyPromptsMayBeLong) {
  Load();
  std::vector<std::string> prompts(512, "x");
  prompts[3] = std::string(450, 'y');
  const json answer =
      Complete({{"prompt", prompts}, {"echo", true}, {"logprobs", 20}, {"max_tokens", 1}, {"temperature", 0}}).json();
  ASSERT_EQ(answer["choices"].size(), prompts.size()) << answer["error"];
  EXPECT_EQ(answer["choices"][3]["logprobs"]["tokens"].size(), 452u);
}

TEST_F(HttpCompletionsTest, B144AnAbortInMidStreamEndsWithAnError) {
  Load();
  gate_.OpenUntil(3);
  HttpClient client(server_->address());
  client.Send(HttpClient::PostText("/v1/completions", Request({{"stream", true}, {"max_tokens", 400}}).dump(),
                                   "X-Request-Id: me\r\n"));
  gate_.AwaitStep(3);
  EXPECT_EQ(client.ReadHead().headers.at("x-request-id"), "me");
  frontend_->Abort({"me"});
  gate_.Open();
  std::string body;
  for (std::string chunk; client.ReadChunk(&chunk);) body += chunk;
  const SseEvents events = ParseSse(body);
  EXPECT_TRUE(events.objects.back().contains("error"));
  for (size_t i = 0; i + 1 < events.objects.size(); ++i)
    EXPECT_TRUE(events.objects[i]["choices"][0]["finish_reason"].is_null());
}

TEST_F(HttpCompletionsTest, B144AFaultInMidStreamIsAnErrorAndNoNormalEnd) {
  Load();
  fails_at_ = 5;
  const SseEvents events = ParseSse(Complete({{"stream", true}, {"max_tokens", 100}}).body);
  ASSERT_TRUE(events.objects.back().contains("error"));
  EXPECT_EQ(events.objects.back()["error"]["code"], 500);
  EXPECT_EQ(events.objects.back().dump().find("device"), std::string::npos);  // our faults are for the log
  for (size_t i = 0; i + 1 < events.objects.size(); ++i)
    EXPECT_TRUE(events.objects[i]["choices"][0]["finish_reason"].is_null());
  fails_at_ = -1;
  EXPECT_EQ(Complete({}).status, 200);
}

TEST_F(HttpCompletionsTest, B106TextThatWaitsForAStopIsGivenAtTheEnd) {
  Load();
  for (int max_tokens = 1; max_tokens <= 6; ++max_tokens) {
    const std::string text = Complete({{"max_tokens", max_tokens}}).json()["choices"][0]["text"];
    // All of the text could be the beginning of the stop.
    const std::string stop = text + std::string(40, 'q');
    for (const bool stream : {false, true}) {
      const HttpClient::Reply reply =
          Complete({{"max_tokens", max_tokens}, {"stop", {stop, std::string(40, 'z')}}, {"stream", stream}});
      std::string got;
      if (stream) {
        for (const json& event : ParseSse(reply.body).objects) got += event["choices"][0]["text"].get<std::string>();
      } else {
        got = reply.json()["choices"][0]["text"];
      }
      EXPECT_EQ(got, text) << max_tokens;
    }
  }
}

TEST_F(HttpCompletionsTest, B109OffsetsAreCharactersOfTheWholeText) {
  Load();
  for (const char* const prompt : {"Hello there,", "\u6771\u4eac\u306f\u65e5\u672c\u306e"}) {
    for (const bool stream : {false, true}) {
      const HttpClient::Reply reply =
          Complete({{"prompt", prompt}, {"echo", true}, {"logprobs", 1}, {"stream", stream}});
      std::string text;
      json tokens = json::array(), offsets = json::array();
      const auto add = [&](const json& choice) {
        text += choice["text"].get<std::string>();
        for (const json& token : choice["logprobs"]["tokens"]) tokens.push_back(token);
        for (const json& offset : choice["logprobs"]["text_offset"]) offsets.push_back(offset);
      };
      if (stream) {
        for (const json& event : ParseSse(reply.body).objects) add(event["choices"][0]);
      } else {
        add(reply.json()["choices"][0]);
      }
      std::vector<size_t> starts;  // of characters
      for (size_t i = 0; i < text.size(); ++i)
        if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) starts.push_back(i);
      starts.push_back(text.size());
      ASSERT_EQ(tokens.size(), offsets.size());
      ASSERT_GT(tokens.size(), 8u);
      for (size_t i = 0; i < tokens.size(); ++i) {
        const std::string token = tokens[i];
        const auto offset = offsets[i].get<size_t>();
        ASSERT_LT(offset, starts.size()) << token;
        if (token.starts_with("bytes:") || token == "<bos>") continue;
        EXPECT_EQ(text.substr(starts[offset], token.size()), token) << i;
      }
    }
  }
}

TEST_F(HttpCompletionsTest, B137NoNewTokens) {
  Load();
  EXPECT_EQ(Complete({{"max_tokens", 0}}).status, 400);
  EXPECT_EQ(Complete({{"max_tokens", 0}, {"stream", true}}).status, 400);
  for (const bool stream : {false, true}) {
    const HttpClient::Reply reply = Complete({{"max_tokens", 0}, {"echo", true}, {"logprobs", 1}, {"stream", stream}});
    EXPECT_EQ(reply.status, 200);
    const json object = stream ? ParseSse(reply.body).objects.at(0) : reply.json();
    EXPECT_EQ(object["choices"][0]["text"], "hello");
    EXPECT_EQ(object["choices"][0]["logprobs"]["tokens"].size(), 6u);
  }
  EXPECT_EQ(Complete({}).status, 200);
}

TEST_F(HttpCompletionsTest, B145ChunksHaveOneShape) {
  Load();
  for (const bool with_usage : {false, true}) {
    const HttpClient::Reply reply = Complete({{"stream", true}, {"stream_options", {{"include_usage", with_usage}}}});
    const SseEvents events = ParseSse(reply.body);
    ASSERT_TRUE(events.done);
    ASSERT_GT(events.objects.size(), 1u);
    const size_t last = events.objects.size() - (with_usage ? 2 : 1);
    for (size_t i = 0; i < events.objects.size(); ++i) {
      const json& event = events.objects[i];
      EXPECT_EQ(event["object"], "text_completion");
      EXPECT_TRUE(event["created"].is_number_integer());
      EXPECT_EQ(event["model"], "sim");
      EXPECT_EQ(event.contains("usage"), i > last) << i;
      ASSERT_EQ(event["choices"].size(), i > last ? 0u : 1u);
      if (i > last) continue;
      EXPECT_EQ(event["choices"][0]["finish_reason"], i == last ? json("length") : json(nullptr));
    }
  }
}

TEST_F(HttpCompletionsTest, B157UnknownFieldsAreIgnoredAndUnknownModelsAreNot) {
  Load();
  const json plain = Complete({}).json()["choices"];
  HttpClient::Reply reply = Complete({{"max_token", 3}, {"x", {{"y", 1}}}, {"user", "me"}, {"no header: \r\n", 1}});
  EXPECT_EQ(reply.json()["choices"], plain);
  EXPECT_EQ(reply.headers["x-ignored-fields"], "max_token,user,x") << "so that a misspelling is seen";
  EXPECT_EQ(Complete({}).headers.count("x-ignored-fields"), 0u);
  EXPECT_EQ(Complete({{"model", "sin"}}).json()["error"]["type"], "NotFoundError");
}

}  // namespace
}  // namespace quire
