#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <streambuf>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/sim_runner.h"
#include "nlohmann/json.hpp"
#include "scheduler/engine_with_runner.h"
#include "server/frontend/chat_prompt.h"
#include "server/frontend/frontend.h"
#include "server/offline/ids_only_tokenizer.h"
#include "server/offline/offline_batch.h"
#include "server/offline/offline_request.h"
#include "server/offline/offline_result.h"

namespace quire {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

GenerateRequest Parse(const std::string& line) {
  const OfflineRequest parsed = ParseOfflineRequest(line, 1);
  EXPECT_TRUE(parsed.request.ok()) << parsed.request.status();
  return parsed.request.value_or(GenerateRequest());
}

std::string Error(const std::string& line) {
  const OfflineRequest parsed = ParseOfflineRequest(line, 1);
  EXPECT_FALSE(parsed.request.ok()) << line;
  return std::string(parsed.request.status().message());
}

TEST(OfflineRequestTest, ReadsEveryField) {
  const GenerateRequest request = Parse(
      R"({"id": "x", "prompt": "hi", "model": "m", "add_special_tokens": false, "temperature": 0.5, "min_p": 0.1,
          "top_k": 7, "top_p": 0.9, "seed": -3, "n": 2, "max_tokens": 9, "min_tokens": 1, "stop": ["a", "b"],
          "stop_token_ids": [4, 5], "include_stop_str_in_output": true, "ignore_eos": true, "logprobs": 3,
          "prompt_logprobs": -1, "skip_special_tokens": false, "cache_salt": "s", "priority": -2})");
  EXPECT_EQ(std::get<std::string>(request.prompt), "hi");
  EXPECT_EQ(request.model, "m");
  EXPECT_FALSE(request.add_special_tokens);
  EXPECT_FLOAT_EQ(*request.temperature, 0.5f);
  EXPECT_FLOAT_EQ(*request.min_p, 0.1f);
  EXPECT_EQ(request.top_k, 7);
  EXPECT_FLOAT_EQ(*request.top_p, 0.9f);
  EXPECT_EQ(request.seed, -3);
  EXPECT_EQ(request.n, 2);
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_EQ(request.min_tokens, 1);
  EXPECT_THAT(request.stop, ElementsAre("a", "b"));
  EXPECT_THAT(request.stop_token_ids, ElementsAre(4, 5));
  EXPECT_TRUE(request.include_stop_str_in_output);
  EXPECT_TRUE(request.ignore_eos);
  EXPECT_EQ(request.logprobs, 3);
  EXPECT_EQ(request.prompt_logprobs, -1);
  EXPECT_FALSE(request.skip_special_tokens);
  EXPECT_EQ(request.cache.salt, "s");
  EXPECT_EQ(request.priority, -2);
}

TEST(OfflineRequestTest, ReadsStructuredOutput) {
  using Kind = StructuredOutput::Kind;
  const StructuredOutput schema =
      Parse(R"({"prompt": "hi", "json_schema": {"z": 1, "a": [true]}, "compact_json": true})").structured_output;
  EXPECT_EQ(schema.kind, Kind::kJsonSchema);
  EXPECT_EQ(schema.source, R"({"z":1,"a":[true]})") << "in this order";
  EXPECT_EQ(schema.field, "json_schema");
  EXPECT_TRUE(schema.compact_json);
  EXPECT_EQ(Parse(R"({"prompt": "hi", "json_schema": "{ }"})").structured_output.source, "{ }");
  EXPECT_EQ(Parse(R"({"prompt": "hi", "json_object": true})").structured_output.kind, Kind::kJsonObject);
  EXPECT_EQ(Parse(R"({"prompt": "hi", "json_object": false})").structured_output.kind, Kind::kFree);
  EXPECT_EQ(Parse(R"({"prompt": "hi", "regex": "a+"})").structured_output.source, "a+");
  EXPECT_EQ(Parse(R"({"prompt": "hi", "grammar": "g"})").structured_output.kind, Kind::kGrammar);
  EXPECT_THAT(Parse(R"({"prompt": "hi", "choices": ["a", "b"]})").structured_output.choices, ElementsAre("a", "b"));
  EXPECT_THAT(Error(R"({"prompt": "hi", "regex": "a", "choices": ["b"]})"), HasSubstr("choices: goes with regex"));
  EXPECT_THAT(Error(R"({"prompt": "hi", "json_schema": 5})"), HasSubstr("json_schema: must be a JSON schema"));
}

