#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/config/exit_code.h"
#include "server/config/server_config.h"

namespace quire {
namespace {

struct Parsed {
  std::optional<ServerConfig> config;
  int exit_code = -1;
  std::string out, err;
};

Parsed Parse(std::vector<std::string> args) {
  std::vector<const char*> argv = {"quired"};
  for (const std::string& arg : args) argv.push_back(arg.c_str());
  Parsed parsed;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  parsed.config = ParseServerConfig(static_cast<int>(argv.size()), argv.data(), &parsed.exit_code);
  parsed.out = ::testing::internal::GetCapturedStdout();
  parsed.err = ::testing::internal::GetCapturedStderr();
  return parsed;
}

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream(path) << text;
  return path;
}

class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Environment() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(ServerConfigTest, DefaultsAreThoseOfTheInterface) {
  const Parsed parsed = Parse({"--model", "/models/Name.Q4.gguf"});
  ASSERT_TRUE(parsed.config.has_value()) << parsed.err;
  const ServerConfig& config = *parsed.config;
  EXPECT_EQ(config.grpc_listen, "127.0.0.1:50051");
  EXPECT_EQ(config.engine.device, DeviceKind::kCpu);
  EXPECT_EQ(config.engine.scheduler.max_num_seqs, 256);
  EXPECT_EQ(config.engine.scheduler.max_num_batched_tokens, 2048);
  EXPECT_TRUE(config.engine.scheduler.enable_prefix_caching);
  EXPECT_EQ(config.engine.max_queued_requests, 1024);
  EXPECT_EQ(config.engine.max_queued_tokens, 1 << 20);
  EXPECT_EQ(config.engine.step_timeout, absl::Seconds(60));
  EXPECT_EQ(config.drain_timeout, absl::Seconds(30));
  EXPECT_EQ(config.stall_timeout, absl::Seconds(30));
  EXPECT_EQ(config.model.max_logprobs, 20);
  EXPECT_EQ(config.model.served_model_names, std::vector<std::string>{"Name.Q4"});
}

TEST(ServerConfigTest, CommandLineBeatsEnvironmentBeatsFile) {
  const std::string file = WriteFile("precedence.toml", "max-num-seqs = 3\nmax-logprobs = 4\nblock-size = 16\n");
  const Environment seqs("QUIRE_MAX_NUM_SEQS", "5"), logprobs("QUIRE_MAX_LOGPROBS", "6");
  const Parsed parsed = Parse({"--model=m", "--config", file, "--max-num-seqs", "7"});
  ASSERT_TRUE(parsed.config.has_value()) << parsed.err;
  EXPECT_EQ(parsed.config->engine.scheduler.max_num_seqs, 7);
  EXPECT_EQ(parsed.config->model.max_logprobs, 6);
  EXPECT_EQ(parsed.config->engine.block_size, 16);
}

TEST(ServerConfigTest, PrintedConfigurationReadsBackAsTheSame) {
  const Parsed printed = Parse({"--model",
                                "m dir",
                                "--no-enable-prefix-caching",
                                "--kv-cache-memory",
                                "1.5GiB",
                                "--seed",
                                "9",
                                "--served-model-name",
                                "a",
                                "b",
                                "--device",
                                "sim",
                                "--log-format",
                                "json",
                                "--step-timeout",
                                "0.5",
                                "--generation-config",
                                "none",
                                "--logprobs-mode",
                                "processed_logprobs",
                                "--print-config"});
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  const Parsed again = Parse({"--config", WriteFile("printed.toml", printed.out)});
  ASSERT_TRUE(again.config.has_value()) << again.err << printed.out;
  EXPECT_EQ(again.config->engine.model_path, "m dir");
  EXPECT_FALSE(again.config->engine.scheduler.enable_prefix_caching);
  EXPECT_EQ(again.config->engine.kv_cache_bytes, int64_t{3} << 29);
  EXPECT_EQ(again.config->engine.seed, 9u);
  EXPECT_EQ(again.config->model.served_model_names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(again.config->engine.device, DeviceKind::kSim);
  EXPECT_TRUE(again.config->log_json);
  EXPECT_EQ(again.config->engine.step_timeout, absl::Milliseconds(500));
  EXPECT_FALSE(again.config->model.use_generation_config);
  EXPECT_TRUE(again.config->model.processed_logprobs);

  const Parsed defaults = Parse({"--model", "m", "--print-config"});
  const Parsed read = Parse({"--config", WriteFile("defaults.toml", defaults.out)});
  ASSERT_TRUE(read.config.has_value()) << read.err << defaults.out;
  EXPECT_TRUE(read.config->engine.scheduler.enable_prefix_caching);
}

TEST(ServerConfigTest, WhatThePrefixCacheKeepsReadsBackAsPrinted) {
  const Parsed printed =
      Parse({"--model", "m", "--eviction-policy", "lru", "--max-pinned-share", "0.25", "--tenant-kv-quota",
             "0.5,big=0.75", "a=b=0", "--kv-events", "4096", "--admin-listen", "127.0.0.1:0", "--print-config"});
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  const Parsed again = Parse({"--config", WriteFile("cache.toml", printed.out)});
  ASSERT_TRUE(again.config.has_value()) << again.err << printed.out;
  const EngineOptions& engine = again.config->engine;
  EXPECT_EQ(engine.eviction.policy, EvictionPolicy::kLru);
  EXPECT_EQ(engine.eviction.max_pinned_share, 0.25);
  EXPECT_EQ(engine.tenant_kv_quota, 0.5);
  EXPECT_EQ(engine.tenant_kv_quotas, (std::vector<std::pair<std::string, double>>{{"big", 0.75}, {"a=b", 0}}));
  EXPECT_EQ(engine.num_kv_events, 4096);
  EXPECT_EQ(again.config->admin_listen, "127.0.0.1:0");

  const Parsed defaults = Parse({"--model", "m"});
  ASSERT_TRUE(defaults.config.has_value());
  EXPECT_EQ(defaults.config->engine.eviction.policy, EvictionPolicy::kCost);
  EXPECT_EQ(defaults.config->engine.tenant_kv_quota, 1);
  EXPECT_EQ(defaults.config->engine.num_kv_events, 0);
  EXPECT_EQ(defaults.config->admin_listen, "");
}

TEST(ServerConfigTest, SpeculationIsOffUnlessAskedFor) {
  const auto scheduler_of = [](const std::vector<std::string>& flags) {
    std::vector<std::string> all = {"--model", "m"};
    all.insert(all.end(), flags.begin(), flags.end());
    return Parse(all).config->engine.scheduler;
  };
  EXPECT_EQ(scheduler_of({}).speculation, SpeculationMode::kOff);
  EXPECT_EQ(scheduler_of({"--speculation-length", "4"}).speculation, SpeculationMode::kOff);
  EXPECT_EQ(scheduler_of({"--speculation", "off"}).speculation, SpeculationMode::kOff);
  EXPECT_EQ(scheduler_of({"--speculation", "ngram"}).speculation, SpeculationMode::kNgram);
  EXPECT_EQ(scheduler_of({"--speculation", "ngram"}).max_drafts, 8);
  EXPECT_EQ(scheduler_of({"--speculation", "ngram", "--speculation-length", "4"}).max_drafts, 4);
}

TEST(ServerConfigTest, BadValuesNameOptionValueAndLimitAndExitSeventyEight) {
  const std::vector<std::vector<std::string>> cases = {{"--block-size", "3", "32"},
                                                       {"--block-size", "0", "32"},
                                                       {"--preemption", "drop", "recompute"},
                                                       {"--speculation", "eagle", "off or ngram"},
                                                       {"--speculation", "draft", "cannot be used yet"},
                                                       {"--speculation-length", "0", "[1, 64]"},
                                                       {"--speculation-length", "65", "[1, 64]"},
                                                       {"--host-kv-memory", "some", "GiB"},
                                                       {"--max-num-seqs", "0", "65536"},
                                                       {"--max-model-len", "1", "2"},
                                                       {"--kv-blocks", "0", "1"},
                                                       {"--kv-cache-memory", "lots", "GiB"},
                                                       {"--memory-fraction", "1.5", "0.95"},
                                                       {"--kv-cache-dtype", "fp8", "fp8_e4m3"},
                                                       {"--device", "tpu", "cpu"},
                                                       {"--device", "cpu:1", "cpu"},
                                                       {"--cpu-isa", "amx", "avx512"},
                                                       {"--threads", "257", "256"},
                                                       {"--max-logprobs", "-2", "-1"},
                                                       {"--log-level", "loud", "debug"},
                                                       {"--log-format", "xml", "json"},
                                                       {"--drain-timeout", "-1", "0"},
                                                       {"--generation-config", "x", "none"},
                                                       {"--logprobs-mode", "raw_logits", "processed_logprobs"},
                                                       {"--load-format", "x", "random"},
                                                       {"--eviction-policy", "fifo", "lru"},
                                                       {"--max-pinned-share", "1.5", "[0, 1]"},
                                                       {"--tenant-kv-quota", "2", "[0, 1]"},
                                                       {"--tenant-kv-quota", "a=half", "NAME=SHARE"},
                                                       {"--kv-events", "-1", "1048576"},
                                                       {"--max-num-batched-tokens", "0", "1048576"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c[0] + "=" + c[1]);
    const Parsed parsed = Parse({"--model", "m", c[0] + "=" + c[1]});
    EXPECT_FALSE(parsed.config.has_value());
    EXPECT_EQ(parsed.exit_code, 78);
    EXPECT_NE(parsed.err.find(c[0]), std::string::npos) << parsed.err;
    EXPECT_NE(parsed.err.find(c[1]), std::string::npos) << parsed.err;
    EXPECT_NE(parsed.err.find(c[2]), std::string::npos) << parsed.err;
  }
}

TEST(ServerConfigTest, WhatCannotBeReadExitsSixtyFourOnTheCommandLineAndSeventyEightElsewhere) {
  EXPECT_EQ(Parse({}).exit_code, 64);
  EXPECT_EQ(Parse({"--model", "m", "--nonsense"}).exit_code, 64);
  EXPECT_EQ(Parse({"--model"}).exit_code, 64);
  EXPECT_EQ(Parse({"--model", "m", "--max-num-seqs", "many"}).exit_code, 64);
  EXPECT_EQ(Parse({"--model", "m", "--kv-blocks", "5", "--kv-cache-memory", "1GiB"}).exit_code, 64);
  EXPECT_EQ(Parse({"--model", "m", "--config", WriteFile("bad.toml", "max-num-seqs = \"many\"\n")}).exit_code, 78);
  EXPECT_EQ(Parse({"--model", "m", "--config", WriteFile("unknown.toml", "max-num-sqs = 4\n")}).exit_code, 78);
  EXPECT_EQ(Parse({"--model", "m", "--config", "/nowhere/x.toml"}).exit_code, 78);
  const Environment bad("QUIRE_MAX_NUM_SEQS", "many");
  EXPECT_EQ(Parse({"--model", "m"}).exit_code, 78);
}

TEST(ServerConfigTest, AnOptionOnTheCommandLineBeatsOnesOfTheEnvironmentThatItExcludes) {
  const Environment bytes("QUIRE_KV_CACHE_MEMORY", "1GiB");
  const Parsed blocks = Parse({"--model", "m", "--kv-blocks=5"});
  ASSERT_TRUE(blocks.config.has_value()) << blocks.err;
  EXPECT_EQ(blocks.config->engine.num_kv_blocks, 5);
  EXPECT_EQ(blocks.config->engine.kv_cache_bytes, 0);
  const Parsed fraction = Parse({"--model", "m", "--memory-fraction", "0.5"});
  ASSERT_TRUE(fraction.config.has_value()) << fraction.err;
  EXPECT_EQ(fraction.config->engine.memory_fraction, 0.5);
  EXPECT_EQ(Parse({"--model", "m"}).config->engine.kv_cache_bytes, int64_t{1} << 30);
}

TEST(ServerConfigTest, AnOptionOnTheCommandLineBeatsOnesOfTheFileThatItExcludes) {
  const std::string file = WriteFile("rival.toml", "kv-cache-memory = \"1GiB\"\nmax-num-seqs = 3\n");
  const Parsed blocks = Parse({"--model", "m", "--config", file, "--kv-blocks", "5"});
  ASSERT_TRUE(blocks.config.has_value()) << blocks.err;
  EXPECT_EQ(blocks.config->engine.num_kv_blocks, 5);
  EXPECT_EQ(blocks.config->engine.kv_cache_bytes, 0);
  EXPECT_EQ(blocks.config->engine.scheduler.max_num_seqs, 3);
}

TEST(ServerConfigTest, TwoOptionsThatExcludeEachOtherExitSixtyFourWhereverTheyStand) {
  const std::string both = WriteFile("both.toml", "memory-fraction = 0.5\nkv-blocks = 5\n");
  const std::string fraction = WriteFile("fraction.toml", "memory-fraction = 0.5\n");
  const auto expect_refused = [](const Parsed& parsed) {
    EXPECT_FALSE(parsed.config.has_value());
    EXPECT_EQ(parsed.exit_code, 64);
    EXPECT_NE(parsed.err.find("--memory-fraction"), std::string::npos) << parsed.err;
    EXPECT_NE(parsed.err.find("--kv-blocks"), std::string::npos) << parsed.err;
  };
  expect_refused(Parse({"--model", "m", "--config", both}));
  const Environment blocks("QUIRE_KV_BLOCKS", "5");
  expect_refused(Parse({"--model", "m", "--config", fraction}));
  const Environment environment("QUIRE_MEMORY_FRACTION", "0.5");
  expect_refused(Parse({"--model", "m"}));
}

TEST(ServerConfigTest, PreemptionSwapsToTheHostTier) {
  const auto mode = [](const std::string& text) {
    return Parse({"--model", "m", "--preemption", text}).config->engine.scheduler.preemption;
  };
  EXPECT_EQ(mode("auto"), PreemptionMode::kAuto);
  EXPECT_EQ(mode("recompute"), PreemptionMode::kRecompute);
  EXPECT_EQ(mode("swap"), PreemptionMode::kSwap);
  EXPECT_EQ(Parse({"--model", "m"}).config->engine.host_kv_bytes, std::nullopt);
  EXPECT_EQ(Parse({"--model", "m", "--host-kv-memory", "2MiB"}).config->engine.host_kv_bytes, 2 << 20);
  EXPECT_EQ(Parse({"--model", "m", "--host-kv-memory", "0"}).config->engine.host_kv_bytes, 0);
}

TEST(ServerConfigTest, HttpOptions) {
  EXPECT_EQ(Parse({"--model", "m"}).config->http_listen, "127.0.0.1:8000");
  EXPECT_EQ(Parse({"--model", "m", "--http-listen", ""}).config->http_listen, "");
  EXPECT_EQ(Parse({"--model", "m", "--max-request-bytes", "1MiB"}).config->max_request_bytes, 1 << 20);
  EXPECT_EQ(Parse({"--model", "m", "--max-request-bytes", "2GiB"}).exit_code, 78);
  EXPECT_EQ(Parse({"--model", "m", "--max-connections", "0"}).exit_code, 78);
  EXPECT_EQ(Parse({"--model", "m", "--http-idle-timeout", "2.5"}).config->http_idle_timeout, absl::Seconds(2.5));
  EXPECT_THAT(
      Parse({"--model", "m", "--allowed-origins", "https://a.example", "https://b.example"}).config->allowed_origins,
      ::testing::ElementsAre("https://a.example", "https://b.example"));
}

TEST(ServerConfigTest, ChatOptions) {
  const ModelFlags unset = Parse({"--model", "m"}).config->model;
  EXPECT_EQ(unset.chat_template_path, "");
  EXPECT_FALSE(unset.chat.tool_syntax || unset.chat.reasoning_syntax);
  EXPECT_FALSE(unset.chat.literal_special_tokens || unset.chat.allow_request_template);
  const ModelFlags given =
      Parse({"--model", "m", "--chat-template", "t.jinja", "--tool-call-parser", "llama3_json", "--reasoning-parser",
             "think", "--special-tokens-in-messages", "literal", "--allow-request-chat-template"})
          .config->model;
  EXPECT_EQ(given.chat_template_path, "t.jinja");
  EXPECT_EQ(given.chat.tool_syntax, ToolSyntax::kLlamaJson);
  EXPECT_EQ(given.chat.reasoning_syntax, ReasoningSyntax::kThink);
  EXPECT_TRUE(given.chat.literal_special_tokens);
  EXPECT_TRUE(given.chat.allow_request_template);
  EXPECT_FALSE(Parse({"--model", "m", "--tool-call-parser", "auto"}).config->model.chat.tool_syntax);
  EXPECT_EQ(Parse({"--model", "m", "--tool-call-parser", "other"}).exit_code, 78);
  EXPECT_EQ(Parse({"--model", "m", "--reasoning-parser", "hermes"}).exit_code, 78);
  EXPECT_EQ(Parse({"--model", "m", "--special-tokens-in-messages", "maybe"}).exit_code, 78);
}

TEST(ServerConfigTest, SomethingMustListen) {
  const Parsed nothing = Parse({"--model", "m", "--grpc-listen", "", "--http-listen", ""});
  EXPECT_EQ(nothing.exit_code, 64);
  EXPECT_NE(nothing.err.find("--grpc-listen: must not be empty"), std::string::npos) << nothing.err;
  EXPECT_EQ(Parse({"--model", "m", "--grpc-listen", "unix:x"}).config->grpc_listen, "unix:x");
  EXPECT_EQ(Parse({"--model", "m", "--grpc-listen", "", "--admin-listen", "127.0.0.1:1"}).exit_code, 64);
  EXPECT_EQ(Parse({"--model", "m", "--grpc-listen", ""}).config->grpc_listen, "");
}

TEST(ServerConfigTest, SeedsDifferUnlessGiven) {
  EXPECT_NE(Parse({"--model", "m"}).config->engine.seed, Parse({"--model", "m"}).config->engine.seed);
  EXPECT_EQ(Parse({"--model", "m", "--seed", "18446744073709551615"}).config->engine.seed, ~uint64_t{0});
}

TEST(ServerConfigTest, HelpAndVersionSucceed) {
  EXPECT_EQ(Parse({"--version"}).exit_code, 0);
  const Parsed help = Parse({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.out.find("--max-num-batched-tokens"), std::string::npos);
}

TEST(ParseBytesTest, TakesDecimalAndBinaryUnits) {
  EXPECT_EQ(*ParseBytes("4GiB"), int64_t{4} << 30);
  EXPECT_EQ(*ParseBytes("512 MiB"), int64_t{512} << 20);
  EXPECT_EQ(*ParseBytes("1000000"), 1000000);
  EXPECT_EQ(*ParseBytes("1.5gb"), 1500000000);
  for (const char* bad : {"", "GiB", "4XiB", "-1GiB", "1e3", "9999999999TiB", "1.2.3"}) {
    EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
  }
}

TEST(DefaultModelNameTest, IsTheLastPartOfThePath) {
  EXPECT_EQ(DefaultModelName("/a/b/SmolLM2.gguf"), "SmolLM2");
  EXPECT_EQ(DefaultModelName("/a/b/dir/"), "dir");
  EXPECT_EQ(DefaultModelName("dir"), "dir");
  EXPECT_EQ(DefaultModelName("/"), "model");
}

TEST(ExitCodeTest, FollowsTheKindOfError) {
  EXPECT_EQ(ExitCodeOf(absl::StatusCode::kNotFound), 66);
  EXPECT_EQ(ExitCodeOf(absl::StatusCode::kInvalidArgument), 66);
  EXPECT_EQ(ExitCodeOf(absl::StatusCode::kFailedPrecondition), 78);
  EXPECT_EQ(ExitCodeOf(absl::StatusCode::kUnavailable), 69);
  EXPECT_EQ(ExitCodeOf(absl::StatusCode::kUnimplemented), 69);
  EXPECT_EQ(ExitCodeOf(absl::StatusCode::kInternal), 70);
}

TEST(ServerConfigTest, AnEmptyModelIsABadOption) {
  const Parsed parsed = Parse({"--config", WriteFile("empty_model.toml", "model = \"\"\n")});
  EXPECT_FALSE(parsed.config.has_value());
  EXPECT_EQ(parsed.exit_code, kExitConfig);
  EXPECT_NE(parsed.err.find("--model: must not be empty"), std::string::npos) << parsed.err;
}

}  // namespace
}  // namespace quire
