// The commands against a fake server over a real connection.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/cli_fake_server.h"
#include "tests/server/cli_runner.h"

namespace quire::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CommandTest : public ::testing::Test {
 protected:
  RunResult Run(std::vector<std::string> args, const std::string& input = "") {
    args.insert(args.begin(), {"--server", server_.address()});
    return RunCli(args, input);
  }
  FakeGeneration& service() { return server_.service; }

  FakeServer server_;
};

// A port of the loopback interface at which nobody listens.
std::string ClosedAddress() {
  const int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  EXPECT_EQ(bind(socket_fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(getsockname(socket_fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  close(socket_fd);
  return absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
}

TEST_F(CommandTest, GenerateStreamsText) {
  const RunResult result = Run({"generate", "hello"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "0.0 0.1 0.2 \n");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(service().last_request().text(), "hello");
}

TEST_F(CommandTest, GenerateAsksForStructuredOutput) {
  const std::string path = ::testing::TempDir() + "/quire_cli_schema.json";
  std::ofstream(path) << "{\"type\": \"object\"}\n";
  EXPECT_EQ(Run({"generate", "x", "--json-schema", path, "--compact-json"}).exit_code, 0);
  EXPECT_EQ(service().last_request().structured_output().json_schema(), "{\"type\": \"object\"}\n");
  EXPECT_TRUE(service().last_request().structured_output().compact_json());
  EXPECT_EQ(Run({"generate", "x", "--grammar", path}).exit_code, 0);
  EXPECT_TRUE(service().last_request().structured_output().has_grammar());
  EXPECT_EQ(Run({"generate", "x", "--regex", "a+"}).exit_code, 0);
  EXPECT_EQ(service().last_request().structured_output().regex(), "a+");
  EXPECT_EQ(Run({"generate", "x", "--choice", "a", "--choice", "b"}).exit_code, 0);
  EXPECT_EQ(service().last_request().structured_output().choices().choices_size(), 2);
  EXPECT_EQ(Run({"generate", "x", "--json-object"}).exit_code, 0);
  EXPECT_TRUE(service().last_request().structured_output().json_object());
  EXPECT_EQ(Run({"generate", "x", "--json-object", "--regex", "a"}).exit_code, kExitUsage);
  EXPECT_EQ(Run({"generate", "x", "--json-schema", path + ".none"}).exit_code, kExitUsage);
  EXPECT_EQ(Run({"generate", "x"}).exit_code, 0);
  EXPECT_FALSE(service().last_request().has_structured_output());
}

TEST_F(CommandTest, GenerateAsksForABeamSearch) {
  const RunResult result =
      Run({"generate", "x", "--beam-width", "4", "--length-penalty", "-0.5", "--early-stopping", "never"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const v1::BeamSearch beams = service().last_request().sampling().beam_search();
  EXPECT_EQ(beams.width(), 4u);
  EXPECT_EQ(beams.length_penalty(), -0.5F);
  EXPECT_EQ(beams.early_stopping(), v1::BeamSearch::EARLY_STOPPING_NEVER);
  EXPECT_EQ(Run({"generate", "x", "--beam-width", "4", "--early-stopping", "later"}).exit_code, kExitUsage);
  EXPECT_EQ(Run({"generate", "x"}).exit_code, 0);
  EXPECT_FALSE(service().last_request().sampling().has_beam_search());
}

TEST_F(CommandTest, GenerateGoesOnFromAnotherRequest) {
  const RunResult result = Run({"generate", "--fork", "r1", "--at", "7", "--fork-sequence", "2", "--max-tokens", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "0.0 0.1 \n");
  const v1::ForkRequest fork = service().last_fork();
  EXPECT_EQ(fork.request_id(), "r1");
  EXPECT_EQ(fork.sequence(), 2u);
  EXPECT_EQ(fork.at_token(), 7u);
  EXPECT_EQ(fork.request().prompt_case(), v1::GenerateRequest::PROMPT_NOT_SET);
  EXPECT_EQ(Run({"generate", "and then", "--fork", "r1"}).exit_code, 0);
  EXPECT_EQ(service().last_fork().request().text(), "and then");
  EXPECT_FALSE(service().last_fork().has_at_token());
  EXPECT_EQ(Run({"generate", "x", "--at", "7"}).exit_code, kExitUsage);
  EXPECT_EQ(Run({"generate"}).exit_code, kExitUsage);
}

TEST_F(CommandTest, GenerateOfTheBestComesAtTheEnd) {
  EXPECT_EQ(Run({"generate", "x", "--best-of", "4", "-n", "2"}).exit_code, 0);
  EXPECT_EQ(service().last_request().sampling().best_of(), 4u);
  EXPECT_EQ(service().num_unary(), 1);
  EXPECT_EQ(Run({"generate", "x", "--best-of", "2", "-n", "2"}).exit_code, 0);
  EXPECT_EQ(service().num_unary(), 1);
}

TEST_F(CommandTest, GenerateSendsEveryOption) {
  const RunResult result = Run({"generate",
                                "--ids",
                                "5,6,7",
                                "--model",
                                "m",
                                "--request-id",
                                "r",
                                "-n",
                                "2",
                                "--max-tokens",
                                "4",
                                "--temperature",
                                "0.5",
                                "--min-p",
                                "0.1",
                                "--top-k",
                                "40",
                                "--top-p",
                                "0.9",
                                "--seed",
                                "-3",
                                "--stop",
                                "a",
                                "--stop",
                                "b c",
                                "--stop-token-id",
                                "8",
                                "--stop-token-id",
                                "9",
                                "--include-stop",
                                "--min-tokens",
                                "1",
                                "--ignore-eos",
                                "--logprobs",
                                "2",
                                "--prompt-logprobs",
                                "-1",
                                "--keep-special-tokens",
                                "--salt",
                                "s",
                                "--priority",
                                "-7"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const v1::GenerateRequest request = service().last_request();
  EXPECT_THAT(request.token_ids().ids(), ElementsAre(5, 6, 7));
  EXPECT_EQ(request.model(), "m");
  EXPECT_EQ(request.request_id(), "r");
  EXPECT_EQ(request.sampling().n(), 2u);
  EXPECT_FLOAT_EQ(request.sampling().temperature(), 0.5F);
  EXPECT_FLOAT_EQ(request.sampling().min_p(), 0.1F);
  EXPECT_EQ(request.sampling().top_k(), 40u);
  EXPECT_FLOAT_EQ(request.sampling().top_p(), 0.9F);
  EXPECT_EQ(request.sampling().seed(), -3);
  EXPECT_EQ(request.stopping().max_tokens(), 4u);
  EXPECT_EQ(request.stopping().min_tokens(), 1u);
  EXPECT_THAT(request.stopping().stop(), ElementsAre("a", "b c"));
  EXPECT_THAT(request.stopping().stop_token_ids(), ElementsAre(8, 9));
  EXPECT_TRUE(request.stopping().include_stop_str_in_output());
  EXPECT_TRUE(request.stopping().ignore_eos());
  EXPECT_EQ(request.output().logprobs(), 2);
  EXPECT_EQ(request.output().prompt_logprobs(), -1);
  EXPECT_FALSE(request.output().skip_special_tokens());
  EXPECT_EQ(request.cache().salt(), "s");
  EXPECT_EQ(request.priority(), -7);
}

TEST_F(CommandTest, GenerateSendsEverySampler) {
  const RunResult result = Run({"generate",
                                "x",
                                "--repetition-penalty",
                                "1.5",
                                "--frequency-penalty",
                                "0.25",
                                "--presence-penalty",
                                "-0.5",
                                "--repeat-last-n",
                                "9",
                                "--no-repeat-ngram-size",
                                "3",
                                "--logit-bias",
                                "7",
                                "-2.5",
                                "--logit-bias",
                                "8",
                                "1",
                                "--allowed-token-id",
                                "4,5",
                                "--bad-word",
                                "a b",
                                "--dry-multiplier",
                                "1",
                                "--dry-base",
                                "2",
                                "--dry-allowed-length",
                                "4",
                                "--dry-last-n",
                                "50",
                                "--dry-breaker",
                                "!",
                                "--top-n-sigma",
                                "1.5",
                                "--dynatemp-range",
                                "0.5",
                                "--dynatemp-exponent",
                                "2",
                                "--typical-p",
                                "0.75",
                                "--xtc-probability",
                                "0.5",
                                "--xtc-threshold",
                                "0.25",
                                "--mirostat",
                                "--mirostat-tau",
                                "3",
                                "--mirostat-eta",
                                "0.5",
                                "--repetition-detection",
                                "8",
                                "2",
                                "3",
                                "--truncate",
                                "-1",
                                "--truncate-right",
                                "--processed-logprobs",
                                "--echo"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const v1::GenerateRequest request = service().last_request();
  const v1::Sampling& sampling = request.sampling();
  EXPECT_EQ(sampling.repetition_penalty(), 1.5f);
  EXPECT_EQ(sampling.frequency_penalty(), 0.25f);
  EXPECT_EQ(sampling.presence_penalty(), -0.5f);
  EXPECT_EQ(sampling.repeat_last_n(), 9u);
  EXPECT_EQ(sampling.no_repeat_ngram_size(), 3u);
  ASSERT_EQ(sampling.logit_bias().size(), 2u);
  EXPECT_EQ(sampling.logit_bias().at(7), -2.5f);
  EXPECT_THAT(sampling.allowed_token_ids(), ElementsAre(4, 5));
  EXPECT_THAT(sampling.bad_words(), ElementsAre("a b"));
  EXPECT_EQ(sampling.dry().multiplier(), 1);
  EXPECT_EQ(sampling.dry().base(), 2);
  EXPECT_EQ(sampling.dry().allowed_length(), 4u);
  EXPECT_EQ(sampling.dry().last_n(), 50u);
  EXPECT_THAT(sampling.dry().sequence_breakers(), ElementsAre("!"));
  EXPECT_EQ(sampling.top_n_sigma(), 1.5f);
  EXPECT_EQ(sampling.dynamic_temperature().range(), 0.5f);
  EXPECT_EQ(sampling.dynamic_temperature().exponent(), 2);
  EXPECT_EQ(sampling.typical_p(), 0.75f);
  EXPECT_EQ(sampling.xtc().probability(), 0.5f);
  EXPECT_EQ(sampling.xtc().threshold(), 0.25f);
  EXPECT_EQ(sampling.mirostat().tau(), 3);
  EXPECT_EQ(sampling.mirostat().eta(), 0.5f);
  EXPECT_EQ(request.stopping().repetition_detection().max_pattern_size(), 8u);
  EXPECT_EQ(request.stopping().repetition_detection().min_pattern_size(), 2u);
  EXPECT_EQ(request.stopping().repetition_detection().min_count(), 3u);
  EXPECT_EQ(request.truncate_prompt_tokens(), -1);
  EXPECT_EQ(request.truncation_side(), v1::GenerateRequest::TRUNCATION_SIDE_RIGHT);
  EXPECT_EQ(request.output().logprobs_mode(), v1::Output::LOGPROBS_MODE_PROCESSED);
  EXPECT_TRUE(request.output().echo());
}

TEST_F(CommandTest, GenerateLeavesTheRestToTheServer) {
  ASSERT_EQ(Run({"generate", "x"}).exit_code, 0);
  const v1::GenerateRequest request = service().last_request();
  EXPECT_FALSE(request.sampling().has_temperature());
  EXPECT_FALSE(request.sampling().has_top_k());
  EXPECT_FALSE(request.sampling().has_top_p());
  EXPECT_FALSE(request.sampling().has_seed());
  EXPECT_FALSE(request.sampling().has_n());
  EXPECT_FALSE(request.sampling().has_repetition_penalty() || request.sampling().has_dry() ||
               request.sampling().has_mirostat() || request.has_truncate_prompt_tokens());
  EXPECT_FALSE(request.stopping().has_max_tokens());
  EXPECT_FALSE(request.output().has_logprobs());
  EXPECT_FALSE(request.has_add_special_tokens());
  EXPECT_FALSE(request.has_priority());
}

TEST_F(CommandTest, APromptMayFollowListsAndBeNamedLikeASubcommand) {
  ASSERT_EQ(Run({"generate", "--stop", "x", "--stop-token-id", "5,6", "stats"}).exit_code, 0);
  const v1::GenerateRequest request = service().last_request();
  EXPECT_EQ(request.text(), "stats");
  EXPECT_THAT(request.stopping().stop_token_ids(), ElementsAre(5, 6));
  ASSERT_EQ(Run({"generate", "--", "--json"}).exit_code, 0);
  EXPECT_EQ(service().last_request().text(), "--json");
}

TEST_F(CommandTest, GenerateReadsStandardInput) {
  EXPECT_EQ(Run({"generate", "-"}, "two\nlines\n").exit_code, 0);
  EXPECT_EQ(service().last_request().text(), "two\nlines\n");
}

TEST_F(CommandTest, TextThatIsNotUtf8IsRefusedBeforeItIsSent) {
  for (const char* command : {"generate", "tokenize"}) {
    const RunResult result = Run({command, "-"}, "ab\xff");
    EXPECT_EQ(result.exit_code, 64);
    EXPECT_EQ(result.err, "quire: the text is not valid UTF-8: byte 2 of 3\n");
  }
  EXPECT_TRUE(service().requests().empty());
}

TEST_F(CommandTest, GenerateJsonEndsWithUsageAndTimings) {
  const RunResult result = Run({"generate", "x", "--json", "--max-tokens", "2", "--logprobs", "1"});
  EXPECT_EQ(result.exit_code, 0);
  const auto lines = result.Lines();
  ASSERT_EQ(lines.size(), 3u) << result.out;
  EXPECT_EQ(lines[0]["prompt"]["prompt_tokens"], 2);
  EXPECT_EQ(lines[0]["prompt"]["seed"], 42);
  EXPECT_EQ(lines[0]["sequences"][0]["text"], "0.0 ");
  EXPECT_EQ(lines[0]["sequences"][0]["logprobs"][0]["top"][0][1], -0.5);
  EXPECT_EQ(lines[1]["sequences"][0]["token_ids"], nlohmann::json({1}));
  EXPECT_EQ(lines[1]["sequences"][0]["finish"]["reason"], "length");
  EXPECT_EQ(lines[2]["usage"]["completion_tokens"], 2);
  EXPECT_EQ(lines[2]["timings"]["total"], 0.25);
}

TEST_F(CommandTest, GeneratePrintsSequencesOneAfterTheOther) {
  EXPECT_EQ(Run({"generate", "x", "-n", "2", "--max-tokens", "2"}).out, "[0] 0.0 0.1 \n[1] 1.0 1.1 \n");
}

TEST_F(CommandTest, GenerateWithoutStreamGivesTheSameText) {
  const RunResult result = Run({"generate", "x", "--no-stream"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "0.0 0.1 0.2 \n");
  EXPECT_EQ(Run({"generate", "fail", "--no-stream"}).exit_code, 1);
}

TEST_F(CommandTest, GeneratePrintsLogprobsBehindTheText) {
  EXPECT_EQ(Run({"generate", "x", "--max-tokens", "1", "--logprobs", "1"}).out,
            "0.0 \ntoken 0  logprob -0.5000  rank 1  top 0:-0.5000\n");
}

TEST_F(CommandTest, AFailureShowsStatusMessageAndDetails) {
  const RunResult result = Run({"generate", "fail"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err,
            "quire: INVALID_ARGUMENT: n: is 65; allowed [1, 64]\n"
            "  sampling.top_p: is 2; allowed (0, 1]\n"
            "  retry after 1.5 s\n");
}

TEST_F(CommandTest, AnInterruptCancelsTheCall) {
  const RunResult result = Run({"generate", "interrupt"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("CANCELLED"));
  server_.Stop();  // returns when the handler has
  EXPECT_TRUE(service().cancelled);
}

TEST_F(CommandTest, ATimeoutEndsTheCall) {
  const RunResult result = Run({"generate", "endless", "--timeout", "0.2"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("DEADLINE_EXCEEDED"));
}

TEST_F(CommandTest, HealthTellsByItsExitCode) {
  server_.SetServing("quire.v1.Generation", false);
  EXPECT_EQ(Run({"health"}).exit_code, 0);
  EXPECT_EQ(Run({"health"}).out, "SERVING\n");
  const RunResult down = Run({"health", "--service", "quire.v1.Generation", "--json"});
  EXPECT_EQ(down.exit_code, 1);
  EXPECT_EQ(down.out, "{\"service\":\"quire.v1.Generation\",\"status\":\"NOT_SERVING\"}\n");
  server_.SetServing("quire.v1.Generation", true);
  EXPECT_EQ(Run({"health", "--service", "quire.v1.Generation"}).exit_code, 0);
  const RunResult unknown = Run({"health", "--service", "nobody"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("NOT_FOUND"));
}

TEST(ConnectionTest, EveryCommandSaysThatNobodyAnswers) {
  const std::string address = ClosedAddress();
  const std::vector<std::vector<std::string>> commands = {{"generate", "x"}, {"stats"},         {"health"},
                                                          {"models"},        {"tokenize", "x"}, {"detokenize", "1"},
                                                          {"abort", "r"},    {"bench"}};
  for (std::vector<std::string> command : commands) {
    command.insert(command.begin(), {"--server", address});
    const RunResult result = RunCli(command);
    EXPECT_EQ(result.exit_code, 69) << command[2];
    EXPECT_THAT(result.err, HasSubstr("quire: cannot connect to " + address + ": "));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

TEST(ConnectionTest, AnAddressThatIsNoneIsNoConnection) {
  EXPECT_EQ(RunCli({"health", "--server", "127.0.0.1:notaport"}).exit_code, 69);
}

TEST_F(CommandTest, TheServerMayComeFromTheEnvironment) {
  setenv("QUIRE_SERVER", server_.address().c_str(), 1);
  EXPECT_EQ(RunCli({"health"}).exit_code, 0);
  EXPECT_EQ(RunCli({"health", "--server", ClosedAddress()}).exit_code, 69);  // the command line wins
  unsetenv("QUIRE_SERVER");
}

TEST_F(CommandTest, Models) {
  const RunResult text = Run({"models"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, HasSubstr("LlamaForCausalLM"));
  EXPECT_THAT(text.out, HasSubstr("99 blocks of 16 tokens"));
  const auto lines = Run({"models", "--json"}).Lines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["vocab_size"], 1000);
  EXPECT_EQ(lines[0]["eos_token_ids"], nlohmann::json({2}));
  EXPECT_TRUE(lines[0]["bos_token_id"].is_null());
}

TEST_F(CommandTest, StatsSplitsTheTimeOfAStep) {
  const RunResult result = Run({"stats"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("3 running, 0 waiting (0 prompt tokens), 2 held"));
  EXPECT_THAT(result.out, HasSubstr("25.0 % hits (50 of 200 tokens)"));
  EXPECT_THAT(result.out, HasSubstr("GEMM              6.000 ms   60.0 %"));
  EXPECT_THAT(result.out, HasSubstr("attention         3.000 ms   30.0 %"));
  const auto lines = Run({"stats", "--json"}).Lines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["prefix_hit_rate"], 0.25);
  EXPECT_EQ(lines[0]["kv_blocks_active"], 2);
  EXPECT_EQ(lines[0]["requests_held"], 2);
  EXPECT_TRUE(lines[0]["total_step_seconds"].contains("scheduling"));
}

TEST_F(CommandTest, StatsWatchShowsRates) {
  const RunResult result = Run({"stats", "--watch", "--interval", "0.001", "--count", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines(result.out);
  std::string header, first, second, rest;
  std::getline(lines, header);
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_FALSE(std::getline(lines, rest));
  EXPECT_THAT(header, HasSubstr("GEMM%"));
  EXPECT_EQ(header.size(), first.size());
  // A second between two readings: 10 steps, 500 tokens, 10 ms a step.
  EXPECT_THAT(second, HasSubstr("10.0  500.0    10.00   60.0   30.0"));
}

TEST_F(CommandTest, TokenizeAndDetokenize) {
  EXPECT_EQ(Run({"tokenize", "AB"}).out, "1,65,66\n");
  EXPECT_EQ(Run({"tokenize", "AB", "--no-special-tokens"}).out, "65,66\n");
  EXPECT_EQ(Run({"tokenize", "-", "--json"}, "A").out, "{\"ids\":[1,65],\"max_model_len\":4096}\n");
  EXPECT_EQ(Run({"detokenize", "1,65"}).out, "<65>\n");
  EXPECT_EQ(Run({"detokenize", "1", "65", "--keep-special-tokens", "--json"}).out, "{\"text\":\"<1><65>\"}\n");
}

TEST_F(CommandTest, Abort) {
  const RunResult result = Run({"abort", "a", "b"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(service().aborted, ElementsAre("a", "b"));
  EXPECT_EQ(Run({"abort", "--json", "c"}).out, "{\"request_ids\":[\"c\"]}\n");
  EXPECT_THAT(service().aborted, ElementsAre("c"));
}

TEST_F(CommandTest, BenchMeasuresEachConcurrency) {
  const std::string path = ::testing::TempDir() + "/quire_cli_bench.json";
  const RunResult result = Run({"bench", "--concurrency", "1,4", "--num-requests", "9", "--input-len", "6",
                                "--output-len", "5", "--warmup", "2", "--json", path});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("concurrency 4: 9 completed, 0 failed"));
  EXPECT_EQ(result.err, "");  // no bar where there is no terminal
  EXPECT_EQ(service().requests().size(), 2 * (9u + 2u));
  EXPECT_LE(service().max_running(), 4);
  std::ifstream file(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line, nullptr, false));
  std::remove(path.c_str());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["max_concurrency"], 1);
  EXPECT_EQ(lines[1]["max_concurrency"], 4);
  for (const nlohmann::json& line : lines) {
    EXPECT_EQ(line["completed"], 9);
    EXPECT_EQ(line["total_input_tokens"], 9 * 6);
    EXPECT_EQ(line["total_output_tokens"], 9 * 5);
    EXPECT_GT(line["mean_ttft_ms"], 0.0);
    EXPECT_GE(line["mean_e2el_ms"], line["mean_ttft_ms"]);
  }
  // Measurements do not meet in the prefix cache; lengths are forced.
  std::set<std::string> salts;
  for (const v1::GenerateRequest& request : service().requests()) {
    salts.insert(request.cache().salt());
    EXPECT_TRUE(request.stopping().ignore_eos());
    EXPECT_EQ(request.token_ids().ids_size(), 6);
  }
  EXPECT_EQ(salts.size(), 2u);
}

TEST_F(CommandTest, BenchReportsFailures) {
  service().failing_seeds = {101, 103};  // the second and fourth request
  const RunResult result = Run({"bench", "--concurrency", "3", "--num-requests", "10", "--seed", "100", "--json", "-"});
  EXPECT_EQ(result.exit_code, 1);
  const auto lines = result.Lines();
  ASSERT_EQ(lines.size(), 1u) << result.out;
  EXPECT_EQ(lines[0]["completed"], 8);
  EXPECT_EQ(lines[0]["failed"], 2);
  EXPECT_EQ(lines[0]["errors"]["UNAVAILABLE: draining"], 2);
}

TEST_F(CommandTest, BenchRefusesLengthsThatDoNotFit) {
  const RunResult result = Run({"bench", "--input-len", "4096"});
  EXPECT_EQ(result.exit_code, 64);
  EXPECT_THAT(result.err, HasSubstr("--input-len is 4096; the model of this server allows 1 to 4095"));
  EXPECT_TRUE(service().requests().empty());
}

TEST_F(CommandTest, BenchRunsManyStreams) {
  const RunResult result = Run({"bench", "--concurrency", "64", "--num-requests", "300", "--output-len", "8"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("300 completed, 0 failed"));
  EXPECT_LE(service().max_running(), 64);
}

}  // namespace
}  // namespace quire::cli