TEST(OfflineRequestTest, ReadsWhatConcernsTheCache) {
  const GenerateRequest request = Parse(
      R"({"prompt": "hi", "tenant": "t", "cache_no_read": true, "cache_no_write": true,
          "cache_retention": [{"begin": 2, "end": 4, "keep": {"priority": 90, "ttl_seconds": 1.5}}, {"keep": {}}],
          "cache_decode_retention": {"priority": 0}, "cache_breakpoints": [{"position": 7, "ttl_seconds": 60}]})");
  const CacheRequest& cache = request.cache;
  EXPECT_EQ(request.tenant, "t");
  EXPECT_TRUE(cache.no_read);
  EXPECT_TRUE(cache.no_write);
  ASSERT_EQ(cache.retention.size(), 2u);
  EXPECT_EQ(cache.retention[0].begin, 2);
  EXPECT_EQ(cache.retention[0].end, 4);
  EXPECT_EQ(cache.retention[0].keep.priority, 90);
  EXPECT_EQ(cache.retention[0].keep.ttl_seconds, 1.5);
  EXPECT_FALSE(cache.retention[1].end.has_value());
  EXPECT_FALSE(cache.retention[1].keep.priority.has_value());
  EXPECT_EQ(cache.decode_retention->priority, 0);
  ASSERT_EQ(cache.breakpoints.size(), 1u);
  EXPECT_EQ(cache.breakpoints[0].position, 7);
  EXPECT_EQ(cache.breakpoints[0].ttl_seconds, 60);
  EXPECT_THAT(Error(R"({"prompt": "x", "cache_retention": [{"start": 1}]})"), HasSubstr("cache_retention[0].start"));
  EXPECT_THAT(Error(R"({"prompt": "x", "cache_decode_retention": 5})"), HasSubstr("must be an object"));
  EXPECT_THAT(Error(R"({"prompt": "x", "cache_breakpoints": [{"position": "1"}]})"),
              HasSubstr("cache_breakpoints[0].position: must be an integer"));
}

TEST(OfflineRequestTest, BeamSearchAsHuggingFaceWritesIt) {
  const GenerateRequest request =
      Parse(R"({"prompt_ids": [1], "beam_width": 4, "length_penalty": 0.5, "early_stopping": "never"})");
  EXPECT_EQ(request.beam_width, 4);
  EXPECT_EQ(request.length_penalty, 0.5f);
  EXPECT_EQ(request.early_stopping, 3);
  EXPECT_EQ(Parse(R"({"prompt_ids": [1], "early_stopping": true})").early_stopping, 2);
  EXPECT_EQ(Parse(R"({"prompt_ids": [1], "early_stopping": false})").early_stopping, 1);
  EXPECT_THAT(Error(R"({"prompt_ids": [1], "early_stopping": "later"})"), HasSubstr("early_stopping: must be true"));
}

TEST(OfflineRequestTest, IdsNullAndOneStopString) {
  const GenerateRequest request = Parse(R"({"prompt_ids": [1, 2], "temperature": null, "stop": "x", "seed": 0})");
  EXPECT_THAT(std::get<std::vector<int64_t>>(request.prompt), ElementsAre(1, 2));
  EXPECT_FALSE(request.temperature.has_value());
  EXPECT_THAT(request.stop, ElementsAre("x"));
}

TEST(OfflineRequestTest, ReadsConversations) {
  const GenerateRequest request = Parse(
      R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"z": 1, "a": 2}], "continue_final_message": true,
          "chat_template_kwargs": {"k": 1}, "max_tokens": 3,
          "tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": false})");
  EXPECT_FALSE(request.add_special_tokens);
  const auto& chat = *std::get<std::shared_ptr<const ChatPrompt>>(request.prompt);
  EXPECT_EQ(chat.messages[0]["content"], "x");
  EXPECT_EQ(chat.tools[0].dump(), R"({"z":1,"a":2})");
  EXPECT_TRUE(chat.continue_final_message);
  EXPECT_FALSE(chat.add_generation_prompt);
  EXPECT_EQ(chat.template_kwargs["k"], 1);
  EXPECT_EQ(chat.tool_choice, ToolChoice::kRequired);
  EXPECT_EQ(chat.tool_name, "f");
  EXPECT_FALSE(chat.parallel_tool_calls);
  EXPECT_THAT(Error(R"({"messages": [], "tool_choice": "some"})"), HasSubstr("tool_choice: must be 'auto'"));
}

TEST(OfflineResultTest, CallsAndReasoningOfAChat) {
  OfflineResult result;
  OutputDelta delta;
  delta.sequences.emplace_back();
  delta.sequences[0].reasoning = "hm";
  delta.sequences[0].tool_calls = {{"1", "f", "{}"}};
  delta.sequences[0].finish.emplace().reason = FinishReason::kStop;
  delta.sequences[0].finish->called_tools = true;
  delta.usage.emplace();
  result.Add(std::move(delta));
  const json line = json::parse(result.ToJson(7));
  EXPECT_EQ(line["finish_reason"], "tool_calls");
  EXPECT_EQ(line["reasoning"], "hm");
  EXPECT_EQ(line["tool_calls"], json::parse(R"([{"id": "1", "name": "f", "arguments": "{}"}])"));
}

TEST(OfflineRequestTest, NamesTheFieldThatIsWrong) {
  EXPECT_THAT(Error(R"({"prompt": "x", "bogus": 1})"), HasSubstr("bogus"));
  EXPECT_THAT(Error(R"({"prompt": 5})"), HasSubstr("prompt: must be a string"));
  EXPECT_THAT(Error(R"({"prompt_ids": 5})"), HasSubstr("prompt_ids: must be an array"));
  EXPECT_THAT(Error(R"({"prompt_ids": [1, 2.5]})"), HasSubstr("prompt_ids[1]"));
  EXPECT_THAT(Error(R"({"prompt_ids": [1], "prompt": "x"})"), HasSubstr("prompt_ids"));
  EXPECT_THAT(Error(R"({"prompt": "x", "max_tokens": "5"})"), HasSubstr("max_tokens"));
  EXPECT_THAT(Error(R"({"prompt": "x", "max_tokens": 18446744073709551615})"), HasSubstr("2^63 - 1"));
  EXPECT_THAT(Error(R"({"prompt": "x", "ignore_eos": 1})"), HasSubstr("ignore_eos: must be true or false"));
  EXPECT_THAT(Error(R"({"prompt": "x", "stop": [1]})"), HasSubstr("stop[0]"));
  EXPECT_THAT(Error(R"({"prompt": "x", "temperature": "hot"})"), HasSubstr("temperature"));
  EXPECT_THAT(Error(R"({"messages": [], "prompt": "x"})"), HasSubstr("messages: goes with prompt"));
  EXPECT_THAT(Error(R"({"tools": [], "prompt": "x"})"), HasSubstr("tools: needs messages"));
  EXPECT_THAT(Error(R"({"id": [1], "prompt": "x"})"), HasSubstr("id"));
}

TEST(OfflineRequestTest, BrokenLinesAreErrorsWithTheirId) {
  EXPECT_THAT(Error("{"), HasSubstr("line 1: malformed JSON"));
  EXPECT_THAT(Error("[]"), HasSubstr("must be a JSON object"));
  EXPECT_THAT(Error("\"x\""), HasSubstr("must be a JSON object"));
  EXPECT_THAT(Error(R"({"prompt": "\ud800"})"), HasSubstr("malformed JSON"));
  const OfflineRequest broken = ParseOfflineRequest("{\"id\": \"k\", \"prompt\": \"\xff\"}", 9);
  EXPECT_EQ(broken.id, json("k"));
  EXPECT_THAT(std::string(broken.request.status().message()), HasSubstr("malformed UTF-8"));
  EXPECT_EQ(ParseOfflineRequest("{\xc0\xaf}", 9).id, json(9));
  EXPECT_EQ(ParseOfflineRequest(R"({"id": -4, "prompt": "x"})", 9).id, json(-4));
  EXPECT_EQ(ParseOfflineRequest(std::string(100000, '['), 9).request.status().code(),
            absl::StatusCode::kInvalidArgument);
}

PositionLogprobs Position(int32_t id, float logprob, int32_t rank, std::vector<TokenLogprob> top) {
  PositionLogprobs position;
  position.token_id = id;
  position.logprob = logprob;
  position.rank = rank;
  position.top = std::move(top);
  return position;
}

TEST(OfflineResultTest, GathersDeltas) {
  OfflineResult result;
  OutputDelta first;
  first.prompt = PromptInfo{.prompt_tokens = 2, .seed = 1, .logprobs = {PositionLogprobs()}};
  first.prompt->logprobs.push_back(Position(8, -1.5f, 1, {{8, -1.5f}}));
  SequenceDelta begin;
  begin.text = "a\"";
  begin.token_ids = {3};
  begin.logprobs = {Position(3, -3.25f, 4, {{5, -0.5f}, {6, -std::numeric_limits<float>::infinity()}})};
  first.sequences = {begin};
  result.Add(first);
  OutputDelta last;
  SequenceDelta end;
  end.text = "b";
  end.token_ids = {4, 7};
  end.finish = Finish{.reason = FinishReason::kStop, .stop = Finish::Stop::kStopString, .stop_string = "c"};
  last.sequences = {end};
  last.usage = Usage{.prompt_tokens = 2, .cached_tokens = 1, .completion_tokens = 3};
  last.timings.queue = absl::Milliseconds(250);
  last.timings.preemptions = 2;
  result.Add(last);
  const json answer = json::parse(result.ToJson("id"));
  EXPECT_EQ(answer, json::parse(R"({"id": "id", "output_ids": [3, 4, 7], "text": "a\"b", "finish_reason": "stop",
      "stop_reason": "c", "logprobs": [[[5, -0.5], [6, null], [3, -3.25]]], "prompt_logprobs": [null, [[8, -1.5]]],
      "usage": {"prompt_tokens": 2, "cached_tokens": 1, "completion_tokens": 3},
      "timings": {"queue": 0.25, "prefill": 0.0, "decode": 0.0, "total": 0.0, "preemptions": 2, "first_step": 0,
                  "last_step": 0}})"));
}

TEST(OfflineResultTest, StopReasons) {
  const auto reason = [](FinishReason finish, Finish::Stop stop, int32_t token_id) {
    OfflineResult result;
    OutputDelta delta;
    SequenceDelta sequence;
    sequence.finish.emplace();
    sequence.finish->reason = finish;
    sequence.finish->stop = stop;
    sequence.finish->token_id = token_id;
    delta.sequences = {sequence};
    delta.usage = Usage();
    result.Add(delta);
    const json answer = json::parse(result.ToJson(1));
    return std::pair(answer["finish_reason"].get<std::string>(), answer["stop_reason"]);
  };
  EXPECT_EQ(reason(FinishReason::kStop, Finish::Stop::kEos, 2), std::pair(std::string("stop"), json(nullptr)));
  EXPECT_EQ(reason(FinishReason::kStop, Finish::Stop::kStopToken, 9), std::pair(std::string("stop"), json(9)));
  EXPECT_EQ(reason(FinishReason::kLength, Finish::Stop::kNone, -1), std::pair(std::string("length"), json(nullptr)));
  EXPECT_EQ(reason(FinishReason::kAborted, Finish::Stop::kNone, -1), std::pair(std::string("abort"), json(nullptr)));
}

struct FlushCounter : std::streambuf {
  int flushes = 0;
  int sync() override { return ++flushes, 0; }
};

// A front end without a tokenizer on the simulated model.
class SimFrontend {
 public:
  SimFrontend() {
    SimRunnerOptions sim;
    sim.config.vocab_size = 100;
    sim.config.max_position_embeddings = 256;
    sim.config.eos_token_ids = {2};
    sim.num_kv_blocks = 65;
    sim.block_size = 16;
    sim.time_scale = 0;
    auto runner = CreateSimRunner(sim);
    EXPECT_TRUE(runner.ok()) << runner.status();
    auto engine = CreateEngineWithRunner(EngineOptions(), sim.config, *std::move(runner));
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    engine_->Start();
    FrontendOptions options;
    options.served_model_names = {"m"};
    options.max_logprobs = -1;
    frontend_ = std::make_unique<Frontend>(*engine_, tokenizer_, options);
  }

  Frontend& operator*() { return *frontend_; }

 private:
  const IdsOnlyTokenizer tokenizer_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Frontend> frontend_;
};

// The answers of a batch by id.
std::map<json, json> RunBatch(const std::string& lines, int32_t max_in_flight) {
  SimFrontend frontend;
  std::istringstream in(lines);
  std::ostringstream out;
  FlushCounter counter;
  std::ostream tied(&counter);
  in.tie(&tied);  // as std::cin is to std::cout
  const absl::Status status = RunOfflineBatch(*frontend, in, out, max_in_flight);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(counter.flushes, 0) << "the reading thread flushed a stream that belongs to the writing one";
  EXPECT_EQ(in.tie(), &tied);
  std::map<json, json> answers;
  std::istringstream result(out.str());
  for (std::string line; std::getline(result, line);) {
    json answer = json::parse(line);
    const json id = answer["id"];
    EXPECT_TRUE(answers.emplace(id, std::move(answer)).second) << "answered twice: " << id;
  }
  return answers;
}

TEST(OfflineBatchTest, AnswersEveryLineOnceWhateverTheWindow) {
  std::string lines;
  for (int i = 0; i < 200; ++i) {
    lines += json{{"id", i}, {"prompt_ids", {i % 100, 5, 6}}, {"max_tokens", 1 + i % 20}, {"ignore_eos", true}}.dump() +
             "\n";
    if (i % 10 == 0) lines += "\n{\"id\": \"bad" + std::to_string(i) + "\", \"prompt_ids\": [100]}\r\n";
  }
  const auto wide = RunBatch(lines, 1024), narrow = RunBatch(lines, 2);
  ASSERT_EQ(wide.size(), 220u);
  ASSERT_EQ(narrow.size(), 220u);
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(wide.at(i)["output_ids"].size(), static_cast<size_t>(1 + i % 20));
    EXPECT_EQ(wide.at(i)["finish_reason"], "length");
    EXPECT_EQ(wide.at(i)["usage"]["prompt_tokens"], 3);
  }
  EXPECT_EQ(wide.at("bad0")["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_THAT(wide.at("bad0")["error"]["message"].get<std::string>(), HasSubstr("prompt_ids[0]: 100"));
}

TEST(OfflineBatchTest, SequencesAndWholeVocabulary) {
  const auto answers = RunBatch(
      R"({"id": 1, "prompt_ids": [1, 2, 3], "n": 3, "max_tokens": 4, "ignore_eos": true, "seed": 5, "logprobs": -1, "prompt_logprobs": -1, "temperature": 1})",
      10);
  const json& answer = answers.at(1);
  ASSERT_EQ(answer["outputs"].size(), 3u);
  EXPECT_EQ(answer["outputs"][0]["output_ids"], answer["output_ids"]);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 12);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(answer["outputs"][i]["index"], i);
    ASSERT_EQ(answer["outputs"][i]["logprobs"].size(), 4u);
    EXPECT_EQ(answer["outputs"][i]["logprobs"][0].size(), 100u);
  }
  ASSERT_EQ(answer["prompt_logprobs"].size(), 3u);
  EXPECT_TRUE(answer["prompt_logprobs"][0].is_null());
  EXPECT_EQ(answer["prompt_logprobs"][2].size(), 100u);
}

TEST(OfflineBatchTest, BeamSearchGivesItsOutputsBestFirst) {
  const auto answers = RunBatch(
      R"({"id": 1, "prompt_ids": [1, 2, 3], "n": 3, "beam_width": 4, "max_tokens": 5, "ignore_eos": true, "logprobs": 1})"
      "\n"
      R"({"id": 2, "prompt_ids": [1, 2, 3], "beam_width": 65})"
      "\n"
      R"({"id": 3, "prompt_ids": [1, 2, 3], "n": 2, "max_tokens": 2, "ignore_eos": true})",
      10);
  const json& outputs = answers.at(1)["outputs"];
  ASSERT_EQ(outputs.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(outputs[i]["output_ids"].size(), 5u);
    double sum = 0;  // of the chosen ids
    for (int t = 0; t < 5; ++t) {
      for (const json& entry : outputs[i]["logprobs"][t]) {
        if (entry[0] == outputs[i]["output_ids"][t]) sum += entry[1].get<double>();
      }
    }
    EXPECT_NEAR(outputs[i]["score"].get<double>(), sum / 5, 1e-5);
    if (i > 0) {
      EXPECT_LE(outputs[i]["score"], outputs[i - 1]["score"]);
      EXPECT_NE(outputs[i]["output_ids"], outputs[i - 1]["output_ids"]);
    }
  }
  EXPECT_EQ(answers.at(1)["usage"]["completion_tokens"], 15);
  EXPECT_THAT(answers.at(2)["error"]["message"].get<std::string>(), HasSubstr("beam_width: 65"));
  EXPECT_FALSE(answers.at(3)["outputs"][0].contains("score"));
}

// The same sequences run with n = 6: of these the two with the largest means, whatever came first.
TEST(OfflineBatchTest, BestOfGivesTheMostProbableSequences) {
  const std::string common =
      R"("prompt_ids": [1, 2, 3], "seed": 5, "temperature": 1, "max_tokens": 7, "stop_token_ids": [4],)";
  const auto answers =
      RunBatch("{\"id\": 1, " + common + R"("n": 6, "logprobs": 0})" + "\n{\"id\": 2, " + common +
                   R"("n": 2, "best_of": 6})" + "\n{\"id\": 3, " + common + R"("n": 1, "best_of": 6, "logprobs": 0})" +
                   "\n{\"id\": 4, " + common + R"("n": 3, "best_of": 2})",
               10);
  std::vector<std::pair<double, json>> all;
  for (const json& output : answers.at(1)["outputs"]) {
    double sum = 0;
    for (const json& position : output["logprobs"]) sum += position[0][1].get<double>();
    all.emplace_back(-sum / static_cast<double>(output["logprobs"].size()), output["output_ids"]);
  }
  ASSERT_EQ(all.size(), 6u);
  const json first = all[0].second;
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  EXPECT_NE(all[0].second, first) << "or the test shows little";
  const json& outputs = answers.at(2)["outputs"];
  ASSERT_EQ(outputs.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(outputs[i]["index"], i);
    EXPECT_EQ(outputs[i]["output_ids"], all[i].second);
    EXPECT_NEAR(outputs[i]["score"].get<double>(), -all[i].first, 1e-4);
    EXPECT_TRUE(outputs[i]["logprobs"].is_null());
  }
  EXPECT_EQ(answers.at(2)["usage"]["completion_tokens"], answers.at(1)["usage"]["completion_tokens"]);
  EXPECT_EQ(answers.at(3)["output_ids"], all[0].second);
  EXPECT_THAT(answers.at(4)["error"]["message"].get<std::string>(), HasSubstr("best_of: 2"));
}

TEST(OfflineRequestTest, ReadsEverySampler) {
  const GenerateRequest request = Parse(
      R"({"prompt": "hi", "repetition_penalty": 1.5, "frequency_penalty": 0.25, "presence_penalty": -1,
          "repeat_last_n": 3, "logit_bias": {"7": -2.5}, "allowed_token_ids": [1], "bad_words": ["x"],
          "no_repeat_ngram_size": 2, "dry_multiplier": 1, "dry_base": 2, "dry_allowed_length": 3, "dry_last_n": 4,
          "dry_sequence_breakers": ["!"], "top_n_sigma": 1, "dynatemp_range": 0.5, "dynatemp_exponent": 2,
          "typical_p": 0.5, "xtc_probability": 0.5, "xtc_threshold": 0.25, "mirostat": true, "mirostat_tau": 3,
          "mirostat_eta": 0.5, "repetition_detection": {"max_pattern_size": 4, "min_count": 2},
          "truncate_prompt_tokens": 5, "truncation_side": "right", "logprobs_mode": "processed_logprobs"})");
  const RulesRequest& rules = request.rules;
  EXPECT_EQ(rules.repetition_penalty, 1.5f);
  EXPECT_EQ(rules.presence_penalty, -1.0f);
  EXPECT_EQ(rules.logit_bias, (std::vector<std::pair<int64_t, float>>{{7, -2.5f}}));
  EXPECT_THAT(rules.bad_words, ElementsAre("x"));
  EXPECT_EQ(rules.dry_last_n, 4);
  EXPECT_TRUE(rules.mirostat);
  EXPECT_EQ(rules.mirostat_eta, 0.5f);
  EXPECT_EQ(request.repetition_detection->max_pattern_size, 4);
  EXPECT_FALSE(request.repetition_detection->min_pattern_size.has_value());
  EXPECT_EQ(request.truncate_prompt_tokens, 5);
  EXPECT_EQ(request.truncation_side, 2);
  EXPECT_EQ(request.logprobs_mode, 2);
  EXPECT_THAT(Error(R"({"prompt": "x", "logit_bias": {"a": 1}})"), HasSubstr("logit_bias.a"));
  EXPECT_THAT(Error(R"({"prompt": "x", "truncation_side": "top"})"), HasSubstr("truncation_side"));
}

// Samplers that look back act the same alone, beside others and one step after another.
TEST(OfflineBatchTest, SamplersThatLookBackAreRepeatable) {
  std::string lines;
  const std::string rules =
      R"("prompt_ids": [1, 2, 3, 1, 2], "max_tokens": 30, "ignore_eos": true, "temperature": 1, "repetition_penalty": 1.3,
         "dry_multiplier": 0.5, "mirostat": true, "seed": )";
  std::string flat = rules;
  std::replace(flat.begin(), flat.end(), '\n', ' ');
  for (int id = 1; id <= 8; ++id) lines += absl::StrCat("{\"id\": ", id, ", ", flat, id % 4, "}\n");
  const auto answers = RunBatch(lines, 10);
  for (int id = 1; id <= 4; ++id) {
    EXPECT_EQ(answers.at(id)["output_ids"].size(), 30u) << answers.at(id);
    EXPECT_EQ(answers.at(id)["output_ids"], answers.at(id + 4)["output_ids"]);
  }
  EXPECT_NE(answers.at(1)["output_ids"], answers.at(2)["output_ids"]);
}

TEST(OfflineBatchTest, TextNeedsATokenizer) {
  const auto answers = RunBatch(R"({"id": 1, "prompt": "hello"})", 10);
  EXPECT_THAT(answers.at(1)["error"]["message"].get<std::string>(), HasSubstr("no tokenizer"));
}

TEST(OfflineBatchTest, ALineThatIsTooLongIsAnsweredAndSkipped) {
  std::string lines = "{\"id\": 7, \"prompt_ids\": [1], \"max_tokens\": 1}\n";
  lines += std::string(kMaxOfflineLineBytes + 1, ' ') + "\n{\"id\": 8, \"prompt_ids\": [1], \"max_tokens\": 1}";
  const auto answers = RunBatch(lines, 10);
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers.at(2)["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(answers.at(2)["error"]["message"], "line 2: 67108865 bytes are too long; at most 67108864");
  EXPECT_EQ(answers.at(7)["usage"]["completion_tokens"], 1);
  EXPECT_EQ(answers.at(8)["usage"]["completion_tokens"], 1);
}

// The same line for ever.
class EndlessLines : public std::streambuf {
 public:
  explicit EndlessLines(std::string line) : line_(std::move(line)) {}

 private:
  int underflow() override {
    setg(line_.data(), line_.data(), line_.data() + line_.size());
    return traits_type::to_int_type(line_[0]);
  }
  std::string line_;
};

// Takes a few answers, then nothing.
class FullDisk : public std::streambuf {
 public:
  explicit FullDisk(int room) : room_(room) {}

 private:
  int overflow(int c) override { return room_-- > 0 ? c : traits_type::eof(); }
  int room_;
};

TEST(OfflineBatchTest, AnOutputThatCannotBeWrittenEndsTheBatch) {
  for (const char* line : {"{\"prompt_ids\": [1], \"max_tokens\": 100}\n", "nonsense\n"}) {
    SimFrontend frontend;
    EndlessLines lines(line);
    FullDisk disk(5000);
    std::istream in(&lines);
    std::ostream out(&disk);
    const absl::Status status = RunOfflineBatch(*frontend, in, out, 10);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(status.message(), "the results cannot be written");
  }
}

}  // namespace
}  // namespace quire
